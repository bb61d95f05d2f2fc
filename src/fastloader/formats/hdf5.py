"""HDF5 through h5py: every dataset with a first axis is a field, and its rows are samples, read chunk by chunk."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from threading import Lock
from typing import Any, TypeVar

import numpy as np

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
HOPS = 16
"""Links that are followed for one name, as many as HDF5 would."""
_LEFT_OUT = "choose others with fields="


class Hdf5(Columns):
    """Datasets in groups are called by their path, ``group/data``. Single values are no samples and left out."""

    format = "hdf5"

    def begin(self, number: int) -> dict[str, Column]:
        """The datasets of a file, by name; it stays open."""
        source = self.source(number)
        h5py = required("h5py", "HDF5", source.path)
        calls = Calls(source)
        wanted = getattr(self, "_names", self._wanted)
        try:
            found = calls.make(lambda: self._look(h5py, calls, source.path, wanted))
            check_lengths(source.path, {name: column.shape for name, column in found.items()})
        except FastLoaderError as error:
            error.path = error.path or source.path
            raise
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
            raise FormatError(f"can't be read as HDF5: {error}", path=source.path) from error
        if not found:
            raise FormatError("holds no dataset with a first axis that could count samples", path=source.path)
        return found

    def _look(self, h5py: Any, calls: Calls, path: str, wanted: Names) -> dict[str, Column]:
        """The datasets that are wanted, or all that have rows."""
        links = Links(h5py, h5py.File(calls.file or path, "r"))
        if wanted is None:
            return {name: Column.of(h5py, name, data, calls) for name, data in links.datasets() if data.shape}
        found = {name: links.find(name) for name in wanted}
        for name, data in found.items():
            if not isinstance(data, h5py.Dataset):
                names = [one for one, other in links.datasets() if other.shape]
                raise FormatError(
                    f"has no dataset {name!r}; there are {', '.join(names) or 'none'}",
                    hint="links to other files are not followed" if links.leads_away(name) else None,
                )
        return {name: Column.of(h5py, name, data, calls) for name, data in found.items()}

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
        except (OSError, RuntimeError, ValueError, TypeError) as error:
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
    def of(cls, h5py: Any, name: str, data: Any, calls: Calls) -> Column:
        """What is known of a dataset, so that HDF5 need not be asked again; one that can't be read is refused."""
        try:
            dtype = data.dtype
        except TypeError as error:  # bit fields, for one
            raise FormatError(f"dataset {name!r} can't be read: {error}", hint=_LEFT_OUT) from error
        if has_references(h5py, dtype):
            raise FormatError(f"dataset {name!r} holds references, which are no values", hint=_LEFT_OUT)
        text = h5py.check_string_dtype(dtype)
        shape = tuple(data.shape or ())
        whole = max(1, min(1024, SLAB // max(1, prod(shape[1:]) * int(dtype.itemsize))))
        chunk_rows = int(data.chunks[0]) if data.chunks else whole
        return cls(data, text is not None and text.length is None, calls, shape, chunk_rows)

    def read(self, first: int, stop: int) -> Any:
        """Rows."""
        return self.calls.make(lambda: (self.data.asstr() if self.text else self.data)[first:stop])


def has_references(h5py: Any, dtype: Any) -> bool:
    """Whether values point to others, or parts of them do."""
    parts = [dtype.fields[name][0] for name in dtype.names or ()]
    parts += [h5py.check_vlen_dtype(dtype), *(dtype.subdtype or ())[:1]]
    return h5py.check_ref_dtype(dtype) is not None or any(
        has_references(h5py, part) for part in parts if isinstance(part, np.dtype)
    )


class Links:
    """What the names in a file lead to. No other file is opened, whatever a link says."""

    def __init__(self, h5py: Any, file: Any) -> None:
        self._h5py, self._file = h5py, file

    def find(self, name: str, group: Any = None) -> Any:
        """What is at a path, seen from a group or from the top; nothing where that leads nowhere."""
        return self._followed(name, group)[0]

    def leads_away(self, name: str) -> bool:
        """Whether it is in another file."""
        return isinstance(self._followed(name, None)[1], self._h5py.ExternalLink)

    def _followed(self, name: str, group: Any) -> tuple[Any, Any]:
        """What is there, and the last link on the way. HDF5 would follow links to other files too."""
        h5py, link = self._h5py, None
        found = self._file if group is None or name.startswith("/") else group
        parts, hops = name.split("/")[::-1], 0
        while parts and found is not None:
            part = parts.pop()
            if part in ("", "."):
                continue
            link = found.get(part, getlink=True) if isinstance(found, h5py.Group) else None
            if isinstance(link, h5py.HardLink):
                found = found[part]
            elif isinstance(link, h5py.SoftLink) and hops < HOPS:
                hops += 1
                parts += link.path.split("/")[::-1]
                found = self._file if link.path.startswith("/") else found
            else:
                found = None
        return found, link

    def datasets(self) -> Iterator[tuple[str, Any]]:
        """All, by all their names in each group. A group is gone through once, by the first of its own names."""
        yield from self._below(self._file, "", {self._place(self._file)})

    def _below(self, group: Any, prefix: str, seen: set[Any]) -> Iterator[tuple[str, Any]]:
        h5py = self._h5py
        for part in group:
            link = group.get(part, getlink=True)
            hard = isinstance(link, h5py.HardLink)
            item = group[part] if hard else self.find(link.path, group) if isinstance(link, h5py.SoftLink) else None
            if isinstance(item, h5py.Dataset):
                yield prefix + part, item
            elif hard and isinstance(item, h5py.Group) and self._place(item) not in seen:
                seen.add(self._place(item))
                yield from self._below(item, f"{prefix}{part}/", seen)

    def _place(self, group: Any) -> int:
        return int(self._h5py.h5o.get_info(group.id).addr)


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
