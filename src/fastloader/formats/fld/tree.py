"""What an archive holds besides files: directories and links, in a table of its own that is sorted by path."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fastloader.errors import FormatError
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.fld.layout import NODE
from fastloader.formats.fld.spill import SpillFile

_CHUNK = 4 << 20
_ROWS = _CHUNK // NODE.size


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A directory or a link. The path of a directory ends with a slash: so it comes right before what is in it."""

    path: bytes
    target: bytes
    mtime: int
    mode: int
    kind: int

    @classmethod
    def of(cls, entry: Entry) -> Node:
        """An entry that is no file."""
        slash = b"/" if entry.kind is EntryKind.DIRECTORY else b""
        return cls(entry.path + slash, entry.target, entry.mtime, entry.mode, entry.kind)

    @property
    def is_sound(self) -> bool:
        """Whether it is of a known kind, and only the path of a directory ends with a slash."""
        return self.kind in _KINDS and (self.kind == EntryKind.DIRECTORY) == self.path.endswith(b"/")

    def entry(self) -> Entry:
        """The entry that was stored; one that can't have been is a ``FormatError``."""
        if not self.is_sound:
            raise FormatError(f"an entry of the archive is of no known kind ({self.kind})")
        return Entry(self.path.removesuffix(b"/"), EntryKind(self.kind), self.mode, self.mtime, 0, self.target)


_KINDS = (EntryKind.DIRECTORY, EntryKind.SYMLINK, EntryKind.HARDLINK)


class TreeBuilder:
    """Takes nodes in any order and gives the two tables, sorted. Those that come sorted take no memory."""

    def __init__(self, spills: SpillFile) -> None:
        self.count = 0
        self._rows = spills.column()
        self._bytes = spills.column()
        self._ascending = True
        self._last: Node | None = None

    def append(self, nodes: Sequence[Node]) -> None:
        """Add nodes."""
        if not nodes:
            return
        at = self._bytes.size
        rows, names = _packed(nodes, at)
        self._rows.append(rows)
        self._bytes.append(names)
        self.count += len(nodes)
        before = [*([] if self._last is None else [self._last.path]), *(node.path for node in nodes)]
        self._ascending = self._ascending and all(map(operator.lt, before, before[1:]))
        self._last = nodes[-1]

    def tables(self) -> tuple[Iterable[bytes], Iterable[bytes]]:
        """The rows and the bytes they point into."""
        if self._ascending:
            return self._rows.chunks(_CHUNK), self._bytes.chunks(_CHUNK)
        # The last of one path counts: an archive that is appended to may name a directory twice.
        nodes = list({node.path: node for node in self._read()}.values())
        nodes.sort(key=operator.attrgetter("path"))
        rows, names = _packed(nodes, 0)
        return [rows], [names]

    def _read(self) -> Iterator[Node]:
        for first in range(0, self.count, _ROWS):
            count = min(_ROWS, self.count - first)
            rows = self._rows.read(first * NODE.size, count * NODE.size)
            for at, path, target, mtime, mode, kind in NODE.iter_unpack(rows):
                names = self._bytes.read(at, path + target)
                yield Node(names[:path], names[path:], mtime, mode, kind)


def _packed(nodes: Sequence[Node], at: int) -> tuple[bytes, bytes]:
    rows, names = bytearray(), bytearray()
    for node in nodes:
        begin = at + len(names)
        rows += NODE.pack(begin, len(node.path), len(node.target), node.mtime, node.mode, node.kind)
        names += node.path + node.target
    return bytes(rows), bytes(names)
