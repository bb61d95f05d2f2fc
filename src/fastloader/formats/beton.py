"""FFCV's ``.beton``: samples in pages, found by a table of rows and a table of allocations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError, SampleError
from fastloader.fields import (
    BytesField,
    Field,
    FloatField,
    IntField,
    JPEGImageField,
    JSONField,
    NDArrayField,
    RawImageField,
)
from fastloader.formats.beton_layout import (
    JPEG,
    RAW,
    ROWS,
    Allocations,
    Column,
    Head,
    Rows,
    fitting_rows,
    places,
    read_head,
    table_of,
)
from fastloader.formats.indexes import read_ranges
from fastloader.formats.objects import Files
from fastloader.formats.records import Names, Records
from fastloader.types import Sample

TYPES = tuple(ROWS)
"""What a custom field can be said to be stored like."""

END_OF_JPEG, ROOM_BEHIND = b"\xff\xd9", 4096
"""How JPEGs end, but for what some programs leave behind them."""


@dataclass(frozen=True)
class Tables:
    """What is known of a file before the data of samples is read."""

    head: Head
    form: Rows
    rows: NDArray[Any]
    allocations: Allocations

    def offset(self, row: int, name: str) -> int:
        """Where a field's part of a row is."""
        number = [column.name for column in self.head.columns].index(name)
        return self.head.rows_at + row * self.form.stride + self.form.offsets[number]


class Beton(Records):
    """Samples with the fields that the file names. JPEGs stay bytes, raw images are arrays."""

    format = "beton"

    def __init__(self, files: Files, wanted: Names = None, types: Mapping[str, str] | None = None) -> None:
        super().__init__(files)
        self._types = types
        self._columns = {column.name: column for column in read_head(self.source(0), types).columns}
        for name in self.names if wanted is None else wanted:
            column = self._columns.get(name)
            if column is not None and column.fault:
                others = [one.name for one in self._columns.values() if not one.fault]
                raise FormatError(
                    f"field {name!r} {column.fault}", path=self.paths[0],
                    hint=f"fields={others} leaves it out, types={{{name!r}: 'bytes'}} says what it is stored like"
                    if column.kind is None else f"fields={others} leaves it out",
                )  # fmt: skip

    @property
    def names(self) -> tuple[str, ...]:
        """The fields, in the order in which they are stored."""
        return tuple(self._columns)

    def begin(self, number: int) -> Tables:
        """Both tables, read whole."""
        source = self.source(number)
        head = read_head(source, self._types)
        if head.columns != tuple(self._columns.values()):
            raise FormatError(f"has other fields than {self.paths[0]}", path=source.path)
        allocations = Allocations(source, head)
        form = fitting_rows(source, head, allocations)
        return Tables(head, form, table_of(source, head, form), allocations)

    def count(self, file: Tables) -> int:
        """As the header says."""
        return file.head.num_samples

    def samples(self, number: int, file: Tables, rows: Sequence[int], names: Names) -> list[Sample]:
        """The data of all fields read together, for that of a sample lies together."""
        columns = [self._columns[name] for name in names or self.names]
        index = np.asarray(rows, np.uint64)
        extents = self._extents(file, [column.name for column in columns], index)
        read = iter(read_ranges(self.source(number), np.concatenate([np.zeros((0, 2), np.int64), *extents])))
        found = {column.name: self._values(file, column, rows, read) for column in columns}
        return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]

    def _extents(self, file: Tables, wanted: Sequence[str], index: NDArray[Any]) -> list[NDArray[np.int64]]:
        """Where the data of the wanted fields is. All fields are looked at, since no two may have the same."""
        pointing = [column for column in self._columns.values() if column.has_data and not column.fault]
        told = {one.name: places(one, file.rows[one.name][index], index, file.allocations) for one in pointing}
        for name in wanted:
            if name in told and (wrong := told[name][1]).any():
                row = int(index[np.argmax(wrong)])
                raise FormatError(
                    f"record {row} at offset {file.offset(row, name)}: it points at nothing that is its own: "
                    f"{file.rows[name][row]}", field=name,
                )  # fmt: skip
        starts = [np.where(extents[:, 1] > 0, extents[:, 0], -1 - i) for i, (extents, _) in enumerate(told.values())]
        if len(starts) > 1 and (same := (np.diff(np.sort(starts, axis=0), axis=0) == 0).any(axis=0)).any():
            row = int(index[np.argmax(same)])
            offset = file.head.rows_at + row * file.form.stride
            raise FormatError(f"record {row} at offset {offset}: two fields point at the same data")
        return [told[name][0] for name in wanted if name in told]

    def _values(self, file: Tables, column: Column, rows: Sequence[int], read: Any) -> list[Any]:
        table = file.rows[column.name]
        if not column.has_data:
            return table[list(rows)].tolist()  # type: ignore[no-any-return]
        found = []
        for row in rows:
            try:
                found.append(value_of(column, table[row], bytes(next(read))))
            except (ValueError, RecursionError) as error:
                said = error.args[1] if isinstance(error, kernels.Failure) else error
                raise FormatError(
                    f"record {row} at offset {file.offset(row, column.name)}: {said}", field=column.name
                ) from error
        return found

    def stored_as(self, names: Sequence[str]) -> dict[str, Field]:
        """The fields as the file has them; images as JPEG where all are, and as pixels where none is."""
        return {name: self._field(self._columns[name]) for name in names}

    def _field(self, column: Column) -> Field:
        if column.kind == "image":
            return self._image_field(column.name)
        if column.dtype is not None:
            return NDArrayField(column.dtype, column.shape)
        return _FIELDS[str(column.kind)]

    def _image_field(self, name: str) -> Field:
        tables = [self.file(number).rows[name] for number in range(len(self.paths))]
        jpegs, raw = (sum(int((rows["mode"] == mode).sum()) for rows in tables) for mode in (JPEG, RAW))
        if not raw:
            return JPEGImageField()
        if jpegs:
            raise SampleError(
                f"{jpegs} JPEGs and {raw} raw images are not kept in one field", path=self.paths[0], field=name,
                hint="JPEGImageField keeps the JPEGs as they are and encodes the others",
            )  # fmt: skip
        sizes = {size for rows in tables for size in np.unique(rows[["height", "width"]]).tolist()}
        return RawImageField(*sizes.pop()) if len(sizes) == 1 else NDArrayField("uint8", (None, None, 3))


_FIELDS: dict[str, Field] = {
    "float": FloatField(), "int": IntField(), "bytes": BytesField(), "json": JSONField(),
}  # fmt: skip


def value_of(column: Column, row: Any, data: bytes) -> Any:
    """What the data of a field stands for."""
    if column.kind == "image":
        height, width = int(row["height"]), int(row["width"])
        if row["mode"] == RAW:
            return np.frombuffer(data, np.uint8).reshape(height, width, 3)
        told = kernels.image_info(kernels.JPEG, data)
        if told[:2] != (height, width):
            raise ValueError(f"an image of {height}x{width} should be here, and is one of {told[0]}x{told[1]}")
        if END_OF_JPEG not in data[-ROOM_BEHIND:]:
            raise ValueError("a JPEG without an end")
        return data
    if column.dtype is not None:
        return np.frombuffer(data, column.dtype).reshape(column.shape)
    if column.kind == "json":
        text, ending, rest = data.partition(b"\0")
        if not ending or rest:
            raise ValueError("the text does not end where its data does")
        return json.loads(text.decode("utf-8"))
    return data
