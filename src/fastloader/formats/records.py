"""What every foreign format gives: samples as dictionaries, with random access or one after the other.

Descriptions of files are all that is held. They pickle, and what is open or kept in memory is made anew where needed.
"""

from __future__ import annotations

import csv
import os
import zlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from threading import Lock
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError, FormatError, KeyNotFoundError
from fastloader.fields import Field
from fastloader.formats.objects import Files, Object, origin_of
from fastloader.kernels import Failure
from fastloader.types import Sample

T = TypeVar("T")
Names = tuple[str, ...] | None
"""The fields that are wanted; ``None``: all there are."""

KEPT_BYTES = 256 << 20
"""Memory for decoded pieces, such as row groups, of all that a process has open of one dataset."""


class Source(ABC):
    """Samples of one format in one or more files."""

    format: ClassVar[str]
    """What people call the format."""
    classes: tuple[str, ...] | None = None
    """Names of the classes that labels count, where folders give them."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.paths = files.paths

    @property
    @abstractmethod
    def names(self) -> Names:
        """The fields every sample has; ``None`` where each sample has its own."""

    def origins(self) -> list[str]:
        """What tells the samples from others that may be there another day: of each file, and how they are read."""
        return self.files.places.origins(self.paths)

    def stored_as(self, names: Sequence[str]) -> dict[str, Field]:
        """Fields of a ``.fld`` dataset for some names, where the format tells them; others are told from samples."""
        return {}

    def chosen(self, fields: Sequence[str] | None) -> Names:
        """A choice of fields, checked against what there is."""
        if fields is None:
            return None
        wanted = (fields,) if isinstance(fields, str) else tuple(fields)
        known = self.names
        unknown = [name for name in wanted if known is not None and name not in known]
        if unknown:
            raise KeyNotFoundError(
                f"fields: unknown {', '.join(map(repr, unknown))}; there are {', '.join(known or ())}",
                path=self.paths[0],
            )
        return wanted


class Records(Source):
    """Samples with random access."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._starts: NDArray[np.int64] | None = None
        self._shared: list[int] | None = None
        self._sources: Opened[Object] = Opened()
        self._open: Opened[Any] = Opened()

    @abstractmethod
    def begin(self, number: int) -> Any:
        """What is known of the ``number``-th file before its samples are read: its tables, its index."""

    @abstractmethod
    def count(self, file: Any) -> int:
        """Samples of a file, told from what ``begin`` found."""

    @abstractmethod
    def samples(self, number: int, file: Any, rows: Sequence[int], names: Names) -> list[Sample]:
        """Samples of the ``number``-th file."""

    def file(self, number: int) -> Any:
        """What ``begin`` found, kept."""
        try:
            return self._open.get(number, lambda: self.begin(number))
        except StopIteration as error:
            raise stopped(self.paths[number]) from error

    def source(self, number: int) -> Object:
        """The object, which is not to change from now on."""
        return self._sources.get(number, lambda: self.files[number])

    def first_filled(self) -> int:
        """The number of the first file that is not empty, which tells what all are like; 0 where all are."""
        return next((number for number in range(len(self.paths)) if self.source(number).size), 0)

    def origins(self) -> list[str]:
        """Of the objects that were opened, which are those that are read."""
        numbers = range(len(self.paths))
        return self.files.each(lambda number: origin_of(self.paths[number], self.source(number).identity), numbers)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The number of the first sample of each file, and behind them that of all samples."""
        if self._starts is None:
            counts = self.files.each(lambda number: self.count(self.file(number)), range(len(self.paths)))
            self._starts = np.cumsum([0, *counts], dtype=np.int64)
        return self._starts

    def __len__(self) -> int:
        return int(self.starts[-1])

    def shared_bytes(self) -> list[int]:
        """Sizes of the files that samples are parts of: in random order each is read from again and again."""
        if self._shared is None:
            self._shared = self.files.each(lambda number: self.source(number).size, range(len(self.paths)))
        return self._shared

    def expect(self, rows: Sequence[int]) -> None:
        """These are read after the ones that are read next; some formats ask for them then."""

    def read(self, rows: Sequence[int], names: Names = None) -> list[Sample]:
        """Samples by number, in the order asked for. An error names file and place."""
        starts = self.starts
        if len(self.paths) == 1:
            return self._of_file(0, rows, names)
        mine: dict[int, list[int]] = {}
        for at, number in enumerate((np.searchsorted(starts, rows, "right") - 1).tolist()):
            mine.setdefault(number, []).append(at)

        def read(number: int) -> list[Sample]:
            return self._of_file(number, [int(rows[at] - starts[number]) for at in mine[number]], names)

        found: list[Sample] = [{}] * len(rows)
        for places, samples in zip(mine.values(), self.files.each(read, list(mine)), strict=True):
            for at, sample in zip(places, samples, strict=True):
                found[at] = sample
        return found

    def _of_file(self, number: int, rows: Sequence[int], names: Names) -> list[Sample]:
        try:
            try:
                found = self.samples(number, self.file(number), rows, names)
            except StopIteration as error:
                raise stopped(self.paths[number]) from error
            if len(found) != len(rows):
                raise FormatError(f"{len(found)} samples were read where there should be {len(rows)}")
            return found
        except FastLoaderError as error:
            if error.sample is None and len(rows) == 1:
                error.sample = int(self.starts[number] + rows[0])
            error.path = error.path or self.paths[number]
            raise


class Columns(Records):
    """Files of columns, which have names and all as many rows; ``wanted`` are those of interest."""

    def __init__(self, files: Files, wanted: Names = None) -> None:
        super().__init__(files)
        self._wanted = wanted
        self._kept = Kept()
        self._names = tuple(self.file(0))

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the first file."""
        return self._names


