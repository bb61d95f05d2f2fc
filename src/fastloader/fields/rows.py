"""Decoders that fill rows of one type and shape, written so that the loader can compile them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastloader.errors import DecodeError, FastLoaderError
from fastloader.fields.base import Decoder, PayloadBatch, ReadFunction
from fastloader.functions import COMPILED_TYPES, RETURNED, check_function, line_of

MAX_ROW_BYTES = 1 << 31


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function that fills one row of a batch: ``function(metadata, payload, out)``.

    ``metadata`` is a record of the field's ``metadata_type``, or ``()`` where it has none; ``payload`` an array of
    bytes (uint8), to be read only; ``out`` an array of this ``dtype`` and ``shape``, all zeros, which the function
    fills. A single number has the shape ``()`` and is set as ``out[()] = number``. It returns nothing.
    """

    function: Callable[[Any, NDArray[np.uint8], NDArray[Any]], None]
    dtype: DTypeLike
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        dtype = np.dtype(self.dtype)
        if dtype.name not in COMPILED_TYPES or not dtype.isnative:
            raise ValueError(f"dtype={self.dtype!r}: one of {', '.join(COMPILED_TYPES)}")
        try:
            shape = tuple(side.__index__() for side in self.shape)
        except (TypeError, AttributeError):
            raise TypeError(f"shape={self.shape!r}: a tuple of whole numbers") from None
        if any(side < 1 for side in shape) or prod(shape) * dtype.itemsize > MAX_ROW_BYTES:
            raise ValueError(f"shape={self.shape!r}: sides of at least 1, and at most {MAX_ROW_BYTES:,} bytes in all")
        check_function("the row function", self.function, ("metadata", "payload", "out"))
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def zeros(self, *samples: int) -> NDArray[Any]:
        """Room for rows."""
        return np.zeros((*samples, *self.shape), self.dtype)


class RowDecoder(Decoder):
    """A decoder whose values all have one type and shape: give it a ``row_function``.

    Where numba is installed, the loader compiles that function and runs it in its native threads without the GIL.
    Elsewhere, and with ``supports_jit = False``, the same function runs as plain Python.
    """

    supports_jit: ClassVar[bool] = True

    def row_function(self) -> RowFunction:
        """How a row of a batch is filled; ``self.field`` has the options."""
        raise TypeError(f"{type(self).__name__} does not say how to decode; give it a row_function()")

    @cached_property
    def row(self) -> RowFunction:
        """The row function, made once."""
        made = self.row_function()
        if not isinstance(made, RowFunction):
            raise TypeError(f"{type(self).__name__}.row_function gives a RowFunction, not a {type(made).__name__}")
        return made

    def fill(self, metadata: Any, payload: Any, out: NDArray[Any]) -> None:
        """One row, by plain Python; ``DecodeError`` tells the line where it failed."""
        given = metadata if self.field.metadata_type.itemsize else ()
        stored = np.frombuffer(payload, np.uint8)
        stored.flags.writeable = False
        try:
            # Compiled code counts with 64 bits: what would wrap round here has another result there.
            with np.errstate(over="raise"):
                returned: Any = self.row.function(given, stored, out)  # type: ignore[func-returns-value]
        except FastLoaderError:
            raise
        except Exception as error:
            raise DecodeError(f"the decoder {type(self).__name__} failed in {line_of(error)}") from error
        if returned is not None:
            raise DecodeError(f"the decoder {type(self).__name__} {RETURNED}")

    def __call__(self, metadata: Any, read: ReadFunction) -> Any:
        """The row, as an array; a numpy number where it has no dimensions."""
        out = self.row.zeros()
        self.fill(metadata, read(), out)
        return out if self.row.shape else out[()]

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> NDArray[Any]:
        """(batch, *shape), by plain Python; missing ones are zeros."""
        out = self.row.zeros(len(metadata))
        there = np.flatnonzero(payloads.rows >= 0).tolist()
        values, offsets = payloads.ragged() if self.field.has_payload else (np.zeros(0, np.uint8), None)
        for i in there:
            payload = values if offsets is None else values[offsets[i] : offsets[i + 1]]
            self.fill(metadata[i], payload, out[i, ...])
        return out
