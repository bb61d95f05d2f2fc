"""Archives mounted and unmounted. This is the one file that knows mfusepy."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastloader.errors import MissingExtraError, StoreError
from fastloader.mount.operations import ArchiveFiles
from fastloader.mount.shown import Shown, shown_at
from fastloader.stores.urls import local_path

DEVICE = "/dev/fuse"
CACHED = 3600
"""Seconds for which the kernel need not ask again: what an archive holds does not change."""


THREADS = 10
"""That wait for the kernel's questions, as FUSE has them by default."""


class MountError(StoreError):
    """An archive can't be mounted here."""


def mount(
    path: str,
    folder: str,
    settings: Mapping[str, Any] | None = None,
    *,
    allow_other: bool = False,
    complain: Callable[[str], None] = lambda message: print(message, file=sys.stderr),
    ready: Callable[[Shown], None] = lambda shown: None,
) -> None:
    """Show an archive in a folder until it is unmounted, or SIGINT or SIGTERM comes; call it in the main thread.

    The folder is made if it is not there, and removed again. ``ready`` is called once it shows the archive. With
    ``allow_other`` other users may look too, as far as the modes of files let them.
    """
    fuse = _fuse()
    folder = os.path.abspath(folder)
    if local_path(path) is not None:
        path = os.path.abspath(str(local_path(path)))  # FUSE leaves for the root of all folders
    shown = shown_at(path, settings)
    operations = ArchiveFiles(shown, complain, lambda: ready(shown))
    options: dict[str, Any] = {
        "fsname": path.replace("\\", "\\\\").replace(",", "\\,"), "subtype": "fastloader",
        "ro": True, "nosuid": True, "nodev": True, "kernel_cache": True,
        "entry_timeout": CACHED, "attr_timeout": CACHED, "negative_timeout": CACHED,
    }  # fmt: skip
    if fuse.fuse_version_major >= 3:
        options["max_idle_threads"] = THREADS  # some versions complain about their own default
    if allow_other:
        options |= {"allow_other": True, "default_permissions": True}
    with _made(folder):
        try:
            fuse.FUSE(operations, folder, foreground=True, **options)
        except RuntimeError as error:
            if _ended(error):
                return
            raise MountError(
                "FUSE does not mount here", path=folder,
                hint="what it says is above; who is not root needs fusermount3, of the package fuse3"
                + (", and user_allow_other in /etc/fuse.conf" if allow_other else ""),
            ) from error  # fmt: skip


def _ended(error: RuntimeError) -> bool:
    """Whether FUSE ran and was ended, by a signal: what it returns then."""
    return error.args == (8,)


@contextlib.contextmanager
def _made(folder: str) -> Iterator[None]:
    """A folder to mount on."""
    there = os.path.isdir(folder)
    if not there:
        try:
            os.mkdir(folder)
        except OSError as error:
            raise MountError(f"can't be made: {error.strerror}", path=folder, hint="give a folder") from error
    try:
        yield
    finally:
        if not there:
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _fuse() -> Any:
    """The library, if it and what it needs are here."""
    try:
        import mfusepy
    except ImportError as error:
        raise MissingExtraError("archives are mounted by mfusepy, which is not installed", extra="mount") from error
    except OSError as error:  # it looks for libfuse when it is imported
        raise MountError("libfuse is not there", hint='install it: "apt install fuse3" on Debian') from error
    try:
        usable = stat.S_ISCHR(os.stat(DEVICE).st_mode) and os.access(DEVICE, os.R_OK | os.W_OK)
    except OSError:
        usable = False
    if not usable:
        raise MountError(
            f"{DEVICE} is not there, or not for you", hint='"modprobe fuse" makes it; a container needs --device '
            "/dev/fuse --cap-add SYS_ADMIN. Without it, fastloader extract writes the files",
        )  # fmt: skip
    return mfusepy


def mount_in_background(
    path: str, folder: str, settings: Mapping[str, Any] | None = None, *, allow_other: bool = False
) -> int:
    """The same in a process of its own, which ends when the folder is unmounted; returns its id once it is mounted."""
    _fuse()
    request = {"path": path, "folder": folder, "settings": settings, "allow_other": allow_other}
    child = subprocess.Popen(
        [sys.executable, "-m", "fastloader.mount.background"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        child.stdin.write(json.dumps(request).encode())
        child.stdin.close()
        said = child.stdout.readline()
    if said.strip() == b"ready":
        child.returncode = 0  # it goes on, and nobody waits for it
        return child.pid
    child.wait()
    if not said:
        raise MountError(f"the process that mounts it ended with status {child.returncode}", path=folder)
    raise pickle.loads(base64.b64decode(said))


__all__ = ["MountError", "mount", "mount_in_background"]
