"""The few words all layers share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from mmap import mmap
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap | NDArray[Any]
Sample: TypeAlias = dict[str, Any]
Batch: TypeAlias = dict[str, Any]
Key: TypeAlias = str | bytes


class TypeId(IntEnum):
    """The on-disk numbers of the field types; from ``FIRST_USER_TYPE`` up they are the user's own."""

    INT = 1
    FLOAT = 2
    BYTES = 3
    NDARRAY = 4
    JSON = 5
    IMAGE_RAW = 10
    IMAGE_JPEG = 11
    IMAGE_PNG = 12
    IMAGE_WEBP = 13
    AUDIO_WAVEFORM = 20
    AUDIO_COMPRESSED = 21
    AUDIO_SPECTROGRAM = 22
    AUDIO_TOKENS = 23
    VIDEO_FRAMES = 30
    VIDEO_COMPRESSED = 31
    VIDEO_OPTICAL_FLOW = 32
    TEXT_RAW = 40
    TEXT_TOKENIZED = 41
    TEXT_PACKED = 42
    TOKEN_STREAM = 43
    EMBEDDING = 50
    BOXES = 51
    KEYPOINTS = 52
    MASK = 53
    LIST = 60
    DICT = 61


FIRST_USER_TYPE = 1000

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_size(size: float | str, name: str = "size") -> int:
    """Bytes from a whole number or a text with a unit; ``name`` is what errors call it.

    >>> parse_size("2MiB"), parse_size("50G"), parse_size(4096), parse_size(1e9)
    (2097152, 50000000000, 4096, 1000000000)
    """
    if isinstance(size, int | np.integer) and not isinstance(size, bool):
        return int(size)
    if isinstance(size, float | np.floating):
        if not float(size).is_integer():
            raise ValueError(f"{name}={size!r}: a whole number of bytes")
        return int(size)
    if not isinstance(size, str):
        raise TypeError(f"{name}={size!r} is a {type(size).__name__}; write it like 4096, '64MB' or '2GiB'")
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", size.lower())
    if not match:
        raise ValueError(f"{name}={size!r} is not a size; write it like 4096, '64MB' or '2GiB'")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def format_size(size: float) -> str:
    """A size as people read it.

    >>> format_size(0), format_size(1536), format_size(3 * 2**30)
    ('0 B', '1.5 KiB', '3.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def byte_view(data: Buffer) -> memoryview:
    """The bytes of any contiguous buffer."""
    view = data.data if isinstance(data, np.ndarray) else memoryview(data)
    return view if view.nbytes == 0 else view.cast("B")


def key_bytes(key: Key) -> bytes:
    """A key as stored: UTF-8, with undecodable file-name bytes kept as they were."""
    return key.encode("utf-8", "surrogateescape") if isinstance(key, str) else bytes(key)


def key_text(key: bytes) -> str:
    """The inverse of ``key_bytes`` for keys given as text."""
    return key.decode("utf-8", "surrogateescape")


def distinct(values: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Each value once, ascending. ``np.unique`` imports ``numpy.ma`` for that, and a first batch would wait for it.

    >>> distinct(np.array([5, 2, 5, 9, 2])).tolist()
    [2, 5, 9]
    """
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def stack(values: Sequence[Any]) -> Any:
    """One array where all values are numbers or arrays of one shape and dtype; otherwise the list."""
    if not values:
        return []
    first = values[0]
    if isinstance(first, np.ndarray):
        same = all(isinstance(v, np.ndarray) and v.shape == first.shape and v.dtype == first.dtype for v in values)
        return np.stack(values, dtype=first.dtype) if same else list(values)  # or it would change the byte order
    if isinstance(first, bool | int | float | np.generic) and all(type(v) is type(first) for v in values):
        return np.array(values)
    return list(values)


def mask_missing(values: Any, valid: NDArray[np.bool_]) -> Any:
    """Mark what is missing: a masked array where ``values`` is an array with something to mask, ``None`` in a list."""
    if isinstance(values, np.ndarray) and values.size:
        missing = ~valid.reshape((-1,) + (1,) * (values.ndim - 1))
        return np.ma.MaskedArray(values, mask=np.broadcast_to(missing, values.shape))
    return [value if good else None for value, good in zip(values, valid, strict=True)]


SampleLike: TypeAlias = Mapping[str, Any] | Sequence[Any]
