"""Samples to formats of others: tars in WebDataset's layout, and Parquet. A file appears when it is whole."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    JPEGImageField,
    JSONField,
    ListField,
    MaskField,
    NDArrayField,
    PNGImageField,
    RawImageField,
    TextField,
    WebPImageField,
)  # fmt: skip
from fastloader.fields.text import as_text
from fastloader.formats.decoding import KEY
from fastloader.formats.entries import UnsafePathError, checked_path
from fastloader.formats.extras import required
from fastloader.formats.tar_entries import TarSink
from fastloader.stores.local import explain
from fastloader.types import Sample, byte_view, key_bytes

_SUFFIXES = {kernels.JPEG: "jpg", kernels.PNG: "png", kernels.WEBP: "webp"}
_OTHER_KEYS = f"give other keys, or leave {KEY} out: then numbers are"
_NUMBER = re.compile(r"%0?\d*d")
_ALIKE = {
    "jpeg": ("jpg",), "text": ("txt",), "transcript": ("txt",), "id": ("cls",), "index": ("cls",), "count": ("cls",),
    "inx": ("cls",), "cls2": ("cls",), "npz": (),
}  # fmt: skip
"""Endings of files that hold what others do."""
_PIXELS: dict[str, Field] = {
    "jpg": JPEGImageField(seekable=False), "jpeg": JPEGImageField(seekable=False), "png": PNGImageField(),
    "webp": WebPImageField(),
}  # fmt: skip
"""What makes files of pixels whose field says no more than that it is an array, but is called as such files end."""
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


@dataclass(frozen=True, slots=True)
class Shards:
    """When a file is full and the next begins: at about ``size`` bytes, at ``samples`` samples; ``None``: never."""

    size: int | None = None
    samples: int | None = None

    def __bool__(self) -> bool:
        return self.size is not None or self.samples is not None


def is_numbered(name: str) -> bool:
    """Whether a name has a place for a number, so that it stands for several tars."""
    return name.endswith(TARS) and bool(_NUMBER.search(name))


def left_behind(name: str, count: int, is_there: Callable[[str], bool]) -> list[str]:
    """Files that an earlier and longer row of this name has left behind the ``count`` of a new one, the last first.

    They would be taken for a part of it.
    """
    if not is_numbered(name):
        return []
    there = itertools.takewhile(is_there, (name % number for number in itertools.count(count)))
    return list(there)[::-1]


class TarExport:
    """WebDataset's layout: for each sample, files that share a number and are named by their fields.

    ``000000003.image.jpg``, ``000000003.label.cls``. Where samples have a ``__key__`` that is their name, and fields
    are called as their files end. Missing values have no file. A path with a place for a number, such as
    ``train-%06d.tar``, stands for several files.
    """

    def __init__(
        self, path: Path, fields: Mapping[str, Field], samples: Sequence[Sample], shards: Shards | None = None
    ) -> None:
        self._path, self._fields, self._shards = path, dict(fields), shards or Shards()
        self._numbered = is_numbered(path.name)
        if self._shards and not self._numbered:
            raise ValueError(f"{path.name}: several tars need a place for their number, as in train-%06d.tar")
        self._named = KEY in fields
        self._names = {name: name if self._named else _ending(name) for name in fields if name != KEY}
        if len(set(self._names.values())) < len(self._names):
            raise ValueError(f"fields that would share a name in a tar: {', '.join(fields)}")
        self._count, self._number, self._in_shard = 0, 0, 0
        self._keys: dict[bytes, int] = {}  # of this tar, with their samples
        self._sink = TarSink(self._place())

    def _place(self) -> Path:
        return self._path.with_name(self._path.name % self._number) if self._numbered else self._path

    def write(self, sample: Sample) -> None:
        """A file for each of its values."""
        full = (self._shards.samples is not None and self._in_shard >= self._shards.samples) or (
            self._shards.size is not None and self._sink.size >= self._shards.size
        )
        if full and self._in_shard:
            self._sink.close()
            self._number, self._in_shard, self._keys = self._number + 1, 0, {}
            self._sink = TarSink(self._place())
        key = self._key(sample)
        for name, value in sample.items():
            if value is None or name == KEY:
                continue
            if self._named:
                self._sink.add_file(f"{key}.{name}", _content(name, self._fields[name], value))
            else:
                suffix, data = _as_file(self._fields[name], value)
                self._sink.add_file(f"{key}.{self._names[name]}.{suffix}", data)
        self._count += 1
        self._in_shard += 1

    def _key(self, sample: Sample) -> str:
        if not self._named:
            return f"{self._count:09d}"
        key = sample[KEY]
        if not isinstance(key, str) or not key or "." in key.rpartition("/")[2]:
            raise SampleError(f"the key {key!r} is no name without a dot, by which files of a tar are told apart")
        try:
            plain = checked_path(key_bytes(key))
        except UnsafePathError as error:
            raise SampleError(error.message, sample=self._count, hint=_OTHER_KEYS) from error
        first = self._keys.setdefault(plain, self._count)
        if first != self._count:
            raise SampleError(
                f"has the key {key!r} of sample {first}, so that in the tar they would be one",
                sample=self._count, hint=_OTHER_KEYS,
            )  # fmt: skip
        return key

    def finish(self) -> None:
        """Close and publish."""
        self._sink.close()
        place = self._path.with_name
        for name in left_behind(self._path.name, self._number + 1, lambda name: place(name).exists()):
            place(name).unlink()

    def discard(self) -> None:
        """Remove what was written of the last file."""
        self._sink.abort()


def _ending(name: str) -> str:
    return name.replace("/", "_").replace(".", "_")


def _content(name: str, field: Field, value: Any) -> bytes:
    """A value of a field that is called as its file ends."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    ending = name.rpartition(".")[2]
    if ending == "json":
        return _as_json(value)
    suffix, data = _as_file(field, value)
    if suffix in _ALIKE.get(ending, (ending,)):
        return data
    if isinstance(value, np.ndarray) and ending in _PIXELS:
        try:
            return stored_bytes(_PIXELS[ending], value)
        except (TypeError, ValueError) as error:
            raise SampleError(f"no pixels of a file .{ending}: {error}", field=name) from error
    raise SampleError(
        f"a {type(value).__name__} is no content of a file .{ending}", field=name,
        hint="name the field as such a file ends, like npy or json, or give bytes",
    )  # fmt: skip