class Stream(Source):
    """Samples that come one after the other, since nothing tells where in a file each begins."""

    @abstractmethod
    def samples(self, source: Object, start: int, names: Names) -> Iterator[Sample]:
        """The samples of a file from the ``start``-th on."""

    def file(self, number: int, start: int, names: Names) -> Iterator[Sample]:
        """The same, by number; errors name the file."""
        place = start
        try:
            for sample in self.samples(self.files[number], start, names):
                yield sample
                place += 1
        except FastLoaderError as error:
            error.path = error.path or self.paths[number]
            raise
        except (EOFError, OSError, ValueError, csv.Error, zlib.error) as error:
            said = error.args[1] if isinstance(error, Failure) else error
            raise FormatError(f"record {place}: {said}", path=self.paths[number]) from error


def stopped(path: str) -> FormatError:
    """Instead of a ``StopIteration`` from within, which whoever iterates would take for the end of the samples."""
    return FormatError("its reader stopped where there should be more", path=path)


class Opened(Generic[T]):
    """Things made once a process. A forked child makes its own: what libraries hold open is not to be shared."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._made: dict[Hashable, T] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives. Two threads may both make it; one of theirs is kept."""
        if self._process != os.getpid():
            self._made, self._process = {}, os.getpid()
        if key not in self._made:
            return self._made.setdefault(key, make())
        return self._made[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class Kept:
    """Decoded pieces, the latest used, up to ``KEPT_BYTES``."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._pieces: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """A piece; ``make`` gives it and its size in bytes. Threads that want the same one wait for the first."""
        if self._process != os.getpid():  # the parent's lock may be held by a thread that is not here
            self._clear()
        with self._lock:
            if key not in self._pieces:
                self._pieces[key] = made = make()
                self._bytes += made[1]
                while self._bytes > KEPT_BYTES and len(self._pieces) > 1:
                    self._bytes -= self._pieces.popitem(last=False)[1][1]
            self._pieces.move_to_end(key)
            return self._pieces[key][0]  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, ()


def picked(sample: Sample, names: Names) -> Sample:
    """The wanted fields of a sample that has its own; what it lacks is missing."""
    return sample if names is None else {name: sample.get(name) for name in names}


def runs(rows: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Sorted rows as runs of neighbours: the first of each and the one behind its last."""
    if len(rows):
        ends = np.flatnonzero(np.diff(rows) > 1)
        firsts = rows[np.concatenate([[0], ends + 1])].tolist()
        lasts = rows[np.concatenate([ends, [len(rows) - 1]])].tolist()
        yield from ((first, last + 1) for first, last in zip(firsts, lasts, strict=True))
