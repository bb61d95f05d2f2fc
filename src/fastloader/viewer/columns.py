"""Numbers that tables hold of each sample: labels, sizes, lengths. They are read in blocks, not a sample at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.fields import (
    AudioCompressedField,
    AudioTokensField,
    AudioWaveformField,
    Field,
    FloatField,
    ImageFileField,
    IntField,
    ListField,
    MaskField,
    NDArrayField,
    PackedTextField,
    SpectrogramField,
    TextField,
    TokenizedTextField,
    VideoCompressedField,
    VideoFramesField,
)
from fastloader.formats.decoding import WholeNumberField
from fastloader.formats.extents import ExtentDataset, Extents
from fastloader.formats.extents import Numbers as Counted
from fastloader.formats.fld.file import FldFile, explain
from fastloader.formats.fld.layout import EXTENT, Kind
from fastloader.glance import is_ours
from fastloader.reader import DatasetReader

Values = tuple[NDArray[Any], NDArray[np.bool_]]
"""Numbers, and which of them are there."""
Texts = Callable[[int, NDArray[np.int64]], list[Any]]


@dataclass(frozen=True)
class Column:
    """Something of a field that is a number, or a text, a sample. ``quick``: from tables alone."""

    field: int
    measure: str
    label: str
    kind: str
    unit: str = ""
    quick: bool = True

    @property
    def id(self) -> str:
        """As pages name it."""
        return f"{self.field}.{self.measure}"


class Numbers(ABC):
    """The columns of a dataset."""

    columns: tuple[Column, ...]

    @abstractmethod
    def read(self, column: Column, rows: NDArray[np.int64]) -> Values:
        """The column's values of some samples, which ascend; texts are objects."""

    def column(self, name: str) -> Column | None:
        """The column of this id."""
        return next((one for one in self.columns if one.id == name), None)


Measure = Callable[[NDArray[Any]], NDArray[Any]]


def _of_tables(field: Field) -> dict[str, tuple[str, Measure]]:
    """What a metadata table tells of a field: by name the unit, and the function of its rows."""
    if not is_ours(field):
        return {}
    if isinstance(field, IntField | FloatField):
        return {"value": ("", lambda rows: rows["value"])}
    if isinstance(field, ImageFileField | MaskField):
        return {"width": ("px", lambda rows: rows["width"]), "height": ("px", lambda rows: rows["height"])}
    if isinstance(field, VideoCompressedField):
        return {"seconds": ("s", lambda rows: rows["duration"]), "frames": ("", lambda rows: rows["frames"])}
    if isinstance(field, VideoFramesField | AudioTokensField):
        return {"frames": ("", lambda rows: rows["frames"])}
    if isinstance(field, AudioCompressedField):
        return {"seconds": ("s", lambda rows: rows["frames"] / np.maximum(rows["sample_rate"], 1))}
    if isinstance(field, PackedTextField):
        return {"tokens": ("", lambda rows: rows["tokens"]), "documents": ("", lambda rows: rows["documents"])}
    if isinstance(field, ListField) and field.array is None:
        return {"elements": ("", lambda rows: rows["count"])}
    if isinstance(field, AudioWaveformField | SpectrogramField):
        rate = field.sample_rate if isinstance(field, AudioWaveformField) else 0
        if field.array.shape is None or field.array.shape[:1] != (None,):
            return {}
        if rate:
            return {"seconds": ("s", lambda rows: rows["dims"][:, 0] / rate)}
        return {"frames": ("", lambda rows: rows["dims"][:, 0])}
    if isinstance(field, NDArrayField) and (field.shape is None or field.shape[:1] == (None,)):
        return {"length": ("", lambda rows: rows["dims"][:, 0])}
    return {}


