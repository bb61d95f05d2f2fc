"""The paths of an archive as a tree, by binary search in sorted tables: a folder costs no more than what is in it."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Protocol

from fastloader import kernels
from fastloader.archive.encoding import MODE, MTIME, SIZE
from fastloader.errors import FormatError
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.extractable import LINKS
from fastloader.formats.fld import Dataset, FldFile, Removed, explain
from fastloader.formats.fld.layout import NO_FIELD, Kind
from fastloader.formats.fld.nodes import Nodes
from fastloader.types import key_text

Ranges = tuple[tuple[int, int], ...]
Row = tuple[bytes, int, bool, int]
"""A path as it is sorted (that of a folder ends with a slash), the shard, whether it is a node, and the row."""

_AFTER_SLASH = b"0"
"""The byte behind a slash: with it in place of a slash, a path is behind all that lies in a folder."""


class Sorted(Protocol):
    """Paths in ascending order."""

    def __len__(self) -> int: ...

    def path(self, position: int) -> bytes:
        """The path at a position."""

    def row(self, position: int) -> int:
        """Its row of the table."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a shard. Objects in a store are asked for all paths only when some are listed."""

    file: FldFile
    order: kernels.Table | None

    def __len__(self) -> int:
        return self.file.num_samples

    def row(self, position: int) -> int:
        if self.order is None:
            return position
        row = int.from_bytes(self.order.row(position), "little")
        if row >= self.file.num_samples:
            raise FormatError("the order of its paths names a file that is not there")
        return row

    def path(self, position: int) -> bytes:
        keys = self.file.keys()
        assert keys is not None
        return keys.key(self.row(position))


def _search(paths: Sorted, path: bytes, low: int = 0) -> int:
    """The first position whose path is not before this one."""
    high = len(paths)
    while low < high:
        middle = (low + high) // 2
        if paths.path(middle) < path:
            low = middle + 1
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class _Shard:
    """One shard: two sorted lists of paths, and what is removed of each."""

    number: int
    file: FldFile
    files: _Files
    nodes: Nodes
    removed: tuple[Ranges, Ranges]

    def is_removed(self, is_node: bool, row: int) -> bool:
        ranges = self.removed[is_node]
        at = bisect_right(ranges, row, key=itemgetter(0)) - 1
        return at >= 0 and row < ranges[at][1]

    def lists(self) -> tuple[tuple[bool, Sorted], ...]:
        return (False, self.files), (True, self.nodes)

    def below(self, prefix: bytes) -> Iterator[Iterator[Row]]:
        """All that lies below a path, which ends with a slash or is empty."""
        for is_node, paths in self.lists():
            if len(paths):
                yield self._below(is_node, paths, prefix)

    def _below(self, is_node: bool, paths: Sorted, prefix: bytes) -> Iterator[Row]:
        for position in range(_search(paths, prefix) if prefix else 0, len(paths)):
            path, row = paths.path(position), paths.row(position)
            if not path.startswith(prefix):
                return
            if path != prefix and not self.is_removed(is_node, row):
                yield path, self.number, is_node, row

    def children(self, prefix: bytes) -> Iterator[Iterator[Row]]:
        """What lies right below; a folder that only something in it tells of has the row -1."""
        for is_node, paths in self.lists():
            if len(paths):
                yield self._children(is_node, paths, prefix)

    def _children(self, is_node: bool, paths: Sorted, prefix: bytes) -> Iterator[Row]:
        position = _search(paths, prefix) if prefix else 0
        while position < len(paths):
            path, row = paths.path(position), paths.row(position)
            if not path.startswith(prefix):
                return
            position += 1
            if path == prefix or self.is_removed(is_node, row):
                continue
            slash = path.find(b"/", len(prefix))
            if slash == len(prefix):  # or going down would never end
                raise self.file.broken(f"holds the path {key_text(path)!r}, with an empty name")
            if slash < 0:
                yield path, self.number, is_node, row
                continue
            yield path[: slash + 1], self.number, is_node, row if slash == len(path) - 1 else -1
            position = _search(paths, path[:slash] + _AFTER_SLASH, position)

    def find_node(self, path: bytes) -> int | None:
        position = _search(self.nodes, path)
        if position < len(self.nodes) and self.nodes.path(position) == path and not self.is_removed(True, position):
            return position
        return None


