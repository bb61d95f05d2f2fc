"""Where elements come from: readers, anything with a length and random access, anything that can be iterated over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import GeneratorType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.dataset.base import Cursor, IterNode, MapNode, Place, Run, blamed, name_of, position
from fastloader.dataset.blocks import Blocks
from fastloader.dataset.once import Again
from fastloader.errors import FastLoaderError
from fastloader.reader import DatasetReader


@dataclass(frozen=True, eq=False)
class FromReader(MapNode):
    """The samples of a reader, as dictionaries; ``fields`` says which of their values."""

    reader: DatasetReader
    fields: tuple[str, ...] | None = None
    _blocks: Again[Blocks] = field(default_factory=Again, init=False, repr=False)

    def label(self) -> str:
        """How many samples; the file may have moved. One that was changed has other samples in each snapshot."""
        manifest = getattr(self.reader.dataset, "manifest", None)
        number = 1 if manifest is None or manifest.change is None else manifest.snapshot
        return f"open({len(self.reader)} samples{f' of snapshot {number}' if number > 1 else ''})"

    def origin(self, run: Run) -> str:
        """That of the files."""
        return self.reader.dataset.origin

    def length(self, run: Run) -> int:
        """All samples."""
        return len(self.reader)

    def get(self, run: Run, epoch: int, index: int) -> Any:
        """One sample. The reader's errors name file, sample and field."""
        try:
            return self.reader.read_sample(index, self.fields)
        except FastLoaderError as error:
            raise run.bad(error) from error

    def lazily(self, run: Run, epoch: int, positions: NDArray[np.int64]) -> list[Callable[[], Any]]:
        """Samples read in blocks."""
        blocks = self._blocks.get(None, lambda: Blocks(self.reader, self.fields))
        return blocks.lazily(positions, partial(self.get, run, epoch))


@dataclass(frozen=True, eq=False)
class FromSequence(MapNode):
    """The elements of a list, an array, or any object with ``__len__`` and ``__getitem__``."""

    source: Any

    def label(self) -> str:
        """How many."""
        return f"sequence({len(self.source)})"

    def length(self, run: Run) -> int:
        """What it says."""
        return len(self.source)

    def get(self, run: Run, epoch: int, index: int) -> Any:
        """One element."""
        return run.call("from_sequence", index, self.source.__getitem__, index)


@dataclass(frozen=True, eq=False)
class FromRange(MapNode):
    """Whole numbers."""

    numbers: range

    def label(self) -> str:
        """The range."""
        return f"range({self.numbers.start}, {self.numbers.stop}, {self.numbers.step})"

    def length(self, run: Run) -> int:
        """How many."""
        return len(self.numbers)

    def get(self, run: Run, epoch: int, index: int) -> int:
        """One number."""
        return self.numbers[index]


@dataclass(frozen=True, eq=False)
class FromIterable(IterNode):
    """What an iterable gives; ``make`` begins it anew for each pass."""

    make: Callable[[], Iterable[Any]]
    name: str

    def label(self) -> str:
        """How it was made."""
        return self.name

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """A pass; what was given before is gone through again."""
        return Gone(self.make, position(place), lambda number, error: blamed(self.name, number, error))


class Restart:
    """Iterates over an object from the start; picklable, as a lambda is not."""

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source

    def __call__(self) -> Iterable[Any]:
        """The object itself."""
        return self.source


class Restarted:
    """Calls a function for a new iterator; picklable where the function is."""

    def __init__(self, function: Callable[..., Iterable[Any]], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments

    def __call__(self) -> Iterable[Any]:
        """What the function gives."""
        found = self.function(*self.arguments)
        if not hasattr(found, "__iter__"):
            raise TypeError(f"{name_of(self.function)} gave a {type(found).__name__}, which can't be iterated over")
        return found


class Gone(Cursor):
    """An iterable gone through, from the element at ``start`` on. Its errors always come through: it is over then."""

    def __init__(
        self, make: Callable[[], Iterable[Any]], start: int, blame: Callable[[int, Exception], Exception]
    ) -> None:
        self.place = start
        self._make = make
        self._blame = blame
        self._iterator: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._iterator is None:
            try:
                self._iterator = self._begun()
            except MemoryError:
                raise
            except Exception as error:  # StopIteration too: there was not even a beginning
                raise self._blame(self.place, error) from error
        try:
            value = next(self._iterator)
        except (StopIteration, MemoryError):
            raise
        except Exception as error:
            raise self._blame(self.place, error) from error
        self.place += 1
        return value

    def _begun(self) -> Iterator[Any]:
        iterator = iter(self._make())
        gone = sum(1 for _ in islice(iterator, self.place))
        if gone < self.place:
            raise ValueError(f"it was at element {self.place} when the state was saved, and now has {gone}")
        return iterator

    def close(self, wait: bool = True) -> None:
        """Let a generator clean up now."""
        if isinstance(self._iterator, GeneratorType):
            self._iterator.close()
