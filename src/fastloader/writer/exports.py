"""Samples to formats of others: tar in WebDataset's layout, and Parquet. A file appears when it is whole."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastloader import kernels
from fastloader.errors import SampleError
from fastloader.fields import (
    BytesField,
    Field,
    FloatField,
    ImageFileField,
    IntField,
    JSONField,
    MaskField,
    NDArrayField,
    RawImageField,
)  # fmt: skip
from fastloader.formats.extras import required
from fastloader.stores import AtomicFile
from fastloader.stores.local import explain
from fastloader.types import Sample, byte_view

_SUFFIXES = {kernels.JPEG: "jpg", kernels.PNG: "png", kernels.WEBP: "webp"}
GROUP_ROWS = 4096
GROUP_BYTES = 64 << 20


class Export(Protocol):
    """Takes samples and makes a file of them."""

    def write(self, sample: Sample) -> None:
        """The next one."""

    def finish(self) -> None:
        """Make the file appear."""

    def discard(self) -> None:
        """Leave nothing behind; harmless after ``finish``."""


def stored_bytes(field: Field, value: Any) -> bytes:
    """A value as a file of its own: encoded bytes as they are, pixels encoded as the field would."""
    if isinstance(value, bytes):
        return value
    if isinstance(field, MaskField):
        field = MaskField("png")
    return bytes(field.stored_value(byte_view(field.encode(field.prepare(value)).payload)))


class TarExport:
    """WebDataset's layout: for each sample, files that share a number and are named by their fields.

    ``000000003.image.jpg``, ``000000003.label.cls``. Missing values have no file.
    """

    def __init__(self, path: Path, fields: Mapping[str, Field], samples: Sequence[Sample]) -> None:
        self._fields = dict(fields)
        self._file = AtomicFile(path)
        self._names = {name: name.replace("/", "_").replace(".", "_") for name in fields}
        if len(set(self._names.values())) < len(fields):
            self.discard()
            raise ValueError(f"fields that would share a name in a tar: {', '.join(fields)}")
        self._sink = _Sink(self._file)
        self._tar = tarfile.TarFile(fileobj=self._sink, mode="w", format=tarfile.PAX_FORMAT)  # type: ignore[arg-type]
        self._count = 0

    def write(self, sample: Sample) -> None:
        """A file for each of its values."""
        for name, value in sample.items():
            if value is not None:
                suffix, data = _as_file(self._fields[name], value)
                info = tarfile.TarInfo(f"{self._count:09d}.{self._names[name]}.{suffix}")
                info.size, info.mode = len(data), 0o644
                self._tar.addfile(info, io.BytesIO(data))
        self._count += 1

    def finish(self) -> None:
        """Close and publish."""
        self._tar.close()
        self._file.publish(self._sink.size)

    def discard(self) -> None:
        """Remove what was written."""
        self._file.discard()


class _Sink:
    """Where a tar goes: a file under construction."""

    def __init__(self, file: AtomicFile) -> None:
        self._file = file
        self.size = 0

    def tell(self) -> int:
        """Where the next byte goes."""
        return self.size

    def write(self, data: bytes) -> int:
        """Behind what is there."""
        self._file.write_at(self.size, data)
        self.size += len(data)
        return len(data)


def _as_file(field: Field, value: Any) -> tuple[str, bytes]:
    if isinstance(field, MaskField):
        return "png", stored_bytes(field, value)
    if isinstance(field, ImageFileField):
        return _SUFFIXES[field.kind], stored_bytes(field, value)
    if isinstance(field, IntField):
        return "cls", str(int(value)).encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return "bin", bytes(value)
    if isinstance(value, str):
        return "txt", value.encode()
    if isinstance(value, np.ndarray):
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return "npy", file.getvalue()
    try:
        return "json", json.dumps(value.item() if isinstance(value, np.generic) else value).encode()
    except TypeError as error:
        raise SampleError(f"a {type(value).__name__} has no place in a tar", hint="leave the field out") from error


class ParquetExport:
    """A column a field. Arrays become lists, in lists where they have several axes; JSON that is no text, its text."""

    def __init__(self, path: Path, fields: Mapping[str, Field], samples: Sequence[Sample]) -> None:
        self._pa = required("pyarrow", "Parquet", str(path))
        self._fields = dict(fields)
        self._text = {name: all(isinstance(sample.get(name), str | None) for sample in samples) for name in fields}
        schema = self._pa.schema([(name, self._type(name, field)) for name, field in fields.items()])
        self._path, self._aside = path, path.with_name(f".{path.name}.writing-{os.getpid()}")
        try:
            self._writer = required("pyarrow.parquet", "Parquet", str(path)).ParquetWriter(self._aside, schema)
        except OSError as error:
            raise explain(error, path) from error
        self._schema = schema
        self._rows: list[Sample] = []
        self._bytes = 0

    def _type(self, name: str, field: Field) -> Any:
        pa = self._pa
        if isinstance(field, IntField):
            return pa.int64()
        if isinstance(field, FloatField):
            return pa.float64()
        if isinstance(field, BytesField | ImageFileField | MaskField):
            return pa.binary()
        if isinstance(field, NDArrayField | RawImageField):
            if field.shape is None:
                raise SampleError(
                    "arrays of any number of axes have no place in Parquet", field=name, hint="leave the field out"
                )
            found = pa.from_numpy_dtype(np.dtype(field.dtype))
            for _ in field.shape:
                found = pa.list_(found)
            return found
        return pa.string()

    def write(self, sample: Sample) -> None:
        """Gathered until there are enough for a row group."""
        row = {name: self._value(name, value) for name, value in sample.items()}
        self._rows.append(row)
        self._bytes += sum(len(value) if isinstance(value, bytes | str) else 64 for value in row.values())
        if len(self._rows) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _value(self, name: str, value: Any) -> Any:
        field = self._fields[name]
        if value is None:
            return None
        if isinstance(field, ImageFileField | MaskField):
            return stored_bytes(field, value)
        if isinstance(value, np.ndarray | np.generic):
            return value.tolist()
        if isinstance(field, JSONField) and not self._text[name]:
            return json.dumps(value, ensure_ascii=False)
        return value

    def _flush(self) -> None:
        rows, self._rows, self._bytes = self._rows, [], 0
        arrays = []
        for name, kind in zip(self._schema.names, self._schema.types, strict=True):
            try:
                arrays.append(self._pa.array([row[name] for row in rows], kind))
            except (self._pa.ArrowInvalid, self._pa.ArrowTypeError, OverflowError) as error:
                raise SampleError(str(error), field=name, hint="name another field for it") from error
        try:
            self._writer.write_table(self._pa.table(arrays, schema=self._schema))
        except OSError as error:
            raise explain(error, self._path) from error

    def finish(self) -> None:
        """Write what is left and rename into place."""
        if self._rows:
            self._flush()
        self._writer.close()
        os.replace(self._aside, self._path)

    def discard(self) -> None:
        """Remove what was written."""
        self._writer.close()
        self._aside.unlink(missing_ok=True)


EXPORTS: dict[str, type[TarExport] | type[ParquetExport]] = {".tar": TarExport, ".parquet": ParquetExport}
"""By how the name of the file ends."""
