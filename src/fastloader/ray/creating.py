"""Archives made by a cluster: the folder is gone through here, and every shard is a task."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastloader.archive.folders import FolderSource
from fastloader.archive.planning import FilesOfShard, plan_shards, write_shard
from fastloader.progress import Advance
from fastloader.ray.cluster import Event, Made, carried_out, connected, delivered
from fastloader.ray.places import Place, new_folder
from fastloader.stores import ObjectPath, locate
from fastloader.types import parse_size


@dataclass(frozen=True)
class Created:
    """How many files an archive holds, and their bytes."""

    num_files: int
    num_bytes: int


def create_archive(
    path: str | os.PathLike[str],
    source: FolderSource,
    *,
    shard_size: int | str,
    compression: str | None = None,
    address: str | None = None,
    at_once: int | None = None,
    advance: Advance = lambda count: None,
    storage_options: Mapping[str, Any] | None = None,
) -> Created:
    """Put a folder into an archive of shards, each made by a task of Ray: the same bytes as by one ``ArchiveWriter``.

    Workers read the folder, so it must be on a disk that they share. The archive may be there too, or in a store; where
    workers do not see it, shards are sent back. It appears when all shards are there, or not at all.
    """
    where = locate(path, storage_options)
    limit = parse_size(shard_size, "shard_size")
    if limit < 1:
        raise ValueError(f"shard_size={shard_size!r}: at least one byte")
    target = new_folder(where if isinstance(where, ObjectPath) else Path(os.path.realpath(where)))
    try:
        with connected(address):
            jobs = (
                (files.number, target.name(files.number), (files, compression))
                for files in plan_shards(source, limit)
            )  # fmt: skip
            done: dict[int, Made] = dict(carried_out(_task, jobs, target.place, advance, at_once))
        target.finish(tuple(done[number].shard for number in sorted(done)))
    finally:
        target.discard()
    counts = [made.facts for made in done.values()]
    return Created(sum(files for files, _ in counts), sum(size for _, size in counts))


def _task(place: Place, name: str, files: FilesOfShard, compression: str | None) -> Iterator[Event]:
    def make(path: Path, advance: Advance) -> tuple[int, int]:
        return write_shard(path, files, compression, 0, advance)

    yield from delivered(place, name, make)
