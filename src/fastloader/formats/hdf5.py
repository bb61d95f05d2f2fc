"""HDF5 through h5py: every dataset with a first axis is a field, and its rows are samples, read chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from fastloader.errors import FormatError
from fastloader.formats.arrays import check_lengths
from fastloader.formats.extras import required
from fastloader.formats.objects import Files, LocalObject, Reading
from fastloader.formats.records import Kept, Names, Records
from fastloader.types import Sample

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SLAB = 1 << 20
"""Bytes read at once of a dataset that is not stored in chunks."""


class Hdf5(Records):
    """Datasets in groups are called by their path, ``group/data``. Single values are no samples and left out."""

    format = "hdf5"

    def __init__(self, files: Files, wanted: Names = None) -> None:
        super().__init__(files)
        self._wanted = wanted
        self._kept = Kept()
        self._names = tuple(self.file(0))

    @property
    def names(self) -> tuple[str, ...]:
        """The datasets."""
        return self._names

    def begin(self, number: int) -> dict[str, Column]:
        """The datasets of a file, by name; it stays open."""
        source = self.source(number)
        h5py = required("h5py", "HDF5", source.path)
        found: dict[str, Column] = {}

        def take(name: str, item: Any) -> None:
            wanted = name in self._wanted if self._wanted is not None else bool(getattr(item, "shape", ()))
            if isinstance(item, h5py.Dataset) and wanted:
                text = h5py.check_string_dtype(item.dtype)
                found[name] = Column(item, text is not None and text.length is None)

        try:
            file = h5py.File(source.path if isinstance(source, LocalObject) else Reading(source), "r")
            file.visititems(take)
            check_lengths(source.path, {name: column.shape for name, column in found.items()})
        except FormatError:
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

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the dataset; a dataset that holds nothing has none."""
        return tuple(self.data.shape or ())

    @property
    def chunk_rows(self) -> int:
        """Rows that are read together: those of a chunk, or of about a megabyte."""
        if self.data.chunks:
            return int(self.data.chunks[0])
        return max(1, min(1024, SLAB // max(1, prod(self.shape[1:]) * int(self.data.dtype.itemsize))))

    def read(self, first: int, stop: int) -> Any:
        """Rows."""
        return (self.data.asstr() if self.text else self.data)[first:stop]
