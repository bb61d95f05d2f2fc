"""Archives made of others: parts of them, several as one, other shards; entries taken out, their room given back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fastloader import kernels
from fastloader.archive.archive import Archive
from fastloader.archive.content import content_of
from fastloader.archive.encoding import DATA, FIELDS, IMAGE
from fastloader.archive.folders import FolderSink
from fastloader.archive.patterns import ALL, Choice
from fastloader.archive.tree import Row
from fastloader.archive.writer import Advance, ArchiveWriter, archive_at, silent
from fastloader.errors import ChecksumError, FormatError, KeyNotFoundError, StoreError
from fastloader.formats.entries import Entry, EntryExistsError, EntryKind, UnsafePathError, check_path
from fastloader.formats.fld import Chunk, Column, FldFile, Manifest, Node, Removed, Shard, is_sharded, shard_name
from fastloader.formats.fld.history import drop_snapshots
from fastloader.formats.fld.layout import EXTENT, NO_FIELD, Kind
from fastloader.stores import Directory
from fastloader.stores.local import locked, sync_directory
from fastloader.types import Buffer, key_text

Duplicates = Literal["refuse", "first", "last"]

COPIED_AT_ONCE = 1024
COPIED_BYTES = 16 << 20


def extract(
    archive: Archive, sink: FolderSink, choice: Choice = ALL, top: bytes = b"", advance: Advance = silent
) -> int:
    """Put what is chosen, or what lies below ``top``, into a folder; returns how many entries.

    A hard link whose file is not among it becomes a file.
    """
    count = 0
    here = archive.entry(top) if top else None
    entries = archive.entries(top) if here is None or here.kind is EntryKind.DIRECTORY else iter([here])
    for entry in entries:
        if entry.path not in choice:
            continue
        if entry.kind is EntryKind.HARDLINK and not (entry.target in choice and _is_below(entry.target, top)):
            content = archive.view(entry.path)
            entry = Entry(entry.path, EntryKind.FILE, entry.mode, entry.mtime, len(content), read=lambda c=content: c)  # type: ignore[misc]
        sink.add(entry)
        count += 1
        advance(1)
    return count


def _is_below(path: bytes, top: bytes) -> bool:
    return not top or path == top or path.startswith(top + b"/")


def copy_archives(
    archives: Sequence[Archive],
    writer: ArchiveWriter,
    choice: Choice = ALL,
    *,
    duplicates: Duplicates = "refuse",
    advance: Advance = silent,
) -> int:
    """What is chosen of several archives, in the order of paths. Content moves as it is stored, with its index.

    Where the file of a hard link is not among it, the first of its names becomes the file. Returns how many entries.
    """
    streams = [_numbered(number, _chosen(archive, choice)) for number, archive in enumerate(archives)]
    run, names = _Run(writer, advance), _Names(archives, choice, duplicates)
    count = 0
    for path, same in groupby(merge(*streams, key=itemgetter(0, 1)), itemgetter(0)):
        found = list(same)
        if len(found) > 1 and not path.endswith(b"/") and duplicates == "refuse":
            raise EntryExistsError(
                f"{key_text(path)!r} is in {archives[found[0][1]].path} and in {archives[found[1][1]].path}",
                hint="--duplicates first or last chooses one",
            )
        _, number, row = found[0 if duplicates == "first" and not path.endswith(b"/") else -1]
        names.add(run, number, row)
        count += 1
    run.flush()
    return count


class _Names:
    """Sees to it that every name keeps its content: a hard link leads to the file it led to, or becomes a file."""

    def __init__(self, archives: Sequence[Archive], choice: Choice, duplicates: Duplicates) -> None:
        self._archives, self._choice, self._duplicates = archives, choice, duplicates
        self._made: dict[tuple[int, bytes], bytes] = {}

    def add(self, run: _Run, number: int, row: Row) -> None:
        archive = self._archives[number]
        path, shard, is_node, at = row
        node = archive.tree.shards[shard].nodes.node(at) if is_node else None
        is_link = node is not None and node.kind == EntryKind.HARDLINK
        try:
            check_path(path.removesuffix(b"/"))
            if node is None or not is_link:
                run.add(archive, row)
                return
            check_path(node.target)
        except UnsafePathError as error:
            error.path = str(archive.path)
            raise
        file = archive.tree.linked(node.target)
        if file is None:
            raise FormatError(
                f"{key_text(path)!r} is a hard link to {key_text(node.target)!r}, which is no file in the archive",
                path=archive.path, hint="rm takes it out",
            )  # fmt: skip
        name = file[0] if self._is_copied(number, file[0]) else self._made.setdefault((number, file[0]), path)
        if name == path:
            run.add(archive, (path, *file[1:]))
        else:
            run.add_node(replace(node, target=name))

    def _is_copied(self, number: int, file: bytes) -> bool:
        """Whether a file of one of the archives is what will be at its path."""
        if file not in self._choice:
            return False
        rivals = {"first": range(number), "last": range(number + 1, len(self._archives))}.get(self._duplicates, ())
        return not any(
            kind is not EntryKind.DIRECTORY
            for rival in rivals
            for _, kind in self._archives[rival].tree.rows_of(file)
        )  # fmt: skip


def _numbered(number: int, rows: Iterator[Row]) -> Iterator[tuple[bytes, int, Row]]:
    return ((row[0], number, row) for row in rows)


def _chosen(archive: Archive, choice: Choice) -> Iterator[Row]:
    """Rows that are chosen, and before them the folders that lead to them."""
    waiting: list[Row] = []
    for row in archive.tree.below():
        path = row[0]
        while waiting and not path.startswith(waiting[-1][0]):
            waiting.pop()
        plain = path.removesuffix(b"/")
        if choice.excludes(plain):
            continue
        if choice.includes(plain):
            yield from waiting
            waiting.clear()
            yield row
        elif path.endswith(b"/"):
            waiting.append(row)


class _Run:
    """Rows of archives on their way to another, some at a time."""

    def __init__(self, writer: ArchiveWriter, advance: Advance) -> None:
        self._writer, self._advance = writer, advance
        self._rows: list[tuple[FldFile, bytes, int]] = []
        self._nodes: list[tuple[int, Node]] = []
        self._bytes = 0

    def add(self, archive: Archive, row: Row) -> None:
        path, number, is_node, at = row
        shard = archive.tree.shards[number]
        if is_node:
            self.add_node(shard.nodes.node(at))
            return
        if archive.dataset.is_remote:  # payloads are fetched one by one
            self.flush()
            entry = archive.tree.file_entry(path, number, at)
            self._writer.add(replace(entry, read=lambda: content_of(shard.file, at, path)))
            self._advance(1)
            return
        self._rows.append((shard.file, path, at))
        self._bytes += shard.file.data.size // max(1, shard.file.num_samples)
        if len(self._rows) >= COPIED_AT_ONCE or self._bytes >= COPIED_BYTES:
            self.flush()

    def add_node(self, node: Node) -> None:
        self._nodes.append((len(self._rows), node))

    def flush(self) -> None:
        if self._rows or self._nodes:
            self._writer.add_chunk(stored_chunk(self._rows, self._nodes))
            self._advance(len(self._rows))
        self._rows, self._nodes, self._bytes = [], [], 0


def stored_chunk(rows: Sequence[tuple[FldFile, bytes, int]], nodes: Sequence[tuple[int, Node]]) -> Chunk:
    """Files of archives as they are stored, checked: neither decompressed nor indexed again."""
    columns = []
    for number, field in enumerate(FIELDS.values()):
        metadata = np.zeros(len(rows), field.metadata_type)
        valid = np.ones(len(rows), np.bool_)
        payloads: list[Buffer] = []
        extents = np.zeros(len(rows), EXTENT)
        for i, (file, path, row) in enumerate(rows):
            valid[i] = not file.is_missing(number, row)
            if metadata.itemsize:
                metadata[i] = file.metadata_row(number, row, field.metadata_type)
            if number in (IMAGE, DATA):
                payloads.append(_stored(file, path, number, row, extents, i) if valid[i] else b"")
        has = slice(None) if number in (IMAGE, DATA) else slice(0)
        columns.append(Column(metadata, valid, payloads, extents["raw_size"][has].copy(), extents["codec"][has].copy()))
    return Chunk(len(rows), columns, [path for _, path, _ in rows], nodes)


def _stored(file: FldFile, path: bytes, field: int, row: int, extents: Any, i: int) -> memoryview:
    source = file.payloads(field)
    assert source is not None
    pointer, size, raw_size, crc, codec = source.extent(row)
    view = file.bytes[pointer : pointer + size].data
    computed = kernels.crc32c(view)
    if computed != crc:
        raise ChecksumError(
            f"{key_text(path)!r}: payload damaged", stored=crc, computed=computed, path=file.path,
            hint=f'run "fastloader verify {file.path}"',
        )  # fmt: skip
    extents["raw_size"][i], extents["codec"][i] = raw_size, codec
    return view


def remove(
    path: str | os.PathLike[str], choice: Choice | None, names: Iterable[bytes] = (), *, recursive: bool = False
) -> int:
    """Take entries out of an archive: those that are chosen and those named. Returns how many.

    Their bytes stay in the files until ``compact``. Folders are taken out with all that is in them, if ``recursive``.
    """
    archive = Archive.of(archive_at(Path(os.path.realpath(path))))
    rows = removable(archive, choice, names, recursive=recursive)
    _refuse_orphans(archive, rows)
    with ArchiveWriter(path, append=True, workers=0) as writer:
        writer.remove(ranges_of(rows))
    return len(rows)


def removable(
    archive: Archive, choice: Choice | None, names: Iterable[bytes] = (), *, recursive: bool = False
) -> list[Row]:
    """What ``remove`` takes out; nothing is an error."""
    found = {row[1:]: row for row in _named(archive, choice, names, recursive)}
    if not found:
        raise KeyNotFoundError("nothing fits", path=archive.path, hint=f'"fastloader find {archive.path}" lists all')
    return list(found.values())


def _named(archive: Archive, choice: Choice | None, names: Iterable[bytes], recursive: bool) -> Iterator[Row]:
    tree = archive.tree
    if choice is not None:
        yield from (row for row in tree.below() if row[0].removesuffix(b"/") in choice)
    for name in names:
        found = tree.rows_of(name)
        below = list(tree.below(name)) if not any(kind is EntryKind.FILE for _, kind in found) else []
        if not found and not below:
            raise KeyNotFoundError(f"no entry {key_text(name)!r}", path=archive.path)
        if below and not recursive:
            raise KeyNotFoundError(
                f"{key_text(name)!r} is a folder that is not empty", path=archive.path, hint="-r removes what is in it"
            )
        yield from ((name, one.shard, one.is_node, one.first) for one, _ in found)
        yield from below


def _refuse_orphans(archive: Archive, rows: Sequence[Row]) -> None:
    """A file that a hard link still needs can't go."""
    gone = {(shard, is_node, row) for _, shard, is_node, row in rows}
    files = {path for path, _, is_node, _ in rows if not is_node}
    for shard in archive.tree.shards:
        for at in range(len(shard.nodes)):
            if (shard.number, True, at) in gone or shard.is_removed(True, at):
                continue
            node = shard.nodes.node(at)
            if node.kind == EntryKind.HARDLINK and node.target in files:
                raise StoreError(
                    f"{key_text(node.target)!r} has another name, {key_text(node.path)!r}, which stays",
                    path=archive.path, hint="remove that too",
                )  # fmt: skip


