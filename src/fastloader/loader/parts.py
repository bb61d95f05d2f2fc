"""What the engine gives of a field, and what is made of it: the words that columns and their works share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, FastLoaderError, FormatError
from fastloader.pipeline import Sizes

Parts = tuple[NDArray[np.uint8] | None, NDArray[np.uint8] | None, NDArray[np.int64] | None, NDArray[np.uint8] | None]
"""What the engine gives of a field: metadata rows, values, the offsets between them, and which are there."""

EnginePlan = tuple[
    int,
    int,
    int,
    int,
    tuple[int, int, int, int, bool, bytes] | None,
    list[tuple[kernels.Program, bool]] | kernels.SoundProgram,
]
"""What the engine is told of a field: kind, sizes of metadata and of a row, kind of image, elements, programs."""

KINDS = {"rows": 0, "fixed": 1, "ragged": 2, "image": 3, "padded": 4, "program": 5, "sound": 6}
"""The engine's numbers of the plans."""

Value = tuple[Any, NDArray[np.bool_] | None]
"""A field's part of a batch, and which of it is there, or ``None`` for all."""

_NOTHING = np.zeros(0, np.uint8)
_NO_OFFSETS = np.zeros(0, np.int64)
_EMPTY = memoryview(b"")


class SlotPayloads(NamedTuple):
    """A batch's payloads of one field, where the engine put them."""

    values: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]

    def fixed(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """All payloads as one array (batch, *shape)."""
        row_bytes = prod(shape) * dtype.itemsize
        if not len(self.values) and row_bytes and (self.rows < 0).all():  # nothing is there, so nothing was allocated
            return np.broadcast_to(np.zeros((), dtype), (len(self.rows), *shape))
        if len(self.offsets) and (np.diff(self.offsets) != row_bytes)[self.rows >= 0].any():
            raise FormatError(f"a payload has not the {row_bytes} bytes of {shape} {dtype}")
        return self.values.view(dtype).reshape(len(self.rows), *shape)

    def ragged(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All payloads one behind the other, and the offsets between them."""
        return self.values, self.offsets

    def bytes(self) -> list[bytes]:
        """A bytes object for each payload."""
        view, ends = self.values.data, self.offsets.tolist()
        return [view[ends[i] : ends[i + 1]].tobytes() for i in range(len(self.rows))]

    def images(self, kind: int, shapes: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The pixels, decoded by the engine."""
        return self.values, self.offsets

    def one(self, position: int) -> memoryview:
        """One payload."""
        return self.values[self.offsets[position] : self.offsets[position + 1]].data if len(self.offsets) else _EMPTY


@dataclass(frozen=True, slots=True)
class Fault:
    """A value of a batch that could not be had: at which row, of which field, and why."""

    row: int
    field: str
    error: Exception


class Made(NamedTuple):
    """What became of a column: fields of the batch, and sizes of images that others must have too."""

    values: dict[str, Value]
    sizes: list[Sizes]


class Given(NamedTuple):
    """What the engine made of a field, for these samples of an epoch. What Python can't make is added to ``faults``."""

    name: str
    parts: Parts
    numbers: NDArray[np.int64]
    epoch: int
    faults: list[Fault]

    @property
    def valid(self) -> NDArray[np.bool_] | None:
        """Which values are there; ``None`` for all."""
        valid = self.parts[3]
        return None if valid is None else valid.view(np.bool_)

    @property
    def there(self) -> NDArray[np.bool_]:
        """The same, to be changed."""
        valid = self.valid
        return np.ones(len(self.numbers), np.bool_) if valid is None else valid.copy()

    @property
    def data(self) -> NDArray[np.uint8]:
        """The values' bytes."""
        data = self.parts[1]
        assert data is not None
        return data

    def stored(self, metadata_type: np.dtype[Any]) -> tuple[NDArray[Any], SlotPayloads]:
        """Metadata rows and payloads, as decoders take them."""
        samples, valid = len(self.numbers), self.valid
        metadata, data, offsets, _ = self.parts
        rows = _zeros(samples) if valid is None else np.where(valid, 0, -1)
        return (
            np.zeros(samples, metadata_type) if metadata is None else metadata.view(metadata_type),
            SlotPayloads(_NOTHING if data is None else data, _NO_OFFSETS if offsets is None else offsets, rows),
        )

    def bad(self, row: int, error: Exception) -> None:
        """A value that could not be made."""
        self.faults.append(Fault(row, self.name, as_known(error)))

    def without(self, valid: NDArray[np.bool_] | None, wrong: Mapping[int, Exception]) -> NDArray[np.bool_] | None:
        """Which values are there, less those that could not be made."""
        if not wrong:
            return valid
        valid = np.ones(len(self.numbers), np.bool_) if valid is None else valid.copy()
        valid[list(wrong)] = False
        for row, error in wrong.items():
            self.bad(row, error)
        return valid


def as_known(error: Exception) -> FastLoaderError:
    """The error, as one that can name its sample."""
    if isinstance(error, FastLoaderError):
        return error
    known = DecodeError(f"does not decode: {type(error).__name__}: {error}")
    known.__cause__ = error
    return known


def all_or(good: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """``None`` where all are there."""
    return None if good.all() else good


@lru_cache(8)
def _zeros(count: int) -> NDArray[np.int64]:
    zeros = np.zeros(count, np.int64)
    zeros.flags.writeable = False
    return zeros
