"""Snapshots that nobody needs any more, and the files that only they name."""

from __future__ import annotations

from pathlib import Path

from fastloader.errors import StoreError
from fastloader.formats.fld.manifest import is_own
from fastloader.formats.fld.snapshots import history, snapshot_name
from fastloader.stores import ObjectPath


def drop_snapshots(folder: Path | ObjectPath, keep: int) -> tuple[list[int], int]:
    """Forget all snapshots but the newest ``keep``, and remove files that none of these names.

    Returns the numbers of those forgotten and how many bytes were given back. Who calls it for a local folder holds its
    lock. A snapshot is forgotten before its files go: nobody finds one whose files are not there. Of files, only those
    are removed that writers made for this folder; on a local disk also what a killed one left.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: the newest snapshot stays")
    known = list(history(folder))
    kept, dropped = known[:keep], known[keep:]
    named = {one.path for manifest in kept for one in manifest.files}
    sizes = {one.path: one.size for manifest in dropped for one in manifest.files}
    if isinstance(folder, Path):
        sizes |= {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    for manifest in dropped:
        _remove(folder, snapshot_name(manifest.snapshot))
    gone = {path: size for path, size in sizes.items() if path not in named and is_own(path)}
    freed = sum(size for path, size in gone.items() if _remove(folder, path))
    return [manifest.snapshot for manifest in dropped], freed


def _remove(folder: Path | ObjectPath, name: str) -> bool:
    """Whether it is gone; what can't be removed is in nobody's way."""
    path = folder / name
    try:
        if isinstance(path, ObjectPath):
            path.store.delete(path.key)
        else:
            path.unlink()
    except (StoreError, OSError):
        return False
    return True
