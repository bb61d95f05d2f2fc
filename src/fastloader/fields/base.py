"""What a field is: how a value becomes a fixed-width metadata row and a payload, and back.

A field of your own needs a class like this and one line of registration::

    @register_type(1000)
    class PointField(Field):
        ...

See ``examples/custom_field.py``.
"""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.types import Buffer, stack

NO_METADATA = np.dtype([])
_MUCH = 16 << 20

ReadFunction = Callable[[], memoryview]
"""Gives a sample's payload, checked and decompressed; called at most when needed."""


class Encoded(NamedTuple):
    """What a field made of a value: its metadata row (a tuple in the dtype's order) and its payload, if it has one."""

    metadata: tuple[Any, ...] = ()
    payload: Buffer = b""


class Decoder:
    """Turns one sample's metadata row and payload back into a value."""

    def __init__(self, field: Field) -> None:
        self.field = field

    def __call__(self, metadata: Any, read: ReadFunction) -> Any:
        """The value. ``metadata`` is a record of the field's ``metadata_type``."""
        raise TypeError(f"{type(self).__name__} does not say how to decode; give it a __call__(metadata, read)")


@dataclass(frozen=True, slots=True)
class PayloadBatch:
    """The payloads of one field for the samples of a batch. A negative row is a missing value."""

    sources: list[kernels.Payloads]
    which: NDArray[np.int32] | None
    rows: NDArray[np.int64]

    def fixed(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """All payloads as one array (batch, *shape); each must have exactly that many bytes."""
        row_bytes = prod(shape) * dtype.itemsize
        if row_bytes * len(self.rows) > _MUCH:
            present = np.flatnonzero(self.rows >= 0)[:1]
            if not len(present):
                return np.broadcast_to(np.zeros((), dtype), (len(self.rows), *shape))
            self._check_size(int(present[0]), row_bytes)
        out = np.empty((len(self.rows), *shape), dtype)
        kernels.gather_fixed(self.sources, self.which, self.rows, row_bytes, out)
        return out

    def _check_size(self, position: int, row_bytes: int) -> None:
        """Options can claim any shape: before much memory is taken for it, a payload must have that size."""
        source = self.sources[0 if self.which is None else int(self.which[position])]
        try:
            size = source.extent(int(self.rows[position]))[2]
        except kernels.Failure as failure:
            raise FormatError(failure.args[1]) from failure
        if size != row_bytes:
            raise FormatError(f"the payload has {size} bytes, not {row_bytes}")

    def ragged(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All payloads one behind the other, and the ``batch + 1`` offsets between them."""
        return kernels.gather_ragged(self.sources, self.which, self.rows)

    def bytes(self) -> list[bytes]:
        """A bytes object for each payload."""
        return kernels.gather_bytes(self.sources, self.which, self.rows)


@runtime_checkable
class BatchDecoder(Protocol):
    """A decoder that can also do a whole batch in one native call. It must give what one by one would give."""

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """The values of a batch, as the field's ``collate`` would return them."""
        ...


class Field(ABC):
    """Describes one column of a dataset. Subclasses are frozen dataclasses whose attributes are their options."""

    type_id: ClassVar[int] = 0
    has_payload: ClassVar[bool] = True

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """The fixed-width row kept for each sample; an empty structured dtype when there is none."""
        return NO_METADATA

    @abstractmethod
    def encode(self, value: Any) -> Encoded:
        """The stored form of a value. Runs in a worker thread; raises ValueError or TypeError for a bad value."""

    @abstractmethod
    def get_decoder_class(self) -> type[Decoder]:
        """The class that reads values back."""

    def to_binary(self) -> bytes:
        """The options as stored in the file: here, JSON of the dataclass fields."""
        options: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)} if is_dataclass(self) else {}
        return json.dumps(options, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field with the options that ``to_binary`` stored."""
        return cls(**json.loads(data))

    def prepare(self, value: Any) -> Any:
        """Take hold of a value in the caller's thread, so that the caller may reuse its memory at once."""
        if isinstance(value, np.ndarray):
            return value.copy()
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        return copy.deepcopy(value)

    def collate(self, values: Sequence[Any]) -> Any:
        """Values of several samples as one: an array where shapes agree, else a list."""
        return stack(values)