class Tree:
    """All paths of an archive. Holds nothing but the tables, so it may be used from many threads."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self.shards = [self._shard(number) for number in range(len(dataset.shards))]

    def _shard(self, number: int) -> _Shard:
        file = self._dataset.file(number)
        try:
            order = file.table(Kind.KEY_ORDER)
            rows, names = file.table(Kind.NODES), file.table(Kind.NODE_BYTES)
        except kernels.Failure as failure:
            raise explain(failure, file.path) from failure
        if order is None or rows is None or names is None:
            raise file.broken("is a dataset and no archive", hint='"fastloader create" makes archives')
        removed = self._removed(number)
        has_order = file.directory[Kind.KEY_ORDER, NO_FIELD].size > 0
        return _Shard(number, file, _Files(file, order if has_order else None), Nodes(rows, names), removed)

    def _removed(self, number: int) -> tuple[Ranges, Ranges]:
        mine = [one for one in self._dataset.removed if one.shard == number]
        files, nodes = (
            tuple((one.first, one.first + one.count) for one in mine if one.is_node == is_node)
            for is_node in (False, True)
        )
        return files, nodes

    @property
    def num_files(self) -> int:
        """Files that are not removed."""
        return self._dataset.num_samples

    def rows_of(self, path: bytes) -> list[tuple[Removed, EntryKind]]:
        """The rows that hold a path, file, folder or link, as what one would say to remove them."""
        found = []
        for shard in self.shards:
            row = shard.file.find(path)
            if row is not None and not shard.is_removed(False, row):
                found.append((Removed(shard.number, False, row, 1), EntryKind.FILE))
            for name in (path, path + b"/"):
                at = shard.find_node(name)
                if at is not None:
                    found.append((Removed(shard.number, True, at, 1), shard.nodes.node(at).entry().kind))
        return found

    def find(self, path: bytes) -> Entry | None:
        """The entry at a path; a folder too that only what lies in it tells of."""
        if not path:
            return Entry(b"", EntryKind.DIRECTORY, 0o755)
        for shard in self.shards:
            row = shard.file.find(path)
            if row is not None and not shard.is_removed(False, row):
                return self.file_entry(path, shard.number, row)
        for name in (path, path + b"/"):
            for shard in reversed(self.shards):
                at = shard.find_node(name)
                if at is not None:
                    return shard.nodes.node(at).entry()
        implied = next(self._merged(path + b"/", children=True), None)
        return None if implied is None else Entry(path, EntryKind.DIRECTORY, 0o755)

    def linked(self, target: bytes) -> Row | None:
        """The file that a hard link to ``target`` is a name of, by way of other hard links too; ``None`` if none is."""
        for _ in range(LINKS):
            found = self.rows_of(target)
            for row, kind in found:
                if kind is EntryKind.FILE:
                    return target, row.shard, False, row.first
            links = [row for row, kind in found if kind is EntryKind.HARDLINK]
            if not links:
                return None
            target = self.shards[links[-1].shard].nodes.node(links[-1].first).target
        return None

    def below(self, folder: bytes = b"") -> Iterator[Row]:
        """Everything below a folder, in the order of paths; folders that were never stored are not among it."""
        for _, same in groupby(self._merged(folder + b"/" if folder else b"", children=False), itemgetter(0)):
            *_, last = same
            yield last

    def children(self, folder: bytes = b"") -> Iterator[Row]:
        """What lies right in a folder, in the order of paths; a folder that was never stored has the row -1."""
        for _, same in groupby(self._merged(folder + b"/" if folder else b"", children=True), itemgetter(0)):
            yield max(same, key=lambda row: (row[3] >= 0, row[1]))

    def _merged(self, prefix: bytes, *, children: bool) -> Iterator[Row]:
        try:
            streams = [
                one for shard in self.shards for one in (shard.children(prefix) if children else shard.below(prefix))
            ]
            yield from streams[0] if len(streams) == 1 else heapq.merge(*streams)
        except kernels.Failure as failure:
            raise explain(failure, self._dataset.path) from failure

    def entry(self, row: Row) -> Entry:
        """The entry of a row; its content is left to the archive."""
        path, number, is_node, at = row
        if at < 0:
            return Entry(path.removesuffix(b"/"), EntryKind.DIRECTORY, 0o755)
        return self.shards[number].nodes.node(at).entry() if is_node else self.file_entry(path, number, at)

    def file_entry(self, path: bytes, number: int, row: int) -> Entry:
        """What is known of a file."""
        file = self.shards[number].file
        mode, mtime, size = (_number(file, field, row) for field in (MODE, MTIME, SIZE))
        return Entry(path, EntryKind.FILE, mode & 0o7777, mtime, max(size, 0))


def _number(file: FldFile, field: int, row: int) -> int:
    table = file.table(Kind.METADATA, field, file.alone(row))
    assert table is not None
    try:
        return int.from_bytes(table.row(row), "little", signed=True)
    except kernels.Failure as failure:
        raise explain(failure, file.path, row, file.descriptors[field].name) from failure
