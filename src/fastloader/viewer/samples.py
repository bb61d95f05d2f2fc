"""What is looked at: samples with random access, whatever they are stored as."""

from __future__ import annotations

import contextlib
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.dataset import open_dataset
from fastloader.dataset.opening import ForeignReader, MapSource
from fastloader.errors import FastLoaderError, FormatError, KeyNotFoundError
from fastloader.fields import Field, TokenStreamField
from fastloader.fields.tokenizers import Tokenizer, as_tokenizer
from fastloader.formats.extents import ExtentDataset
from fastloader.formats.fld import explain
from fastloader.formats.fld.layout import NO_FIELD, Kind
from fastloader.formats.records import Records
from fastloader.glance import ColumnView, described, extent_of
from fastloader.reader import DatasetReader
from fastloader.tokens import TokenStream
from fastloader.viewer.columns import Column, Numbers, RecordNumbers, TableNumbers
from fastloader.viewer.items import LIGHT, Item, kind_of, kind_of_value

BLOCK = 1 << 16
"""Samples whose keys or numbers are looked at together."""
FEW = 1 << 10
"""The same where values are read one by one."""
WINDOW = 256
"""Tokens of a stream that are shown as one sample."""
_KEYS = ("__key__", "path")
"""Fields of other formats that are keys."""


@dataclass(frozen=True)
class Shown:
    """A field: how its values are shown, and what it is."""

    number: int
    name: str
    kind: str
    type: str
    field: Field | None = None


KeyBlock = tuple[int, NDArray[np.int64], bytes]
"""The first sample, where keys begin and the last one ends, and their bytes."""


class Samples(ABC):
    """Samples that are looked at."""

    shown: tuple[Shown, ...]
    columns: tuple[Column, ...]
    path: str
    format: str
    has_keys: bool
    classes: tuple[str, ...] | None = None
    numbers: Numbers
    tokenizer: Tokenizer | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def item(self, index: int, number: int) -> Item | None:
        """A value; ``None`` where it is missing."""

    @abstractmethod
    def key(self, index: int) -> str | None:
        """A sample's key, if it has one."""

    @abstractmethod
    def find(self, key: str) -> int | None:
        """The sample with a key."""

    @abstractmethod
    def key_blocks(self) -> Iterator[KeyBlock]:
        """All keys, in the order of samples."""

    @abstractmethod
    def texts(self, number: int, rows: NDArray[np.int64]) -> list[Any]:
        """The values of a field of some samples; errors in the place of what can't be read."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Tells these samples from others, so that browsers keep no picture of what was here before."""

    def items(self, indices: Sequence[int], number: int) -> list[Item | Exception | None]:
        """Values of several samples; errors in their places."""
        return [_tried(lambda index=index: self.item(index, number)) for index in indices]  # type: ignore[misc]

    def place(self, index: int, number: int) -> dict[str, Any]:
        """Where a value lies in which file."""
        return {}