def ranges_of(rows: Iterable[Row]) -> list[Removed]:
    """Rows as few ranges."""
    found: list[Removed] = []
    for shard, is_node, row in sorted(row[1:] for row in rows):
        last = found[-1] if found else None
        if last is not None and (last.shard, last.is_node, last.first + last.count) == (shard, is_node, row):
            found[-1] = last._replace(count=last.count + 1)
        else:
            found.append(Removed(shard, is_node, row, 1))
    return found


def compact(path: str | os.PathLike[str], *, advance: Advance = silent) -> int:
    """Give back the room of what was removed; returns the bytes. Only shards that hold some of it are written anew.

    Earlier snapshots go with what they held.
    """
    folder = Path(os.path.realpath(path))
    if not is_sharded(folder):
        archive_at(folder)  # a file is never changed, so it holds nothing that was removed
        return 0
    aside = Directory(folder.with_name(folder.name + ".compact"))
    try:
        with locked(folder):
            manifest = Manifest.load(folder)
            archive = Archive.of(archive_at(folder))
            touched = {one.shard for one in manifest.removed}
            if not touched:
                return 0
            shards, fresh = _compacted(archive, manifest, touched, aside.aside, folder, advance)
            for shard in fresh:
                os.rename(aside.aside / shard.path, folder / shard.path)
            summary = f"{len(touched):,} shards written anew; earlier snapshots are gone"
            manifest.next("compact", summary, shards=tuple(shards), removed=()).save(folder)
            sync_directory(folder)
            drop_snapshots(folder, 1)
        return sum(shard.size for shard in manifest.shards) - sum(shard.size for shard in shards)
    finally:
        aside.discard()


