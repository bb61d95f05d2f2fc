"""Archives shown as files: ``fastloader mount`` (FUSE, read-only)."""

from fastloader.mount.mounting import MountError, mount, mount_in_background

__all__ = ["MountError", "mount", "mount_in_background"]