class ReaderSamples(Samples):
    """Samples of a reader: ``.fld``, and what has extents in files of others."""

    def __init__(self, reader: DatasetReader, tokenizer: Tokenizer | None = None) -> None:
        self.reader = reader
        self.tokenizer = tokenizer
        dataset = reader.dataset
        self.path = str(dataset.path)
        archive = getattr(dataset, "is_archive", False)
        self.format = "archive" if archive else getattr(reader, "format", "fld")
        self.classes = getattr(reader, "classes", None)
        self.has_keys = reader.has_keys
        self._views = [ColumnView(dataset, number) for number in range(len(dataset.names))]
        stream = reader.source if isinstance(reader, TokenStream) else None
        self.shown = tuple(_shown(number, view, stream) for number, view in enumerate(self._views))
        self.numbers = TableNumbers(reader, self.texts)
        self.columns = self.numbers.columns

    def __len__(self) -> int:
        return len(self.reader)

    def item(self, index: int, number: int) -> Item | None:
        """Told from tables; values are read when asked for."""
        return self._item(index, number)

    def _item(self, index: int, number: int, read: Callable[[], Any] | None = None) -> Item | None:
        shown, view = self.shown[number], self._views[number]
        if view.trouble is not None and view.is_registered:
            raise view.trouble
        shard, row = self.reader.dataset.where(index)
        file = self.reader.dataset.file(shard)
        known = shown.field
        try:
            if file.is_missing(number, row):
                return None
            metadata = None if known is None else file.metadata_row(number, row, known.metadata_type)
        except kernels.Failure as failure:
            raise explain(failure, file.path, index, shown.name) from failure
        facts = {} if known is None else described(known, metadata)
        read = read or (lambda: self.reader.read_sample(index, [shown.name])[shown.name])
        stored = (lambda: self.reader.read_payload(index, shown.name)) if view.descriptor.has_payload else None
        if known is None:
            assert stored is not None
            read = stored
        return Item(
            index, shown.name, shown.kind, known, read, stored, facts, metadata, lambda: file.payload(number, row)
        )

    def items(self, indices: Sequence[int], number: int) -> list[Item | Exception | None]:
        """Of a store, values that are wanted anyway come together."""
        shown = self.shown[number]
        if not self.reader.dataset.is_remote or shown.kind not in LIGHT:
            return super().items(indices, number)
        found = self.texts(number, np.array(indices))
        return [
            value if isinstance(value, Exception) else _tried(lambda i=i, v=value: self._item(i, number, lambda: v))  # type: ignore[misc]
            for i, value in zip(indices, found, strict=True)
        ]

    def key(self, index: int) -> str | None:
        """From the index of keys."""
        return self.reader.key_of(index) if self.has_keys else None

    def find(self, key: str) -> int | None:
        """By hash."""
        try:
            return self.reader.index_of(key)
        except KeyNotFoundError:
            return None

    def key_blocks(self) -> Iterator[KeyBlock]:
        """Shard by shard, in blocks."""
        dataset = self.reader.dataset
        for shard, start in enumerate(dataset.starts[:-1].tolist()):
            if isinstance(dataset, ExtentDataset):
                part = dataset.parts[shard]
                yield start, np.concatenate([np.zeros(1, np.int64), part.key_ends]), part.keys
                continue
            file = dataset.file(shard)
            offsets, text = file.table(Kind.KEY_OFFSETS, NO_FIELD), file.table(Kind.KEY_BYTES, NO_FIELD)
            assert offsets is not None
            assert text is not None
            for begin in range(0, file.num_samples, BLOCK):
                count = min(BLOCK, file.num_samples - begin)
                ends = np.frombuffer(offsets.row(begin, count + 1), "<i8")
                first, last = int(ends[0]), int(ends[-1])
                if (np.diff(ends) < 0).any() or not 0 <= first <= last <= text.rows:
                    raise FormatError("has keys that end before they begin", path=file.path)
                yield start + begin, ends - first, text.row(first, last - first) if last > first else b""

    def texts(self, number: int, rows: NDArray[np.int64]) -> list[Any]:
        """In one call; where that fails, or gives more than a value each, one by one."""
        name = self.shown[number].name
        try:
            found = self.reader.read_batch(rows, [name])[name]
        except (FastLoaderError, OSError):
            found = None
        if isinstance(found, np.ma.MaskedArray):
            gone = np.ma.getmaskarray(found)
            return [None if lost.all() else value for value, lost in zip(found.data, gone, strict=True)]
        if isinstance(found, list | np.ndarray):
            return list(found)
        return [_tried(lambda row=row: self.reader.read_sample(row, [name])[name]) for row in rows.tolist()]  # type: ignore[misc]

    @cached_property
    def identity(self) -> str:
        """From what shards are."""
        dataset = self.reader.dataset
        return _hash(dataset.path, dataset.shards, getattr(dataset, "identities", ()))

    def place(self, index: int, number: int) -> dict[str, Any]:
        """File, offset, sizes and checksum, as the tables have them."""
        dataset = self.reader.dataset
        shard, row = dataset.where(index)
        file = dataset.file(shard)
        told: dict[str, Any] = {"file": str(file.path), "row": row}
        extent = None if file.is_missing(number, row) else extent_of(file, number, row)
        if extent is None:
            return told
        told |= {"offset": extent.offset, "stored": extent.stored, "bytes": extent.size}
        crc = extent.crc
        return told | ({"crc32c": f"{crc:#010x}"} if crc and self.format in ("fld", "archive") else {})


def _shown(number: int, view: ColumnView, stream: TokenStreamField | None) -> Shown:
    if stream is not None:
        return Shown(number, view.name, "tokens", repr(stream), stream)
    told = f"type {view.descriptor.type_id}, not registered" if view.field is None else repr(view.field)
    return Shown(number, view.name, kind_of(view.field), told, view.field)


