"""Which files of a folder go into which shard, known before one of them is read: so shards can be made apart.

The rule is the writer's own: a shard is full when the next file, by its size and what tables keep of it, would be too
much. So whoever makes the shards of a plan makes those that one ``ArchiveWriter`` makes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastloader.archive.encoding import ROW
from fastloader.archive.folders import FolderSource
from fastloader.archive.writer import Advance, ArchiveWriter, silent
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.file_content import Warn
from fastloader.formats.fld import Node


@dataclass(frozen=True, slots=True)
class FilesOfShard:
    """What one shard of an archive will hold: files by name, and nodes with how many of the files come before each."""

    number: int
    root: bytes
    names: tuple[bytes, ...]
    nodes: tuple[tuple[int, Node], ...]
    warn: Warn | None = None

    def found(self) -> Iterator[bytes | Entry]:
        """As a folder lists them."""
        at = 0
        for before, node in self.nodes:
            yield from self.names[at:before]
            at = before
            yield node.entry()
        yield from self.names[at:]


def plan_shards(source: FolderSource, shard_size: int) -> Iterator[FilesOfShard]:
    """The shards of an archive of this folder, one after the other: at least one. Each file is looked at, none read."""
    number = weight = 0
    names: list[bytes] = []
    nodes: list[tuple[int, Node]] = []
    waiting: list[Node] = []  # they go where the next file goes
    root = os.path.abspath(source.root)
    for entry in source.entries():
        if entry.kind is not EntryKind.FILE:
            waiting.append(Node.of(entry))
            continue
        if names and weight + entry.size + ROW > shard_size:
            yield FilesOfShard(number, root, tuple(names), tuple(nodes))
            number, weight, names, nodes = number + 1, 0, [], []
        nodes += [(len(names), node) for node in waiting]
        waiting.clear()
        names.append(entry.path)
        weight += entry.size + ROW
    nodes += [(len(names), node) for node in waiting]
    yield FilesOfShard(number, root, tuple(names), tuple(nodes))


def write_shard(
    path: Path, files: FilesOfShard, compression: str | None, workers: int | None, advance: Advance = silent
) -> tuple[int, int]:
    """Make the file of a shard; how many files it holds, and their bytes."""
    with ArchiveWriter(path, compression=compression, workers=workers) as writer:
        writer.add_folder(files, advance)
    return writer.num_files, writer.num_bytes
