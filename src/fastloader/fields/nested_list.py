"""Lists of values of another field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.fields.base import (
    NO_METADATA,
    Decoder,
    Encoded,
    Field,
    PayloadBatch,
    ReadFunction,
    naming,
)
from fastloader.fields.basic import FloatField, IntField
from fastloader.fields.image import RawImageField
from fastloader.fields.ndarray import ArrayDecoder, NDArrayField
from fastloader.fields.nested import (
    NestedField,
    SlicedPayloads,
    batch_of,
    check_inner,
    decoder_of,
    described,
    from_description,
    spread,
)
from fastloader.types import TypeId, byte_view

_COUNT = np.dtype([("count", "<u8")])
_SIZE = np.dtype("<u4")


class ListDecoder(Decoder):
    """Gives lists of what the inner field gives, all elements of a batch decoded at once."""

    field: ListField

    def __init__(self, field: ListField) -> None:
        super().__init__(field)
        self._inner = decoder_of(field.field)
        self._width = field.field.metadata_type.itemsize
        self._sized = field.field.has_payload

    def __call__(self, metadata: Any, read: ReadFunction) -> list[Any]:
        """The values of one sample."""
        data = np.frombuffer(read(), np.uint8)
        rows, payloads, _ = self._parts(np.array([metadata["count"]]), data, np.array([0, len(data)], np.int64))
        return [
            self._inner(rows[i], lambda i=i: payloads.part(i).data)  # type: ignore[misc]
            for i in range(len(payloads.sizes))
        ]

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> list[Any]:
        """A list of lists, with ``None`` for what is missing."""
        rows, inner, counts = self._parts(metadata["count"], *payloads.ragged())
        values = batch_of(self._inner, rows, inner)
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
class ListField(NestedField):
    """Any number of values of one field: several captions of an image, say. ``ops.Choose`` takes one of them.

    A value is a list, a batch a list of lists. Where all elements are numbers or arrays of one shape (``IntField``,
    ``FloatField``, ``RawImageField``, ``NDArrayField`` of a fixed shape), a value is one array (count, ...), and
    ``DataLoader(pad=...)`` joins or pads them.
    """

    type_id: ClassVar[int] = TypeId.LIST

    field: Field

    def __post_init__(self) -> None:
        check_inner("the field of a list", self.field)

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
            with naming(f"element {i}"):
                values[i] = self.field.prepare(one)
        return values

    def encode(self, value: Any) -> Encoded:
        """Takes what ``prepare`` made."""
        made = []
        for i, one in enumerate(value):
            with naming(f"element {i}"):
                made.append(self.field.encode(one))
        rows = np.array([one.metadata for one in made], self.field.metadata_type).tobytes()
        payloads = [byte_view(one.payload) for one in made] if self.field.has_payload else []
        if any(len(one) >= 2**32 for one in payloads):
            raise ValueError("an element has 4 GiB or more")
        sizes = np.array([len(one) for one in payloads], _SIZE).tobytes() if self.array is None else b""
        count = (len(made),)
        return Encoded(count if self.array is None else (count,), b"".join([rows, sizes, *payloads]))

    def get_decoder_class(self) -> type[Decoder]:
        """Reads lists, or arrays."""
        return ListDecoder if self.array is None else ArrayDecoder

    def collate(self, values: Sequence[Any]) -> Any:
        """A list of lists; arrays as those of ``NDArrayField``."""
        return list(values) if self.array is None else self.array.collate(values)

    def to_binary(self) -> bytes:
        """Type and options of the inner field."""
        return json.dumps({"field": described(self.field)}, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field that ``to_binary`` described."""
        return cls(from_description(json.loads(data)["field"]))
