"""Vectors of one length."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.fields.base import NO_METADATA, Decoder, Encoded, EncodedColumn, Field, PayloadBatch, Plan, ReadFunction
from fastloader.fields.convert import whole
from fastloader.types import TypeId

DTYPES = ("float32", "float16", "bfloat16", "int8")
MOST_DIMENSIONS = 1 << 24
_LARGEST = 127
_SCALE = np.dtype([("scale", "<f4")])


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name != "bfloat16":
        return np.dtype(name)
    try:
        found: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        return found
    except ImportError as error:
        raise ModuleNotFoundError(
            "numpy has no bfloat16 of its own: pip install ml_dtypes", name="ml_dtypes"
        ) from error


class EmbeddingDecoder(Decoder):
    """Gives vectors; those of one byte a number come as float32."""

    field: EmbeddingField

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """The vector."""
        data = read()
        stored = self.field.stored_dtype
        if len(data) != self.field.dim * stored.itemsize:
            raise FormatError(f"{len(data)} bytes are no {self.field.dim} numbers of {self.field.dtype}")
        vector = np.frombuffer(data, stored)
        if self.field.dtype == "int8":
            scaled: NDArray[Any] = vector * metadata["scale"]
            return scaled
        return vector if vector.flags.aligned else vector.copy()

    @property
    def plan(self) -> Plan:
        """All of one size."""
        return Plan("fixed", self.field.dim * self.field.stored_dtype.itemsize)

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> NDArray[Any]:
        """(batch, dim) numbers."""
        rows = payloads.fixed((self.field.dim,), self.field.stored_dtype)
        if self.field.dtype != "int8":
            return rows
        scaled: NDArray[Any] = np.multiply(rows, metadata["scale"][:, None], dtype=np.float32)
        return scaled


@dataclass(frozen=True, slots=True)
class EmbeddingField(Field):
    """A vector of ``dim`` numbers, each finite. Batches are arrays (batch, dim).

    ``dtype``: "float32", "float16", "bfloat16" (the dtype of ``ml_dtypes``), to which given numbers are rounded; or
    "int8", which stores a byte a number and a scale a vector and gives float32. There, no number is off by more than
    1/254 of the largest in its vector.
    """

    type_id: ClassVar[int] = TypeId.EMBEDDING
    worth_a_thread: ClassVar[bool] = False

    dim: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        dim = whole("dim", self.dim)
        if isinstance(self.dim, bool) or not 1 <= dim <= MOST_DIMENSIONS:
            raise ValueError(f"dim={self.dim!r}: from 1 to {MOST_DIMENSIONS}")
        object.__setattr__(self, "dim", dim)
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r}: one of {', '.join(DTYPES)}")
        _numpy_dtype(self.dtype)

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """What a number is in the file."""
        return _numpy_dtype(self.dtype)

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """The scale, where there is one."""
        return _SCALE if self.dtype == "int8" else NO_METADATA

    def _checked(self, given: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Numbers as float32, finite in the field's own type too."""
        if given.dtype.kind not in "fiu" and given.dtype.name != "bfloat16":
            raise TypeError(f"expected {self.dim} numbers, got an array of {given.dtype}")
        if given.shape != shape:
            raise ValueError(f"expected shape {shape}, got {given.shape}")
        with np.errstate(over="ignore"):
            numbers = given.astype(np.float32)
            kept = numbers if self.dtype == "int8" else numbers.astype(self.stored_dtype).astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(kept))
        if len(bad):
            value = given.reshape(-1)[bad[0]]
            why = f"is too large for {self.dtype}" if np.isfinite(np.float64(value)) else "is no finite number"
            raise ValueError(f"{value} at [{bad[0] % self.dim}] {why}")
        return numbers

    def _stored(self, numbers: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
        """Vectors as stored, and their scales."""
        if self.dtype != "int8":
            return numbers.astype(self.stored_dtype), None
        scales = (np.abs(numbers).max(axis=1) / _LARGEST).astype(np.float32)
        steps = np.divide(numbers, scales[:, None], out=np.zeros(numbers.shape, np.float64), where=scales[:, None] > 0)
        return np.clip(np.rint(steps), -_LARGEST, _LARGEST).astype(np.int8), scales

    def encode(self, value: Any) -> Encoded:
        """Takes an array, a list, or whatever numpy makes an array of."""
        vectors, scales = self._stored(self._checked(np.asarray(value), (self.dim,))[None])
        return Encoded(() if scales is None else (scales[0],), vectors[0].view(np.uint8))

    def encode_many(self, values: Sequence[Any]) -> EncodedColumn | None:
        """Arrays of one type, all at once."""
        if set(map(type, values)) != {np.ndarray} or len({(one.dtype, one.shape) for one in values}) != 1:
            return None
        try:
            vectors, scales = self._stored(self._checked(np.stack(values), (len(values), self.dim)))
        except (TypeError, ValueError):  # told by encode, with the value's number
            return None
        rows = np.zeros(len(values), self.metadata_type)
        if scales is not None:
            rows["scale"] = scales
        return EncodedColumn(rows, [vector.tobytes() for vector in vectors])

    def get_decoder_class(self) -> type[Decoder]:
        """Reads vectors."""
        return EmbeddingDecoder
