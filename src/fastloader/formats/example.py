"""``tf.train.Example`` read without TensorFlow: the few parts of protobuf's wire format that it needs.

This is what ``kernels.parse_example`` does, in words that are easier to read; the tests hold the two equal.

An Example is ``{1: Features}``, Features ``{1: {1: name, 2: Feature}}`` for each, and a Feature one of
``{1: BytesList}``, ``{2: FloatList}`` and ``{3: Int64List}``, whose field 1 holds the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Feature = list[bytes] | NDArray[np.float32] | NDArray[np.int64]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def parse_example(data: bytes | memoryview) -> dict[str, Feature]:
    """The features by name, each with all its values. Bytes that are no Example give ``ValueError``."""
    data = bytes(data)
    found: dict[str, Feature] = {}
    for field, kind, value, at in _fields(data, 0, len(data)):
        if (field, kind) != (1, _BYTES):
            raise ValueError(f"at byte {at}: is no tf.train.Example")
        for inner, kind_within, entry, at_within in _fields(data, *value):
            if (inner, kind_within) != (1, _BYTES):
                raise ValueError(f"at byte {at_within}: is no tf.train.Example")
            name, feature = _entry(data, *entry)
            found[name] = feature
    return found


def _entry(data: bytes, at: int, end: int) -> tuple[str, Feature]:
    name, feature = "", _none()
    for field, kind, value, where in _fields(data, at, end):
        if kind != _BYTES or field not in (1, 2):
            raise ValueError(f"at byte {where}: no name and feature")
        if field == 1:
            name = str(data[value[0] : value[1]], "utf-8")
        else:
            feature = _feature(data, *value)
    return name, feature


def _none() -> Feature:
    return []


def _feature(data: bytes, at: int, end: int) -> Feature:
    found = _none()
    for field, kind, value, where in _fields(data, at, end):
        if kind != _BYTES or field not in (1, 2, 3):
            raise ValueError(f"at byte {where}: a feature holds bytes, floats or integers")
        found = (_bytes, _floats, _integers)[field - 1](data, *value)
    return found


def _bytes(data: bytes, at: int, end: int) -> Feature:
    found = []
    for field, kind, value, where in _fields(data, at, end):
        if (field, kind) != (1, _BYTES):
            raise ValueError(f"at byte {where}: a list of bytes is broken")
        found.append(data[value[0] : value[1]])
    return found


def _floats(data: bytes, at: int, end: int) -> Any:
    parts: list[Any] = []
    for field, kind, value, where in _fields(data, at, end):
        size = value[1] - value[0] if kind in (_BYTES, _FIXED32) else 1
        if field != 1 or size % 4:
            raise ValueError(f"at byte {where}: a list of floats is broken")
        parts.append(np.frombuffer(data, "<f4", size // 4, value[0]))
    return _joined(parts, np.float32)


def _integers(data: bytes, at: int, end: int) -> Any:
    parts: list[Any] = []
    for field, kind, value, where in _fields(data, at, end):
        if field != 1 or kind not in (_BYTES, _VARINT):
            raise ValueError(f"at byte {where}: a list of integers is broken")
        parts.append(varints(data[value[0] : value[1]]) if kind == _BYTES else np.array([_signed(value)]))
    return _joined(parts, np.int64)


def _joined(parts: list[Any], dtype: type[Any]) -> Any:
    return np.array(parts[0], dtype) if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def varints(data: bytes) -> NDArray[np.int64]:
    """Integers one behind the other, seven bits a byte, the lowest first.

    >>> varints(bytes([1, 0xAC, 0x02])).tolist()
    [1, 300]
    """
    if len(data) == 1 and data[0] < 128:
        return np.array([data[0]], np.int64)
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    if not len(raw):
        return np.zeros(0, np.int64)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise ValueError("an integer is cut short")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10:
        raise ValueError("an integer has more than ten bytes")
    place = np.arange(len(raw)) - np.repeat(starts, lengths)
    shifted = (raw & np.uint8(127)).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.add.reduceat(shifted, starts).view(np.int64)


def _fields(data: bytes, at: int, end: int) -> Any:
    """The fields of a message: number, wire type, value and place. A value of bytes is (from, to)."""
    while at < end:
        begin = at
        key, at = _varint(data, at, end)
        field, kind = key >> 3, key & 7
        if kind == _BYTES:
            size, at = _varint(data, at, end)
            stop = at + size
            if stop > end:
                raise ValueError(f"at byte {begin}: {size} bytes should follow, and {end - at} do")
            yield field, kind, (at, stop), begin
            at = stop
        elif kind == _VARINT:
            value, at = _varint(data, at, end)
            yield field, kind, value, begin
        elif kind in (_FIXED32, _FIXED64):
            stop = at + (4 if kind == _FIXED32 else 8)
            if stop > end:
                raise ValueError(f"at byte {begin}: a number is cut short")
            yield field, kind, (at, stop), begin
            at = stop
        else:
            raise ValueError(f"at byte {begin}: wire type {kind} is not known")


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), at
        shift += 7
        if shift > 63:
            raise ValueError(f"at byte {at}: an integer has more than ten bytes")
    raise ValueError(f"at byte {at}: an integer is cut short")