def _as_file(field: Field, value: Any) -> tuple[str, bytes]:
    if isinstance(field, TextField):
        value = as_text(value)
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
    return "json", _as_json(value)


def _as_json(value: Any) -> bytes:
    try:
        return json.dumps(value.item() if isinstance(value, np.generic) else value).encode()
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
        if isinstance(field, ListField) and isinstance(field.field, BytesField | TextField):
            return pa.list_(self._type(name, field.field))
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
        if isinstance(field, TextField):
            return as_text(value)
        if isinstance(field, ListField) and isinstance(field.field, TextField):
            return [as_text(one) for one in value]
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
        try:
            os.replace(self._aside, self._path)
        except OSError as error:
            raise explain(error, self._path, "choose another name, or remove what is there") from error

    def discard(self) -> None:
        """Remove what was written."""
        self._writer.close()
        self._aside.unlink(missing_ok=True)


TARS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst")
EXPORTS = (*TARS, ".parquet")
"""How the names of files end that are written for others."""


def export_of(
    path: Path, fields: Mapping[str, Field], samples: Sequence[Sample], shards: Shards | None = None
) -> Export | None:
    """What writes a file of this name; ``None`` where that is no export."""
    if path.name.endswith(TARS):
        return TarExport(path, fields, samples, shards)
    if path.suffix == ".parquet":
        if shards:
            raise ValueError("shards are for .fld and tars, not for .parquet")
        return ParquetExport(path, fields, samples)
    return None
