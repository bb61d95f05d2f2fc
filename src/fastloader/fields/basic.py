"""Numbers, bytes and JSON."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader.fields.base import (
    NO_METADATA,
    Decoder,
    Elements,
    Encoded,
    EncodedColumn,
    Field,
    PayloadBatch,
    ReadFunction,
)
from fastloader.types import TypeId

_INT_ROW = np.dtype([("value", "<i8")])
_FLOAT_ROW = np.dtype([("value", "<f8")])

_PLAIN_INTEGERS = frozenset(
    {bool, int, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32}  # all fit, but for int
)
_PLAIN_NUMBERS = frozenset({bool, int, float, np.float16, np.float32, np.float64})
_PLAIN_BYTES = frozenset({bytes})


def _numbers(values: Sequence[Any], plain: frozenset[type], row: np.dtype[Any]) -> EncodedColumn | None:
    """Rows of one number each, if all are of the types that numpy converts as ``encode`` does."""
    if not plain.issuperset(map(type, values)):
        return None
    try:
        return EncodedColumn(np.array(values, row["value"]).view(row))
    except OverflowError:
        return None


def _ready(values: Sequence[Any]) -> EncodedColumn | None:
    """Bytes as they are, with no metadata."""
    if not _PLAIN_BYTES.issuperset(map(type, values)):
        return None
    return EncodedColumn(np.zeros(len(values), NO_METADATA), values)


class ScalarDecoder(Decoder):
    """Reads the number from its metadata row."""

    def __call__(self, metadata: Any, read: ReadFunction) -> Any:
        """A Python int or float."""
        return metadata["value"].item()

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> NDArray[Any]:
        """(batch,) numbers."""
        return np.ascontiguousarray(metadata["value"])


@dataclass(frozen=True, slots=True)
class IntField(Field):
    """A 64-bit signed integer, kept in the metadata table. Batches are int64 arrays."""

    type_id: ClassVar[int] = TypeId.INT
    has_payload: ClassVar[bool] = False
    worth_a_thread: ClassVar[bool] = False

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """One int64."""
        return _INT_ROW

    def encode(self, value: Any) -> Encoded:
        """Takes anything that is an integer: int, bool, numpy integers."""
        number = operator.index(value.item() if isinstance(value, np.ndarray | np.generic) else value)
        if not -(2**63) <= number < 2**63:
            raise ValueError(f"{number} does not fit in 64 bits")
        return Encoded((number,))

    def encode_many(self, values: Sequence[Any]) -> EncodedColumn | None:
        """Plain integers, all at once."""
        return _numbers(values, _PLAIN_INTEGERS, _INT_ROW)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads ints."""
        return ScalarDecoder


@dataclass(frozen=True, slots=True)
class FloatField(Field):
    """A 64-bit float, kept in the metadata table. Batches are float64 arrays."""

    type_id: ClassVar[int] = TypeId.FLOAT
    has_payload: ClassVar[bool] = False
    worth_a_thread: ClassVar[bool] = False

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """One float64."""
        return _FLOAT_ROW

    def encode(self, value: Any) -> Encoded:
        """Takes anything ``float`` takes, except text; an array of one element counts as that element."""
        if isinstance(value, str | bytes):
            raise TypeError("expected a number, got text")
        return Encoded((float(value.item() if isinstance(value, np.ndarray | np.generic) else value),))

    def encode_many(self, values: Sequence[Any]) -> EncodedColumn | None:
        """Plain numbers, all at once."""
        return _numbers(values, _PLAIN_NUMBERS, _FLOAT_ROW)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads floats."""
        return ScalarDecoder


class BytesDecoder(Decoder):
    """Gives the payload itself."""

    def __call__(self, metadata: Any, read: ReadFunction) -> bytes:
        """The bytes."""
        return bytes(read())

    @property
    def elements(self) -> Elements:
        """Bytes."""
        return Elements(np.dtype(np.uint8))

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> list[bytes]:
        """A list of bytes."""
        return payloads.bytes()


@dataclass(frozen=True, slots=True)
class BytesField(Field):
    """Bytes of any length. Batches are lists of ``bytes``."""

    type_id: ClassVar[int] = TypeId.BYTES
    worth_a_thread: ClassVar[bool] = False

    def prepare(self, value: Any) -> bytes:
        """The bytes, in our own memory."""
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            raise TypeError("expected bytes, got str; encode it first, or use JSONField")
        if isinstance(value, np.ndarray) and value.dtype != np.uint8:
            raise TypeError(f"expected bytes or a uint8 array, got an array of {value.dtype}; use NDArrayField")
        return memoryview(value).tobytes()

    def encode(self, value: Any) -> Encoded:
        """Takes bytes, a uint8 array, or any other buffer: bytearray, memoryview, mmap."""
        return Encoded((), value if type(value) is bytes else self.prepare(value))

    def encode_many(self, values: Sequence[Any]) -> EncodedColumn | None:
        """What ``prepare`` made is what is stored."""
        return _ready(values)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads bytes."""
        return BytesDecoder

    def collate(self, values: Sequence[Any]) -> list[Any]:
        """Always a list."""
        return list(values)


def _check_keys(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    raise TypeError(f"the dictionary key {key!r} is {type(key).__name__}; JSON has text keys: use str")
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item


class JSONDecoder(Decoder):
    """Parses the payload."""

    def __call__(self, metadata: Any, read: ReadFunction) -> Any:
        """What ``json.loads`` gives."""
        return json.loads(bytes(read()))

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> list[Any]:
        """A list of values; ``None`` where there is no payload."""
        texts = payloads.bytes()
        return [json.loads(text) if row >= 0 else None for text, row in zip(texts, payloads.rows, strict=True)]


@dataclass(frozen=True, slots=True)
class JSONField(Field):
    """Anything JSON can say: text, numbers, lists, dictionaries. Stored as UTF-8; batches are lists.

    ``None`` is a missing value here as in every field; inside lists and dictionaries it is JSON's null. Tuples come
    back as lists. Keys of dictionaries must be text: ``json`` would turn others into text, and two into one. NaN and
    infinities come back; they are stored as the words ``NaN`` and ``Infinity``, which strict JSON does not have.
    """

    type_id: ClassVar[int] = TypeId.JSON
    worth_a_thread: ClassVar[bool] = False

    def prepare(self, value: Any) -> bytes:
        """Serialised at once, so later changes to the value do not matter."""
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        _check_keys(value)
        return text.encode("utf-8", "surrogatepass")

    def encode(self, value: Any) -> Encoded:
        """Takes what ``prepare`` made, or a value."""
        return Encoded(payload=value if isinstance(value, bytes) else self.prepare(value))

    def encode_many(self, values: Sequence[Any]) -> EncodedColumn | None:
        """What ``prepare`` made is what is stored."""
        return _ready(values)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads JSON."""
        return JSONDecoder

    def collate(self, values: Sequence[Any]) -> list[Any]:
        """Always a list."""
        return list(values)
