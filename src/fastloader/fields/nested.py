"""Fields that are part of another: payloads that are slices of its payload, and their options within its options."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, FormatError
from fastloader.fields.base import BatchDecoder, Decoder, Field
from fastloader.fields.packed import PackedTextField

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
            return np.concatenate([self.part(i) for i in range(len(self.sizes))]), offsets
        return self.values[spread(self.starts, self.sizes)], offsets

    def part(self, i: int) -> NDArray[np.uint8]:
        """One payload."""
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
        return [self.part(i).tobytes() for i in range(len(self.sizes))]

    def images(self, kind: int, shapes: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The pixels of all payloads one behind the other, and the offsets between them."""
        found = [np.zeros(0, np.uint8)]
        for i, (height, width, channels, bits) in enumerate(shapes.view(np.uint32).reshape(-1, 4).tolist()):
            shape = height, width, channels, bits
            pixels = kernels.decode_image(kind, self.part(i), shape) if self.rows[i] >= 0 else found[0]
            found.append(pixels.reshape(-1).view(np.uint8))
        return np.concatenate(found), np.cumsum([len(one) for one in found])


def spread(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from each start on, as many as its length, one run behind the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def batch_of(decoder: Decoder, metadata: NDArray[Any], payloads: SlicedPayloads) -> Any:
    """An inner field's part of a batch."""
    if isinstance(decoder, BatchDecoder):
        try:
            return decoder.batch(metadata, payloads)
        except kernels.Failure as failure:  # its position counts elements, and whoever asked counts samples
            raise DecodeError(failure.args[1]) from failure
    values = [
        decoder(metadata[i], lambda i=i: payloads.part(i).data) if row >= 0 else None  # type: ignore[misc]
        for i, row in enumerate(payloads.rows.tolist())
    ]
    return values if any(one is None for one in values) else decoder.field.collate(values)


class NestedField(Field):
    """A field made of others."""


def check_inner(what: str, field: Any) -> Field:
    """The field, which must be one that can be part of another."""
    if not isinstance(field, Field):
        raise TypeError(f"{what} is a {type(field).__name__}; give an instance of a Field, like TextField()")
    if isinstance(field, NestedField):
        raise TypeError(
            f"{what} is a {type(field).__name__}: fields are nested one level deep; JSONField takes any depth"
        )
    if isinstance(field, PackedTextField) or not field.type_id:
        raise TypeError(f"{what}: {type(field).__name__} can't be part of another field")
    if not field.has_payload and not field.metadata_type.itemsize:
        raise TypeError(f"{what}: {type(field).__name__} stores nothing")
    return field


def described(field: Field) -> list[Any]:
    """Type and options of an inner field, for JSON."""
    options = field.to_binary()
    try:
        return [int(field.type_id), options.decode()]
    except UnicodeDecodeError:
        return [int(field.type_id), {"base64": base64.b64encode(options).decode()}]


def from_description(told: Any) -> Field:
    """The field that ``described`` told of."""
    from fastloader.fields.registry import field_class  # which knows the fields made of others, too

    number, options = told
    data = base64.b64decode(options["base64"]) if isinstance(options, dict) else options.encode()
    return field_class(number).from_binary(data)


def decoder_of(field: Field) -> Decoder:
    """What reads values of an inner field."""
    return field.get_decoder_class()(field)