def _compacted(
    archive: Archive, manifest: Manifest, touched: set[int], aside: Path, folder: Path, advance: Advance
) -> tuple[list[Shard], list[Shard]]:
    """The shards as they will be, and those of them that are new."""
    free = (number for number in range(len(manifest.shards), 1 << 30) if not (folder / shard_name(number)).exists())
    shards, fresh = [], []
    for number, shard in enumerate(manifest.shards):
        if number not in touched:
            shards.append(shard)
            continue
        name = shard_name(next(free))
        with ArchiveWriter(aside / name) as writer:
            run = _Run(writer, advance)
            for row in merge(*archive.tree.shards[number].below(b"")):
                run.add(archive, row)
            run.flush()
        made = FldFile(aside / name)
        if made.num_samples or made.directory[Kind.NODES, NO_FIELD].size:
            fresh.append(Shard(name, made.num_samples, made.size, made.identity))
            shards.append(fresh[-1])
    if not shards:  # all of it was removed, and an archive has at least one shard
        fresh.append(_empty(aside, shard_name(next(free))))
        shards.append(fresh[-1])
    return shards, fresh


def _empty(aside: Path, name: str) -> Shard:
    with ArchiveWriter(aside / name):
        pass
    made = FldFile(aside / name)
    return Shard(name, 0, made.size, made.identity)
