"""Reads what a script planned: local files past or through the page cache, objects from their stores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import NotFoundError, StoreError
from fastloader.loader.fetching import Fetcher
from fastloader.loader.reading import Io, Reading, check_io
from fastloader.lua.script import Planned
from fastloader.stores import MappedFile, ObjectPath, RemoteFile
from fastloader.stores.opening import locate
from fastloader.types import byte_view

MEMORY = 32 << 20
LEAST = 4 << 20
OVERHEAD = 128
"""Bytes that a row, and an entry, count for besides their content: those of empty ones take memory, too."""


@dataclass(frozen=True)
class HowToRead:
    """What a loader was told of reading."""

    io: Io = "auto"
    memory: int = MEMORY
    storage_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_io(self.io)
        if self.memory < LEAST:
            raise ValueError(f"memory_limit={self.memory}: at least {LEAST} bytes")


class Asked:
    """Rows whose bytes are on their way."""

    def __init__(self, reader: PlanReader, planned: Planned) -> None:
        self.planned = planned
        entries = planned.entries
        self.size = int(entries[:, 2].sum()) + OVERHEAD * (len(entries) + len(planned.counts))
        self._reader = reader
        self._parts = reader.submit(entries)

    def wait(self) -> EntryBytes:
        """The bytes of all their entries, once they are there."""
        ranges = {where: reads.wait(ticket) for where, (reads, ticket) in self._parts.items()}
        self._parts = {}
        return EntryBytes(self._reader, self.planned, ranges)

    def forget(self) -> None:
        """Nobody will wait for them."""
        for reads, ticket in self._parts.values():
            reads.forget(ticket)
        self._parts = {}


class EntryBytes:
    """Bytes of entries by number: literals, and ranges of files and objects."""

    __slots__ = ("_entries", "_literals", "_places", "_ranges", "failed")

    def __init__(self, reader: PlanReader, planned: Planned, ranges: dict[bool, kernels.PlannedRanges]) -> None:
        self._entries = planned.entries
        self._literals = planned.literals
        self._ranges = ranges
        remote = reader.remote_of(planned.entries[:, 0])
        self._places = _places(planned.entries, remote)
        self.failed: dict[int, Exception] = {}
        for where, some in ranges.items():
            for place, what in some.failed():
                mine = np.flatnonzero((remote == where) & (planned.entries[:, 0] >= 0))[place]
                file, offset, size, _ = planned.entries[mine].tolist()
                self.failed[int(mine)] = StoreError(
                    f"bytes {offset} to {offset + size}: {what}", path=reader.path(file)
                )

    def __call__(self, entry: int) -> memoryview:
        where, place = self._places[entry]
        if where is None:
            return memoryview(self._literals[place])
        return byte_view(self._ranges[where].view(place))


def _places(entries: NDArray[np.int64], remote: NDArray[np.bool_]) -> list[tuple[bool | None, int]]:
    """For each entry, who has its bytes (``None``: it is a literal) and by which number."""
    counts = {False: 0, True: 0}
    places: list[tuple[bool | None, int]] = []
    for file, offset, far in zip(entries[:, 0].tolist(), entries[:, 1].tolist(), remote.tolist(), strict=True):
        if file < 0:
            places.append((None, offset))
        else:
            places.append((far, counts[far]))
            counts[far] += 1
    return places


class PlanReader:
    """The files that a script has open, and the reads of what it planned."""

    def __init__(self, how: HowToRead) -> None:
        self._how = how
        self._reads: dict[bool, kernels.PlannedReads] = {}
        self._fetcher: Fetcher | None = None
        self._paths: list[str] = []
        # Of each file its number among those of its kind, and whether it is remote. There may be one a row: what is
        # asked of them must not take longer the more there are.
        self._numbers = np.zeros(64, np.uint64)
        self._is_remote = np.zeros(64, np.bool_)

    def open(self, path: str) -> tuple[int, int]:
        """Its number among all, and its size."""
        where = locate(path, self._how.storage_options if "://" in path else None)
        try:
            file = RemoteFile(where, tail=lambda head, size: 0) if isinstance(where, ObjectPath) else MappedFile(where)
        except FileNotFoundError as error:
            raise NotFoundError("there is no such file", path=path, hint="check the path the script opens") from error
        remote = isinstance(file, RemoteFile)
        number = self._reads_of(remote).add_file(file.bytes, (os.fspath(path), *file.inode))
        if isinstance(file, RemoteFile):
            assert self._fetcher is not None
            self._fetcher.add(number, file)
        mine = len(self._paths)
        if mine == len(self._numbers):
            self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
            self._is_remote = np.concatenate([self._is_remote, np.zeros_like(self._is_remote)])
        self._numbers[mine], self._is_remote[mine] = number, remote
        self._paths.append(path)
        return mine, file.size

    def close(self, number: int) -> None:
        """Nothing more is planned of it."""
        self._reads[bool(self._is_remote[number])].drop_file(int(self._numbers[number]))

    def path(self, number: int) -> str:
        """What the script calls the file."""
        return self._paths[number]

    def remote_of(self, files: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these files are objects in a store; literals are not."""
        if not self._reads.get(True):
            return np.zeros(len(files), np.bool_)
        return np.asarray(self._is_remote[files] & (files >= 0))

    def submit(self, entries: NDArray[np.int64]) -> dict[bool, tuple[kernels.PlannedReads, int]]:
        """Begin to read; what was begun by whom, as tickets."""
        remote = self.remote_of(entries[:, 0])
        parts = {}
        for where, reads in self._reads.items():
            mine = entries[(remote == where) & (entries[:, 0] >= 0)]
            ranges = np.empty((len(mine), 3), np.uint64)
            ranges[:, 0] = self._numbers[mine[:, 0]]
            ranges[:, 1:] = mine[:, 1:3]
            if len(ranges):
                parts[where] = (reads, reads.submit(ranges))
        return parts

    def end(self) -> None:
        """No more is read. What was given out stays."""
        if self._fetcher is not None:
            self._fetcher.stop()

    def _reads_of(self, remote: bool) -> kernels.PlannedReads:
        if remote not in self._reads:
            mode = "remote" if remote else "automatic" if self._how.io == "auto" else self._how.io
            made = self._reads[remote] = kernels.PlannedReads(Reading(mode, self._how.memory).engine_options())
            if remote:
                self._fetcher = Fetcher(made, adapt=False)
                self._fetcher.start()
        return self._reads[remote]