class TableNumbers(Numbers):
    """Columns of a reader."""

    def __init__(self, reader: DatasetReader, texts: Texts) -> None:
        self._reader = reader
        self._texts = texts
        self._measures: dict[tuple[int, str], Measure] = {}
        found: list[Column] = []
        dataset = reader.dataset
        extents = isinstance(dataset, ExtentDataset)
        for number, name in enumerate(dataset.names):
            try:
                field = dataset.field(number)
            except ValueError:
                field = None
            if field is not None and isinstance(field, TextField | WholeNumberField):
                kind = "text" if isinstance(field, TextField) else "number"
                found.append(Column(number, "value", name, kind, quick=False))
            if field is not None and (not extents or isinstance(field, IntField)):
                for measure, (unit, function) in _of_tables(field).items():
                    self._measures[number, measure] = function
                    label = name if measure == "value" else f"{name}: {measure}"
                    found.append(Column(number, measure, label, "number", unit))
            if dataset.descriptors[number].has_payload and name != "__key__" and (extents or _has_extents(dataset)):
                if isinstance(field, TokenizedTextField):
                    found.append(Column(number, "tokens", f"{name}: tokens", "number"))
                found.append(Column(number, "bytes", f"{name}: bytes", "number", "B"))
        self.columns = tuple(found)

    def read(self, column: Column, rows: NDArray[np.int64]) -> Values:
        """File by file."""
        if not column.quick:
            return _of_values(column, self._texts(column.field, rows))
        dataset = self._reader.dataset
        edges = np.searchsorted(rows, dataset.starts)
        parts = [
            self._of_file(column, number, rows[edges[number] : edges[number + 1]] - start)
            for number, start in enumerate(dataset.starts[:-1].tolist())
            if edges[number] < edges[number + 1]
        ]
        if not parts:
            return np.zeros(0), np.zeros(0, np.bool_)
        return np.concatenate([one for one, _ in parts]), np.concatenate([good for _, good in parts])

    def _of_file(self, column: Column, number: int, rows: NDArray[np.int64]) -> Values:
        dataset = self._reader.dataset
        if isinstance(dataset, ExtentDataset):
            return _of_extents(dataset.parts[number].columns.get(dataset.names[column.field]), rows)
        file = dataset.file(number)
        try:
            valid = _valid(file, column.field, rows)
            if column.measure in ("bytes", "tokens") and (column.field, column.measure) not in self._measures:
                sizes = _rows(file, Kind.EXTENTS, column.field, rows, EXTENT)["raw_size"].astype(np.int64)
                if column.measure == "tokens":
                    sizes //= dataset.field(column.field).dtype.itemsize  # type: ignore[attr-defined]
                return sizes, valid
            metadata = dataset.field(column.field).metadata_type
            values = self._measures[column.field, column.measure](
                _rows(file, Kind.METADATA, column.field, rows, metadata)
            )
        except kernels.Failure as failure:
            raise explain(failure, file.path, None, dataset.names[column.field]) from failure
        return np.asarray(values, np.float64 if values.dtype.kind == "f" else np.int64), valid


def _has_extents(dataset: Any) -> bool:
    return bool(dataset.shards) and isinstance(dataset.file(0), FldFile)


def _rows(file: FldFile, kind: Kind, field: int, rows: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows of a table: a run of them in one piece."""
    table = file.table(kind, field, rows if file.remote is not None else None)
    assert table is not None
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return np.frombuffer(table.row(int(rows[0]), len(rows)), dtype)
    found = np.zeros(len(rows), dtype)
    kernels.take([table], None, np.ascontiguousarray(rows), found.view(np.uint8))
    return found


def _valid(file: FldFile, field: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    table = file.table(Kind.VALIDITY, field, rows // 8 if file.remote is not None else None)
    if table is None:
        return np.ones(len(rows), np.bool_)
    bits = np.empty(len(rows), np.uint8)
    kernels.take_bits([table], None, np.ascontiguousarray(rows), bits)
    return bits.astype(np.bool_)


def _of_extents(column: Extents | Counted | None, rows: NDArray[np.int64]) -> Values:
    if column is None:
        return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    if isinstance(column, Counted):
        return column.values[rows], np.ones(len(rows), np.bool_)
    sizes = column.ranges[rows, 1]
    if column.unzipped is not None:
        sizes = np.where(column.unzipped[rows] >= 0, column.unzipped[rows], sizes)
    return sizes, column.present[rows]


def _of_values(column: Column, values: Sequence[Any]) -> Values:
    """Values that were read, as a column; what is missing, unreadable or of another kind is not there."""
    wanted = str if column.kind == "text" else (bool, int, float, np.number, np.bool_)
    valid = np.array([isinstance(one, wanted) for one in values], np.bool_)
    if column.kind == "text":
        made = np.empty(len(values), object)
        made[:] = [one if good else "" for one, good in zip(values, valid, strict=True)]
        return made, valid
    numbers = [one if good else 0 for one, good in zip(values, valid, strict=True)]
    floats = any(isinstance(one, float | np.floating) or abs(int(one)) >= 2**63 for one in numbers)
    return np.array(numbers, np.float64 if floats else np.int64), valid


class RecordNumbers(Numbers):
    """Columns of records: values that are numbers or texts, which have to be read."""

    def __init__(self, count: int, fields: Sequence[tuple[int, str, str]], texts: Texts) -> None:
        self._texts = texts
        self.columns = tuple(
            Column(number, "value", name, kind, quick=False)
            for number, name, kind in fields
            if kind in ("number", "text")
        )

    def read(self, column: Column, rows: NDArray[np.int64]) -> Values:
        """The records."""
        return _of_values(column, self._texts(column.field, rows))
