"""Snapshots that nobody needs any more, and the files that only they name."""

from __future__ import annotations

import time
from pathlib import Path

from fastloader.errors import StoreError
from fastloader.formats.fld.manifest import Manifest, is_own
from fastloader.formats.fld.snapshots import history, snapshot_name
from fastloader.stores import ObjectPath


def drop_snapshots(
    folder: Path | ObjectPath, keep: int, unnamed_for: float | None = None
) -> tuple[list[int], int]:  # fmt: skip
    """Forget all snapshots but the newest ``keep``, and remove files that none of these names.

    Returns the numbers of those forgotten and how many bytes were given back. Who calls it for a local folder holds its
    lock. A snapshot is forgotten before its files go: nobody finds one whose files are not there. Of files, only those
    are removed that writers made for this folder; on a local disk also what a killed one left. In a store such objects
    look like those of a writer that is not done yet: they are removed if they are ``unnamed_for`` seconds old.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: the newest snapshot stays")
    known = list(history(folder))
    kept, dropped = known[:keep], known[keep:]
    named = {one.path for manifest in kept for one in manifest.files}
    sizes = {one.path: one.size for manifest in dropped for one in manifest.files}
    if isinstance(folder, Path):
        sizes |= {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    elif unnamed_for is not None:
        sizes |= _left_behind(folder, unnamed_for)
        named |= {one.path for one in Manifest.load(folder).files}  # what was published while the list was made
    for manifest in dropped:
        _remove(folder, snapshot_name(manifest.snapshot))
    gone = {path: size for path, size in sizes.items() if path not in named and is_own(path)}
    freed = sum(size for path, size in gone.items() if _remove(folder, path))
    return [manifest.snapshot for manifest in dropped], freed


def _left_behind(folder: ObjectPath, seconds: float) -> dict[str, int]:
    """Objects of a folder, with their sizes, that were written at least so long ago."""
    begin, latest = f"{folder.key}/" if folder.key else "", time.time() - seconds
    listed = (one for one in folder.store.list(folder.key) if one.key.startswith(begin))
    return {one.key.removeprefix(begin): one.size for one in listed if one.mtime is not None and one.mtime <= latest}


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
