"""Samples of foreign formats as elements of expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.dataset.base import Cursor, IterNode, MapNode, Place, Run, parted
from fastloader.dataset.blocks import Block
from fastloader.errors import FastLoaderError
from fastloader.formats.objects import digest_of
from fastloader.formats.records import Names, Records, Stream
from fastloader.types import Sample

TOGETHER = 64
"""Samples that are read together, so that what lies together is."""


@dataclass(frozen=True, eq=False)
class FromRecords(MapNode):
    """Samples with random access, as dictionaries."""

    records: Records
    fields: Names = None

    def label(self) -> str:
        """The format and how many samples; the files may have moved."""
        return f"open({self.records.format}, {len(self.records)} samples)"

    def origin(self, run: Run) -> str:
        """That of all files."""
        return digest_of(self.records.origins())

    def length(self, run: Run) -> int:
        """All samples."""
        return len(self.records)

    def get(self, run: Run, epoch: int, index: int) -> Sample:
        """One sample. Errors name file and place."""
        try:
            return self.records.read([index], self.fields)[0]
        except FastLoaderError as error:
            raise run.bad(error) from error

    def lazily(self, run: Run, epoch: int, positions: NDArray[np.int64]) -> list[Callable[[], Any]]:
        """Samples read a block at a time."""
        alone = partial(self.get, run, epoch)
        found: list[Callable[[], Any]] = []
        for first in range(0, len(positions), TOGETHER):
            some, later = (positions[at : at + TOGETHER].tolist() for at in (first, first + TOGETHER))
            found += [Block(partial(self._read, later), some, alone).next] * len(some)
        return found

    def expect(self, run: Run, epoch: int, positions: NDArray[np.int64]) -> None:
        """Tell the format."""
        self.records.expect(positions.tolist())

    def _read(self, later: list[int], rows: list[int]) -> list[Sample]:
        if later:
            self.records.expect(later)
        return self.records.read(rows, self.fields)


@dataclass(frozen=True, eq=False)
class FromStream(IterNode):
    """Samples one after the other, file by file."""

    stream: Stream
    fields: Names = None

    def label(self) -> str:
        """The format and how many files."""
        return f"open({self.stream.format}, {len(self.stream.paths)} files)"

    def origin(self, run: Run) -> str:
        """That of all files."""
        return digest_of(self.stream.origins())

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """The place is the file and how many of its samples were given: only that file is gone through again."""
        number, given = parted(place, (0, 0))
        return Streamed(self, number, given)


class Streamed(Cursor):
    """One file behind the other. An error is not skipped: what comes behind it in a file can't be found."""

    def __init__(self, node: FromStream, number: int, given: int) -> None:
        self._node, self._number, self._given = node, number, given
        self._file: Iterator[Sample] | None = None
        self.place = (number, given)

    def __next__(self) -> Sample:
        stream = self._node.stream
        while self._number < len(stream.paths):
            if self._file is None:
                self._file = stream.file(self._number, self._given, self._node.fields)
            for sample in self._file:
                self._given += 1
                self.place = (self._number, self._given)
                return sample
            self._file = None
            self._number, self._given = self._number + 1, 0
        raise StopIteration

    def close(self, wait: bool = True) -> None:
        """Let go of the file."""
        self._file = None
