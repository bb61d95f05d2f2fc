"""What the leaves of LitData's samples are stored as: by the names that its serializers have in ``index.json``."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from fastloader.formats.mds import files_of, pixels

Decoder = Callable[[memoryview], Any]

_NUMPY = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "bool",
)  # fmt: skip
_TORCH = (
    "float32", "float32", "float64", "float64", "complex64", "complex64", "complex128", "complex128", "float16",
    "float16", "", "uint8", "int8", "int16", "int16", "int32", "int32", "int64", "int64", "bool", "uint16",
)  # fmt: skip
"""Types by number. Those of torch have some under two names; ``bfloat16`` can't be written."""

_FILES = ("jpeg", "image", "video", "audio", "nifti", "mesh", "pdf", "file", "tifffile", "tiff", "bytes")
"""Kept as the bytes that the file had."""
IN_ROWS = frozenset({"str", "bool", "int", "float", "bytes", "json", "pickle"})
"""Samples of these alone may be rows of an Arrow table behind the chunk."""


@cache
def decoder_of(stored: str) -> Decoder | str:
    """How a leaf is read, or why it is not."""
    kind, _, rest = stored.partition(":")
    if kind in _DECODERS:
        return _DECODERS[kind]
    if kind in _FILES:
        return bytes
    if kind in ("no_header_numpy", "no_header_tensor"):
        types = _NUMPY if kind == "no_header_numpy" else _TORCH
        try:
            dtype = np.dtype(_type(types, int(rest)))
        except ValueError as error:
            return f"is stored as {stored!r}: {error}"
        return lambda data: np.frombuffer(data, dtype)
    if kind in ("pickle", "graph"):
        return "is a pickle, which is not read: loading one may run code"
    return f"is stored by a serializer {stored!r} that is not known here"


def _type(types: tuple[str, ...], number: int) -> str:
    if not 0 <= number < len(types) or not types[number]:
        raise ValueError(f"no type of arrays is told by {number}")
    return types[number]


def _array(data: memoryview, types: tuple[str, ...], order: str) -> Any:
    number, ndim = struct.unpack_from(f"{order}2I", data)
    if ndim > 64:
        raise ValueError(f"an array of {ndim} axes")
    shape = struct.unpack_from(f"{order}{ndim}I", data, 8)
    dtype = np.dtype(_type(types, number))
    room = len(data) - 8 - 4 * ndim
    if room != prod(shape) * dtype.itemsize:
        raise ValueError(f"{room} bytes are no array of {dtype} of the shape {shape}")
    return np.frombuffer(data, dtype, offset=8 + 4 * ndim).reshape(shape)


def _tensor(data: memoryview) -> Any:
    # The header was little-endian until LitData 0.2.50 or so. No type that is written has the number 0.
    return _array(data, _TORCH, "<" if data and data[0] else ">")


def _text(data: memoryview) -> str:
    return str(data, "utf-8")


def _json(data: memoryview) -> Any:
    """A list or a dictionary."""
    if not data or data[0] > 0x20:
        return json.loads(bytes(data))
    reading = _Nested(data)
    found = reading.value()
    if reading.at != len(data):
        raise ValueError(f"{len(data) - reading.at} bytes are left over")
    return found


def numbers(stored: str, data: memoryview, value: Any) -> Any:
    """A value, or an array where it is a list of numbers, as those of tables are."""
    if stored == "json" and data[0] in (2, 3):
        return np.array(value, "<i8" if data[0] == 2 else "<f8")
    return value


class _Nested:
    """Values behind each other, each with a byte before it that tells its kind."""

    def __init__(self, data: memoryview) -> None:
        self._data, self.at = data, 0

    def take(self, size: int) -> memoryview:
        """The next bytes."""
        if self.at + size > len(self._data):
            raise ValueError(f"it ends {self.at + size - len(self._data)} bytes early")
        self.at += size
        return self._data[self.at - size : self.at]

    def count(self) -> int:
        """A number of things, none of which takes less than a byte."""
        found = int.from_bytes(self.take(4), "little")
        if found > len(self._data):
            raise ValueError(f"{found} values in {len(self._data)} bytes")
        return found

    def text(self) -> str:
        """With its size before it."""
        return str(self.take(self.count()), "utf-8")

    def value(self) -> Any:
        """The next value."""
        kind = self.take(1)[0]
        if kind in _SCALARS:
            return _SCALARS[kind](self)
        if kind == 0:
            return json.loads(bytes(self.take(self.count())))
        count = self.count()
        if kind == 1:
            return [self.text() for _ in range(count)]
        if kind in (2, 3):
            return np.frombuffer(self.take(8 * count), "<i8" if kind == 2 else "<f8").tolist()
        if kind == 4:
            return [byte != 0 for byte in self.take(count)]
        if kind == 5:
            return {self.text(): self.value() for _ in range(count)}
        if kind == 6:
            names = [self.text() for _ in range(self.count())]
            return [{name: self._cell() for name in names} for _ in range(count)] if names else []
        raise ValueError(f"no kind of value is told by {kind}")

    def _cell(self) -> Any:
        kind = self.take(1)[0]
        if kind not in _CELLS:
            raise ValueError(f"no kind of value is told by {kind}")
        return _SCALARS[_CELLS[kind]](self)


_SCALARS: dict[int, Callable[[_Nested], Any]] = {
    7: _Nested.text,
    8: lambda one: struct.unpack("<q", one.take(8))[0],
    9: lambda one: struct.unpack("<d", one.take(8))[0],
    10: lambda one: one.take(1)[0] != 0,
    11: lambda one: None,
}
_CELLS = {16: 11, 17: 7, 18: 8, 19: 9, 20: 10}
"""The same kinds, as records have them."""


def _one(form: str) -> Decoder:
    return lambda data: struct.unpack(form, data)[0]


_DECODERS: dict[str, Decoder] = {
    "str": _text, "text": _text, "int": _one("<q"), "float": _one("<d"), "bool": _one("<?"), "pil": pixels,
    "jpeg_array": files_of, "numpy": lambda data: _array(data, _NUMPY, "<"), "tensor": _tensor, "json": _json,
}  # fmt: skip
