"""Lists and dictionaries of other fields, one level deep."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, FormatError
from fastloader.fields.base import (
    NO_METADATA,
    BatchDecoder,
    BatchParts,
    Decoder,
    Elements,
    Encoded,
    Field,
    PayloadBatch,
    Plan,
    ReadFunction,
)
from fastloader.fields.basic import FloatField, IntField
from fastloader.fields.image import RawImageField
from fastloader.fields.ndarray import NDArrayDecoder, NDArrayField
from fastloader.fields.packed import PackedTextField
from fastloader.types import TypeId, byte_view, mask_missing

_COUNT = np.dtype([("count", "<u8")])
_SIZE = np.dtype("<u4")
_LONG = 256
"""Bytes of a slice from which on slices are copied one by one, and not byte by byte."""


@dataclass(frozen=True, slots=True)
class SlicedPayloads:
    """Payloads that are parts of others: of each, where it begins in ``values`` and its size."""

    values: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rows: NDArray[np.int64]

    def ragged(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All payloads one behind the other, and the offsets between them."""
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes)])
        if len(self.sizes) and offsets[-1] > _LONG * len(self.sizes):
            return np.concatenate([self._part(i) for i in range(len(self.sizes))]), offsets
        return self.values[spread(self.starts, self.sizes)], offsets

    def _part(self, i: int) -> NDArray[np.uint8]:
        return self.values[self.starts[i] : self.starts[i] + self.sizes[i]]

    def fixed(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """All payloads as one array (batch, *shape)."""
        row_bytes, there = prod(shape) * dtype.itemsize, self.rows >= 0
        if (self.sizes[there] != row_bytes).any():
            raise FormatError(f"a payload has not the {row_bytes} bytes of {shape} {dtype}")
        if not there.any():
            return np.broadcast_to(np.zeros((), dtype), (len(there), *shape))
        out = np.zeros((len(there), row_bytes), np.uint8)
        out[there] = self.ragged()[0].reshape(-1, row_bytes)
        return out.view(dtype).reshape(len(there), *shape)

    def bytes(self) -> list[bytes]:
        """A bytes object for each payload."""
        return [self._part(i).tobytes() for i in range(len(self.sizes))]

    def images(self, kind: int, shapes: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The pixels of all payloads one behind the other, and the offsets between them."""
        found = [np.zeros(0, np.uint8)]
        for i, (height, width, channels, bits) in enumerate(shapes.view(np.uint32).reshape(-1, 4).tolist()):
            shape = height, width, channels, bits
            pixels = kernels.decode_image(kind, self._part(i), shape) if self.rows[i] >= 0 else found[0]
            found.append(pixels.reshape(-1).view(np.uint8))
        return np.concatenate(found), np.cumsum([len(one) for one in found])


def spread(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from each start on, as many as its length, one run behind the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def _batch_of(decoder: Decoder, metadata: NDArray[Any], payloads: SlicedPayloads) -> Any:
    """An inner field's part of a batch."""
    if isinstance(decoder, BatchDecoder):
        try:
            return decoder.batch(metadata, payloads)
        except kernels.Failure as failure:  # its position counts elements, and whoever asked counts samples
            raise DecodeError(failure.args[1]) from failure
    values = [
        decoder(metadata[i], lambda i=i: payloads._part(i).data) if row >= 0 else None  # type: ignore[misc]
        for i, row in enumerate(payloads.rows.tolist())
    ]
    return values if any(one is None for one in values) else decoder.field.collate(values)


def _check_inner(what: str, field: Any) -> Field:
    if not isinstance(field, Field):
        raise TypeError(f"{what} is a {type(field).__name__}; give an instance of a Field, like TextField()")
    if isinstance(field, ListField | DictField):
        raise TypeError(
            f"{what} is a {type(field).__name__}: fields are nested one level deep; JSONField takes any depth"
        )
    if isinstance(field, PackedTextField) or not field.type_id:
        raise TypeError(f"{what}: {type(field).__name__} can't be part of another field")
    if not field.has_payload and not field.metadata_type.itemsize:
        raise TypeError(f"{what}: {type(field).__name__} stores nothing")
    return field


def _described(field: Field) -> list[Any]:
    """Type and options of an inner field, for JSON."""
    options = field.to_binary()
    try:
        return [int(field.type_id), options.decode()]
    except UnicodeDecodeError:
        return [int(field.type_id), {"base64": base64.b64encode(options).decode()}]


def _from_description(told: Any) -> Field:
    from fastloader.fields.registry import field_class  # which knows this module's classes too

    number, options = told
    data = base64.b64decode(options["base64"]) if isinstance(options, dict) else options.encode()
    return field_class(number).from_binary(data)


def _decoder_of(field: Field) -> Decoder:
    return field.get_decoder_class()(field)


class ListDecoder(Decoder):
    """Gives lists of what the inner field gives, all elements of a batch decoded at once."""

    field: ListField

    def __init__(self, field: ListField) -> None:
        super().__init__(field)
        self._inner = _decoder_of(field.field)
        self._width = field.field.metadata_type.itemsize
        self._sized = field.field.has_payload

    def __call__(self, metadata: Any, read: ReadFunction) -> list[Any]:
        """The values of one sample."""
        data = np.frombuffer(read(), np.uint8)
        rows, payloads, _ = self._parts(np.array([metadata["count"]]), data, np.array([0, len(data)], np.int64))
        return [
            self._inner(rows[i], lambda i=i: payloads._part(i).data)  # type: ignore[misc]
            for i in range(len(payloads.sizes))
        ]

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> list[Any]:
        """A list of lists, with ``None`` for what is missing."""
        rows, inner, counts = self._parts(metadata["count"], *payloads.ragged())
        values = _batch_of(self._inner, rows, inner)
        if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf":
            values = values.tolist()
        ends = np.cumsum(counts)
        places = zip((ends - counts).tolist(), ends.tolist(), (payloads.rows >= 0).tolist(), strict=True)
        return [list(values[begin:end]) if there else None for begin, end, there in places]

    def _parts(
        self, stated: NDArray[Any], values: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[Any], SlicedPayloads, NDArray[np.int64]]:
        """Metadata rows and payloads of all elements, and how many each sample has."""
        each = self._width + _SIZE.itemsize * self._sized
        room = np.diff(offsets)
        if (stated > (room // each).astype(np.uint64)).any():
            raise FormatError(f"a list claims {stated.max()} elements, and its payload has no room for them")
        counts = stated.astype(np.int64)
        total = int(counts.sum())
        at = offsets[:-1]
        inner = self.field.field.metadata_type
        rows = values[spread(at, counts * self._width)].view(inner) if self._width else np.zeros(total, NO_METADATA)
        none = np.zeros(total, np.int64)
        sizes, starts = none, none
        if self._sized:
            where = spread(at + counts * self._width, counts * _SIZE.itemsize)
            sizes = values[where].view(_SIZE).astype(np.int64)
            ends = np.cumsum(sizes)
            before = np.concatenate([np.zeros(1, np.int64), ends])[np.cumsum(counts) - counts]
            starts = np.repeat(at + counts * each - before, counts) + ends - sizes
            used = np.concatenate([np.zeros(1, np.int64), ends])[np.cumsum(counts)] - before
        else:
            used = np.zeros(len(counts), np.int64)
        if (used + counts * each != room).any():
            raise FormatError("the sizes of a list's elements do not add up to its payload")
        return rows, SlicedPayloads(values, starts, sizes, np.zeros(total, np.int64)), counts


@dataclass(frozen=True, slots=True)
class ListField(Field):
    """Any number of values of one field: several captions of an image, say. ``ops.Choose`` takes one of them.

    A value is a list, a batch a list of lists. Where all elements are numbers or arrays of one shape (``IntField``,
    ``FloatField``, ``RawImageField``, ``NDArrayField`` of a fixed shape), a value is one array (count, ...), and
    ``DataLoader(pad=...)`` joins or pads them.
    """

    type_id: ClassVar[int] = TypeId.LIST

    field: Field

    def __post_init__(self) -> None:
        _check_inner("the field of a list", self.field)

    @property
    def array(self) -> NDArrayField | None:
        """The field of arrays that stores the same, where elements are numbers of one shape."""
        inner = self.field
        if type(inner) is IntField:
            return NDArrayField("<i8", (None,))
        if type(inner) is FloatField:
            return NDArrayField("<f8", (None,))
        if type(inner) is NDArrayField and inner.fixed_shape is not None and 0 < len(inner.fixed_shape) + 1 <= 8:
            return NDArrayField(inner.np_dtype, (None, *inner.fixed_shape)) if prod(inner.fixed_shape) else None
        if type(inner) is RawImageField:
            return NDArrayField(inner.dtype, (None, *inner.shape))
        return None

    @property
    def worth_a_thread(self) -> bool:  # type: ignore[override]
        """As the inner field."""
        return self.field.worth_a_thread

    @property
    def usual_compression(self) -> str | None:  # type: ignore[override]
        """As the inner field."""
        return self.field.usual_compression

    @property
    def dictionary_bytes(self) -> int:
        """As the inner field."""
        return self.field.dictionary_bytes

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """The number of elements."""
        return _COUNT if self.array is None else self.array.metadata_type

    def prepare(self, value: Any) -> list[Any]:
        """Each element is taken hold of."""
        if isinstance(value, str | bytes | bytearray | Mapping) or not hasattr(value, "__iter__"):
            raise TypeError(f"expected a list of values, got {type(value).__name__}")
        values = list(value)
        for i, one in enumerate(values):
            if one is None:
                raise ValueError(f"element {i} is None; leave out what is missing")
            try:
                values[i] = self.field.prepare(one)
            except (TypeError, ValueError) as error:
                raise type(error)(f"element {i}: {error}") from error
        return values

    def encode(self, value: Any) -> Encoded:
        """Takes what ``prepare`` made."""
        made = []
        for i, one in enumerate(value):
            try:
                made.append(self.field.encode(one))
            except (TypeError, ValueError) as error:
                raise type(error)(f"element {i}: {error}") from error
        rows = np.array([one.metadata for one in made], self.field.metadata_type).tobytes()
        payloads = [byte_view(one.payload) for one in made] if self.field.has_payload else []
        if any(len(one) >= 2**32 for one in payloads):
            raise ValueError("an element has 4 GiB or more")
        sizes = np.array([len(one) for one in payloads], _SIZE).tobytes() if self.array is None else b""
        count = (len(made),)
        return Encoded(count if self.array is None else (count,), b"".join([rows, sizes, *payloads]))

    def get_decoder_class(self) -> type[Decoder]:
        """Reads lists, or arrays."""
        return ListDecoder if self.array is None else ArraysDecoder

    def collate(self, values: Sequence[Any]) -> Any:
        """A list of lists; arrays as those of ``NDArrayField``."""
        return list(values) if self.array is None else self.array.collate(values)

    def to_binary(self) -> bytes:
        """Type and options of the inner field."""
        return json.dumps({"field": _described(self.field)}, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field that ``to_binary`` described."""
        return cls(_from_description(json.loads(data)["field"]))


class ArraysDecoder(Decoder):
    """Gives arrays of numbers, as ``NDArrayField`` does."""

    def __init__(self, field: ListField) -> None:
        super().__init__(field)
        assert field.array is not None
        self._arrays = NDArrayDecoder(field.array)

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """The array."""
        return self._arrays(metadata, read)

    @property
    def plan(self) -> Plan:
        """Of any size."""
        return self._arrays.plan

    @property
    def elements(self) -> Elements | None:
        """The values."""
        return self._arrays.elements

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """One array where lengths agree, else a list of arrays."""
        return self._arrays.batch(metadata, payloads)


@dataclass(frozen=True, slots=True)
class DictBatch:
    """A batch of dictionaries: by name, what each inner field makes of its values."""

    columns: dict[str, Any]

    def take(self, rows: NDArray[np.int64]) -> DictBatch:
        """Other rows of the same."""
        return DictBatch({name: _rows_of(values, rows) for name, values in self.columns.items()})

    def entries(self, name: str, valid: NDArray[np.bool_] | None) -> dict[str, Any]:
        """One dictionary; where samples are missing, all its parts are."""
        if valid is None:
            return {name: self.columns}
        return {name: {key: mask_missing(values, valid) for key, values in self.columns.items()}}


def _rows_of(values: Any, rows: NDArray[np.int64]) -> Any:
    if isinstance(values, BatchParts | np.ndarray):
        return values.take(rows) if isinstance(values, BatchParts) else values[rows]
    return [values[row] for row in rows.tolist()]


class DictDecoder(Decoder):
    """Gives dictionaries; of a batch, a dictionary of batches."""

    field: DictField

    def __init__(self, field: DictField) -> None:
        super().__init__(field)
        self._inner = {name: _decoder_of(one) for name, one in field.fields.items()}
        self._sized = field.sized

    def __call__(self, metadata: Any, read: ReadFunction) -> dict[str, Any]:
        """One dictionary."""
        data = read() if self._sized else memoryview(b"")
        sizes = [int(size) for size in metadata["sizes"]] if self._sized else []
        if sum(sizes) != len(data):
            raise FormatError("the sizes of a dictionary's values do not add up to its payload")
        ends = dict(zip(self._sized, np.cumsum(np.array(sizes, np.int64)).tolist(), strict=True))
        parts = dict(zip(self._sized, sizes, strict=True))
        return {
            name: decoder(
                self._row(metadata, name),
                lambda name=name: data[ends[name] - parts[name] : ends[name]] if name in parts else memoryview(b""),  # type: ignore[misc]
            )
            for name, decoder in self._inner.items()
        }

    def _row(self, metadata: Any, name: str) -> Any:
        key = self.field.keys[name]
        return metadata[key] if key in (metadata.dtype.names or ()) else np.zeros(1, NO_METADATA)[0]

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> DictBatch:
        """A dictionary of the inner fields' batches."""
        count = len(metadata)
        values, offsets = payloads.ragged() if self._sized else (np.zeros(0, np.uint8), np.zeros(count + 1, np.int64))
        sizes = np.zeros((count, 0), np.int64)
        if self._sized:
            stated = np.ascontiguousarray(metadata["sizes"])
            room = np.diff(offsets).astype(np.uint64)
            sums = stated.sum(axis=1, dtype=np.uint64)
            if (stated > room[:, None]).any() or (sums != room).any():
                raise FormatError("the sizes of a dictionary's values do not add up to its payload")
            sizes = stated.astype(np.int64)
        ends = offsets[:-1, None] + np.cumsum(sizes, axis=1)
        columns = {}
        for name, decoder in self._inner.items():
            key = self.field.keys[name]
            rows = (
                np.ascontiguousarray(metadata[key])
                if key in (metadata.dtype.names or ())
                else np.zeros(count, NO_METADATA)
            )
            place = self._sized.index(name) if name in self._sized else None
            mine = np.zeros(count, np.int64) if place is None else sizes[:, place]
            begins = mine if place is None else ends[:, place] - mine
            columns[name] = _batch_of(decoder, rows, SlicedPayloads(values, begins, mine, payloads.rows))
        return DictBatch(columns)


@dataclass(frozen=True, slots=True, init=False)
class DictField(Field):
    """A dictionary with a field for each key: ``DictField({"caption": TextField(), "score": FloatField()})``.

    Every sample has all keys. A batch is a dictionary of what each field makes of its values.
    """

    type_id: ClassVar[int] = TypeId.DICT
    collates_missing: ClassVar[bool] = True

    fields: dict[str, Field]

    def __init__(self, fields: Mapping[str, Field]) -> None:
        if not isinstance(fields, Mapping) or not fields:
            raise TypeError(f"fields={fields!r}: a mapping from name to field, of at least one")
        for name, field in fields.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"the key {name!r} is no text, or empty")
            _check_inner(f"the field of {name!r}", field)
        object.__setattr__(self, "fields", dict(fields))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DictField) and list(self.fields.items()) == list(other.fields.items())

    def __hash__(self) -> int:
        return hash(tuple(self.fields))

    @property
    def keys(self) -> dict[str, str]:
        """What the metadata row calls each key's part."""
        return {name: f"m{i}" for i, name in enumerate(self.fields)}

    @property
    def sized(self) -> list[str]:
        """The keys whose fields have payloads."""
        return [name for name, field in self.fields.items() if field.has_payload]

    @property
    def has_payload(self) -> bool:  # type: ignore[override]
        """Whether any inner field has."""
        return bool(self.sized)

    @property
    def worth_a_thread(self) -> bool:  # type: ignore[override]
        """Whether any inner field is."""
        return any(field.worth_a_thread for field in self.fields.values())

    @property
    def usual_compression(self) -> str | None:  # type: ignore[override]
        """That of the first inner field that has one."""
        return next((one.usual_compression for one in self.fields.values() if one.usual_compression), None)

    @property
    def dictionary_bytes(self) -> int:
        """The largest of the inner fields."""
        return max(field.dictionary_bytes for field in self.fields.values())

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """The rows of the inner fields, then the sizes of their payloads."""
        rows: list[Any] = [
            (self.keys[name], field.metadata_type)
            for name, field in self.fields.items()
            if field.metadata_type.itemsize
        ]
        return np.dtype(rows + ([("sizes", "<u8", (len(self.sized),))] if self.sized else []))

    def prepare(self, value: Any) -> dict[str, Any]:
        """Each value is taken hold of."""
        if not isinstance(value, Mapping):
            raise TypeError(f"expected a dictionary, got {type(value).__name__}")
        if value.keys() != self.fields.keys():
            raise ValueError(f"expected the keys {', '.join(self.fields)}, got {', '.join(map(str, value)) or 'none'}")
        made = {}
        for name, field in self.fields.items():
            if value[name] is None:
                raise ValueError(f"{name!r} is None; a missing value is a matter of the whole dictionary")
            try:
                made[name] = field.prepare(value[name])
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name!r}: {error}") from error
        return made

    def encode(self, value: Any) -> Encoded:
        """Takes what ``prepare`` made."""
        rows: list[Any] = []
        payloads = []
        for name, field in self.fields.items():
            try:
                encoded = field.encode(value[name])
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name!r}: {error}") from error
            if field.metadata_type.itemsize:
                rows.append(encoded.metadata)
            if field.has_payload:
                payloads.append(byte_view(encoded.payload))
        if payloads:
            rows.append(tuple(len(one) for one in payloads))
        return Encoded(tuple(rows), b"".join(payloads))

    def get_decoder_class(self) -> type[Decoder]:
        """Reads dictionaries."""
        return DictDecoder

    def collate(self, values: Sequence[Any]) -> DictBatch:
        """A dictionary of the inner fields' batches. In place of a missing value stands another."""
        there = [value for value in values if value is not None]
        if not there:
            return DictBatch({name: list(values) for name in self.fields})
        filled = [there[0] if value is None else value for value in values]
        return DictBatch({name: field.collate([one[name] for one in filled]) for name, field in self.fields.items()})

    def to_binary(self) -> bytes:
        """Names, types and options of the inner fields, in order."""
        told = [[name, *_described(field)] for name, field in self.fields.items()]
        return json.dumps({"fields": told}, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field that ``to_binary`` described."""
        return cls({name: _from_description(told) for name, *told in json.loads(data)["fields"]})
