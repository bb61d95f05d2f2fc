"""The directories and links of an archive's file, read by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fastloader import kernels
from fastloader.formats.fld.file import FldFile
from fastloader.formats.fld.layout import NODE, Kind
from fastloader.formats.fld.tree import Node


@dataclass(frozen=True, slots=True)
class Nodes:
    """Rows of the two tables. Their order is that of their paths, so a position is a row."""

    rows: kernels.Table
    names: kernels.Table

    def __len__(self) -> int:
        return self.rows.rows

    def row(self, position: int) -> int:
        """The row at a position."""
        return position

    def path(self, position: int) -> bytes:
        """The path at a position; that of a directory ends with a slash."""
        begin, size, *_ = NODE.unpack(self.rows.row(position))
        return self.names.row(begin, size)

    def node(self, row: int) -> Node:
        """All that is stored of one."""
        begin, size, more, mtime, mode, kind = NODE.unpack(self.rows.row(row))
        names = self.names.row(begin, size + more)
        return Node(names[:size], names[size:], mtime, mode, kind)


def nodes_of(file: FldFile) -> Iterator[Node]:
    """All of a file, in order."""
    rows, names = file.table(Kind.NODES), file.table(Kind.NODE_BYTES)
    if rows is not None and names is not None:
        nodes = Nodes(rows, names)
        yield from map(nodes.node, range(len(nodes)))
