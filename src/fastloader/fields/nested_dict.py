"""Dictionaries with a field for each key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.fields.base import NO_METADATA, BatchParts, Decoder, Encoded, Field, PayloadBatch, ReadFunction, naming
from fastloader.fields.nested import (
    NestedField,
    SlicedPayloads,
    batch_of,
    check_inner,
    decoder_of,
    described,
    from_description,
)
from fastloader.types import TypeId, byte_view, mask_missing


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
        self._inner = {name: decoder_of(one) for name, one in field.fields.items()}
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
            columns[name] = batch_of(decoder, rows, SlicedPayloads(values, begins, mine, payloads.rows))
        return DictBatch(columns)


@dataclass(frozen=True, slots=True, init=False)
class DictField(NestedField):
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
            check_inner(f"the field of {name!r}", field)
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
            with naming(repr(name)):
                made[name] = field.prepare(value[name])
        return made

    def encode(self, value: Any) -> Encoded:
        """Takes what ``prepare`` made."""
        rows: list[Any] = []
        payloads = []
        for name, field in self.fields.items():
            with naming(repr(name)):
                encoded = field.encode(value[name])
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
        told = [[name, *described(field)] for name, field in self.fields.items()]
        return json.dumps({"fields": told}, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field that ``to_binary`` described."""
        return cls({name: from_description(told) for name, *told in json.loads(data)["fields"]})
