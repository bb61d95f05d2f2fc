"""The snapshots of a folder of shards: each as the manifest it was, kept when the next one takes its place.

``manifest.json`` is the newest. Whoever replaces it first puts a copy of it into ``snapshots``, under its number. So a
snapshot is one file that never changes, the newest one is where it always was, and who is killed in between leaves a
copy of what is there anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fastloader.errors import FormatError, NotFoundError, StoreError
from fastloader.formats.fld.manifest import MANIFEST, Manifest
from fastloader.stores import ChangedError, ObjectPath, write_atomically
from fastloader.stores.copying import below

FOLDER = "snapshots"
_NAME = re.compile(r"(\d{8,})\.json")
NAMED = re.compile(r"(\d+)(-[0-9a-f]{8})?")


def snapshot_name(number: int) -> str:
    """Where a snapshot is kept, in the dataset's folder."""
    return f"{FOLDER}/{number:08d}.json"


def load_snapshot(folder: Path | ObjectPath, wanted: int | str) -> Manifest:
    """A snapshot by its number, or by what ``Manifest.id`` calls it."""
    match = NAMED.fullmatch(str(wanted))
    if match is None or isinstance(wanted, bool):
        raise ValueError(f'snapshot={wanted!r}: a number, or a name like "3-1f2e77aa"; "fastloader log" lists them')
    number = int(match[1])
    newest = Manifest.load(folder)
    found = newest if newest.snapshot == number else _kept(folder, number)
    if found is None or (match[2] and found.id != wanted):
        raise NotFoundError(
            f"has no snapshot {wanted}", path=folder, hint=f'"fastloader log {folder}" lists those there are'
        )
    return found


def _kept(folder: Path | ObjectPath, number: int) -> Manifest | None:
    path = folder / snapshot_name(number)
    try:
        data = path.read_bytes() if isinstance(path, Path) else bytes(path.store.read(path.key))
    except FileNotFoundError:
        return None
    manifest = Manifest.from_bytes(data, path)
    if manifest.snapshot != number:
        raise FormatError(f"is snapshot {manifest.snapshot}", path=path, hint="restore it from a copy")
    return manifest


def keep(folder: Path | ObjectPath, manifest: Manifest) -> None:
    """Have the snapshot kept, before another takes its place. Two who do so at once put the same bytes there."""
    path, data = folder / snapshot_name(manifest.snapshot), manifest.to_bytes()
    if isinstance(path, ObjectPath):
        path.store.put(path.key, data)
        return
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)


def kept_numbers(folder: Path | ObjectPath) -> list[int]:
    """The numbers of the snapshots that are kept besides the newest, ascending."""
    if isinstance(folder, Path):
        names = [path.name for path in (folder / FOLDER).glob("*.json")]
    else:
        names = [name for _, name in below(folder.store, (folder / FOLDER).key)]
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)


def history(folder: Path | ObjectPath) -> Iterator[Manifest]:
    """All snapshots there are, the newest first."""
    newest = Manifest.load(folder)
    yield newest
    for number in reversed(kept_numbers(folder)):
        # The copy of the newest is there while somebody replaces it, and one that is newer has replaced it since.
        if number < newest.snapshot and (found := _kept(folder, number)) is not None:
            yield found


def replace_newest(where: ObjectPath, after: Manifest, version: str | None, before: Manifest | None) -> None:
    """Make this the newest snapshot of a folder in a store, if the one there is still the one that was found."""
    if before is not None and after.change is not None:
        # A copy of one that is not the newest any more may be of one that was forgotten meanwhile.
        if where.store.stat((where / MANIFEST).key).version != version:
            raise changed(where)
        keep(where, before)
    try:
        where.store.put((where / MANIFEST).key, after.to_bytes(), if_absent=version is None, if_match=version)
    except ChangedError as error:
        # The answer to a request that had its effect may have been lost, and the request repeated.
        if bytes(where.store.read((where / MANIFEST).key)) != after.to_bytes():
            raise changed(where) from error


def changed(where: Path | ObjectPath) -> StoreError:
    """The error of who comes second."""
    return ChangedError(
        "was changed by another writer in the meantime; nothing of this was published", path=where, hint="do it again"
    )