class RecordSamples(Samples):
    """Samples of another format, as dictionaries. What fields hold is told from the first ones."""

    def __init__(self, dataset: MapSource, tokenizer: Tokenizer | None = None) -> None:
        self.dataset = dataset
        self.tokenizer = tokenizer
        self.records = cast("Records", dataset.source)
        self.format, self.classes = dataset.format, dataset.classes
        self.path = dataset.paths[0] if len(dataset.paths) == 1 else os.path.commonpath(dataset.paths)
        self._count = len(dataset)
        names = dataset.field_names or self._names()
        self.shown = tuple(self._told(number, name) for number, name in enumerate(names))
        self._key = next((name for name in _KEYS if name in names), None)
        self.has_keys = self._key is not None
        self.numbers = RecordNumbers(self._count, [(one.number, one.name, one.kind) for one in self.shown], self.texts)
        self.columns = self.numbers.columns

    def _names(self) -> list[str]:
        """Where each sample has its own fields, those of some."""
        rows = sorted({*range(min(16, self._count)), *np.linspace(0, self._count - 1, 16).astype(int).tolist()})
        return list(dict.fromkeys(name for row in rows if self._count for name in self._read([row], None)[0]))

    def _told(self, number: int, name: str) -> Shown:
        for row in range(min(8, self._count)):
            with contextlib.suppress(Exception):
                value = self._read([row], (name,))[0].get(name)
                if value is not None:
                    kind = kind_of_value(value)
                    return Shown(number, name, kind if kind in ("number", "text", "bytes") else "value", _type(value))
        return Shown(number, name, "value", "unknown")

    def _read(self, rows: list[int], names: tuple[str, ...] | None) -> list[dict[str, Any]]:
        return self.records.read(rows, names)

    def __len__(self) -> int:
        return self._count

    def _value(self, index: int, name: str) -> Any:
        if not 0 <= index < self._count:
            raise KeyNotFoundError(f"no sample has the number {index}", path=self.path)
        return self._read([index], (name,))[0].get(name)

    def item(self, index: int, number: int) -> Item | None:
        """Read at once: nothing tells of a record but the record."""
        name = self.shown[number].name
        value = self._value(index, name)
        return _record_item(index, name, value)

    def items(self, indices: Sequence[int], number: int) -> list[Item | Exception | None]:
        """Several records in one call."""
        name = self.shown[number].name
        found = self.texts(number, np.array(indices, np.int64))
        return [
            value if isinstance(value, Exception) else _record_item(index, name, value)
            for index, value in zip(indices, found, strict=True)
        ]

    def key(self, index: int) -> str | None:
        """The field that is one."""
        return None if self._key is None else str(self._value(index, self._key))

    def find(self, key: str) -> int | None:
        """By looking through all."""
        wanted = key.encode("utf-8", "surrogateescape")
        for first, ends, text in self.key_blocks():
            for at in np.flatnonzero(np.diff(ends) == len(wanted)).tolist():
                if text[ends[at] : ends[at + 1]] == wanted:
                    return first + at
        return None

    def key_blocks(self) -> Iterator[KeyBlock]:
        """Values of the field that is the key."""
        assert self._key is not None
        number = next(one.number for one in self.shown if one.name == self._key)
        for begin in range(0, self._count, FEW):
            rows = np.arange(begin, min(begin + FEW, self._count))
            found = [str(one).encode("utf-8", "surrogateescape") for one in self.texts(number, rows)]
            yield begin, np.cumsum([0, *map(len, found)], dtype=np.int64), b"".join(found)

    def texts(self, number: int, rows: NDArray[np.int64]) -> list[Any]:
        """In one call; where that fails, one by one."""
        name = self.shown[number].name
        try:
            return [sample.get(name) for sample in self._read(rows.tolist(), (name,))]
        except (FastLoaderError, OSError):
            return [_tried(lambda row=row: self._value(row, name)) for row in rows.tolist()]  # type: ignore[misc]

    @cached_property
    def identity(self) -> str:
        """From what files are called and how many samples there are."""
        return _hash(self.dataset.paths[:1000], len(self.dataset.paths), self._count)

    def place(self, index: int, number: int) -> dict[str, Any]:
        """The file."""
        shard = int(np.searchsorted(self.records.starts, index, "right")) - 1
        return {"file": self.records.paths[shard], "row": index - int(self.records.starts[shard])}


def _record_item(index: int, name: str, value: Any) -> Item | None:
    return None if value is None else Item(index, name, "value", None, lambda: value)


def _type(value: Any) -> str:
    return f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__


def _hash(*facts: Any) -> str:
    return hashlib.blake2b(repr(facts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _tried(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as error:  # whatever a damaged value or a user's decoder does; the others are shown all the same
        return error


def open_samples(
    path: str, storage_options: Mapping[str, Any] | None = None, *, tokenizer: Any = None
) -> Samples:  # fmt: skip
    """Open anything that ``fastloader.open`` opens and that has random access."""
    known = None if tokenizer is None else as_tokenizer(tokenizer, False)
    try:
        found = open_dataset(path, storage_options, decode=True)
    except ValueError as error:
        if isinstance(error, FastLoaderError):
            raise
        found = open_dataset(path, storage_options)  # what has types of its own is not decoded by endings
    if isinstance(found, ForeignReader):
        return ReaderSamples(found, known)
    if isinstance(found, DatasetReader):
        return ReaderSamples(_windows(found, path, storage_options), known)
    if isinstance(found, MapSource):
        return RecordSamples(found, known)
    raise FormatError(
        f"is {found.format}, whose samples come one after the other", path=path,
        hint=f'random access is needed: "fastloader convert {path} NAME.fld" makes a dataset that has it',
    )  # fmt: skip


def _windows(reader: DatasetReader, path: str, storage_options: Mapping[str, Any] | None) -> DatasetReader:
    """A stream of tokens as windows."""
    if [one.type_id for one in reader.dataset.descriptors] != [TokenStreamField.type_id]:
        return reader
    return TokenStream(path, WINDOW - 1, stride=WINDOW, storage_options=storage_options)
