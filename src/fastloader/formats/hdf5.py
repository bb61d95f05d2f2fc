"""HDF5 through h5py: every dataset with a first axis is a field, and its rows are samples, read chunk by chunk."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from threading import Lock
from typing import Any, TypeVar

from fastloader.errors import FastLoaderError, FormatError
from fastloader.formats.arrays import check_lengths
from fastloader.formats.extras import required
from fastloader.formats.objects import LocalObject, Object, Reading
from fastloader.formats.records import Columns, Names
from fastloader.types import Sample

T = TypeVar("T")

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SLAB = 1 << 20
"""Bytes read at once of a dataset that is not stored in chunks."""
BLOCK = 64 << 10
AHEAD = 4
KEPT_BLOCKS = 512
"""What is kept of an object in a store: blocks, of which a few are fetched at a time."""


class Hdf5(Columns):
    """Datasets in groups are called by their path, ``group/data``. Single values are no samples and left out."""

    format = "hdf5"

    def begin(self, number: int) -> dict[str, Column]:
        """The datasets of a file, by name; it stays open."""
        source = self.source(number)
        h5py = required("h5py", "HDF5", source.path)
        calls = Calls(source)
        found: dict[str, Column] = {}

        def take(name: str, item: Any) -> None:
            wanted = name in self._wanted if self._wanted is not None else bool(getattr(item, "shape", ()))
            if isinstance(item, h5py.Dataset) and wanted:
                text = h5py.check_string_dtype(item.dtype)
                found[name] = Column.of(item, text is not None and text.length is None, calls)

        def look() -> None:
            found.clear()
            h5py.File(calls.file or source.path, "r").visititems(take)

        try:
            calls.make(look)
            check_lengths(source.path, {name: column.shape for name, column in found.items()})
        except FastLoaderError:
            raise
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise FormatError(f"can't be read as HDF5: {error}", path=source.path) from error
        missing = [name for name in getattr(self, "_names", self._wanted or ()) if name not in found]
        if missing:
            raise FormatError(
                f"has no dataset {missing[0]!r}; there are {', '.join(found) or 'none'}", path=source.path
            )
        if not found:
            raise FormatError("holds no dataset with a first axis that could count samples", path=source.path)
        return found

    def count(self, file: dict[str, Column]) -> int:
        """As many as the datasets have rows."""
        return next(iter(file.values())).shape[0]

    def samples(self, number: int, file: dict[str, Column], rows: Sequence[int], names: Names) -> list[Sample]:
        """Rows of each dataset."""
        names = names or self._names
        columns = [self._rows(number, name, file[name], rows) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _rows(self, number: int, name: str, column: Column, rows: Sequence[int]) -> list[Any]:
        height = column.chunk_rows
        found = []
        for row in rows:
            chunk = row // height
            slab = self._kept.get((number, name, chunk), partial(self._slab, number, name, column, chunk))
            found.append(slab[row - chunk * height])
        return found

    def _slab(self, number: int, name: str, column: Column, chunk: int) -> tuple[Any, int]:
        first = chunk * column.chunk_rows
        stop = min(first + column.chunk_rows, column.shape[0])
        try:
            slab = column.read(first, stop)
        except FastLoaderError:
            raise
        except (OSError, RuntimeError, ValueError) as error:
            raise FormatError(
                f"dataset {name!r}: rows {first} to {stop - 1} can't be read: {error}", path=self.paths[number]
            ) from error
        return slab, slab.nbytes if slab.dtype != object else sum(64 + len(value) for value in slab.flat)


@dataclass(frozen=True)
class Column:
    """A dataset of a file; ``text`` where its bytes are UTF-8."""

    data: Any
    text: bool
    calls: Calls
    shape: tuple[int, ...]
    """That of the dataset; a dataset that holds nothing has none."""
    chunk_rows: int
    """Rows that are read together: those of a chunk, or of about a megabyte."""

    @classmethod
    def of(cls, data: Any, text: bool, calls: Calls) -> Column:
        """What is known of a dataset, so that HDF5 need not be asked again."""
        shape = tuple(data.shape or ())
        whole = max(1, min(1024, SLAB // max(1, prod(shape[1:]) * int(data.dtype.itemsize))))
        return cls(data, text, calls, shape, int(data.chunks[0]) if data.chunks else whole)

    def read(self, first: int, stop: int) -> Any:
        """Rows."""
        return self.calls.make(lambda: (self.data.asstr() if self.text else self.data)[first:stop])


class Calls:
    """Calls of HDF5 on a file, which must not wait for a server.

    HDF5 has one lock for all, held while it reads. Whoever lets go of something of HDF5's waits for it: any thread, for
    the garbage collector may run in any, also in the one that brings the bytes. So what is not here is noted, the call
    fails, the bytes are fetched, and the call is made again.
    """

    def __init__(self, source: Object) -> None:
        self.file = None if isinstance(source, LocalObject) else Here(source)
        self._lock = Lock()

    def make(self, call: Callable[[], T]) -> T:
        """What the call gives."""
        if self.file is None:
            return call()
        while True:
            with self._lock:
                self.file.missing = None
                try:
                    result = call()
                except Exception:
                    if self.file.missing is None:
                        raise
                missing = self.file.missing
            if missing is None:
                self.file.trim()
                return result
            self.file.fetch(*missing)


class Here(Reading):
    """The blocks of an object that were fetched, as a file."""

    def __init__(self, source: Object) -> None:
        super().__init__(source)
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self.missing: tuple[int, int] | None = None

    def readinto(self, buffer: object) -> int:
        """Bytes that are here; those that are not are noted."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        begin = self.tell()
        end = min(begin + len(view), self._source.size)
        wanted = range(begin // BLOCK, -(-end // BLOCK))
        absent = [number for number in wanted if number not in self._blocks]
        if absent:
            self.missing = absent[0], absent[-1] + 1
            raise OSError(f"bytes {begin} to {end} are not here yet")
        data = b"".join(self._blocks[number] for number in wanted)
        size = max(0, end - begin)
        view[:size] = data[begin - wanted.start * BLOCK :][:size] if size else b""
        self.seek(begin + size)
        return size

    def fetch(self, first: int, stop: int) -> None:
        """Bring blocks here, and a few behind them: what is needed next mostly lies there."""
        begin = first * BLOCK
        end = min(max(stop, first + AHEAD) * BLOCK, self._source.size)
        data = self._source.read(begin, end - begin)
        for at in range(0, len(data), BLOCK):
            self._blocks[(begin + at) // BLOCK] = data[at : at + BLOCK]

    def trim(self) -> None:
        """Let go of those that came first, where there are many."""
        with contextlib.suppress(KeyError):
            while len(self._blocks) > KEPT_BLOCKS:
                self._blocks.popitem(last=False)
