"""Pixels as they are given: arrays and PIL images as arrays of (height, width, channels), and options checked."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.fields.base import Field
from fastloader.fields.convert import whole

_PIL_MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB", "LAB": "RGB", "HSV": "RGB"}
"""PIL modes whose arrays are not what one sees, and what to convert them to."""


def own_pixels(value: Any, *, alpha: bool = False, gray: bool = True, orient: bool = False) -> Any:
    """Pixels as an array of our own; encoded bytes as bytes. PIL images are loaded now, while their file is open.

    With ``alpha``, a colour that a PIL image says is transparent gets an alpha channel to say so. Without ``gray``,
    gray ones get colours; with ``orient`` they are turned as their EXIF data says.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    mode = getattr(value, "mode", None)
    if isinstance(mode, str) and hasattr(value, "convert"):
        if orient:
            value = importlib.import_module("PIL.ImageOps").exif_transpose(value)
        seen_through = "transparency" in value.info
        if seen_through and (mode == "P" or (alpha and mode == "RGB")):
            value = value.convert("RGBA")
        elif seen_through and alpha and mode in ("1", "L"):
            value = value.convert("LA")
        elif mode in _PIL_MODES:
            value = value.convert(_PIL_MODES[mode])
        elif mode.startswith("I"):
            array = np.asarray(value)
            if array.size and (array.min() < 0 or array.max() > 0xFFFF):
                raise ValueError(f"PIL mode {mode} with values outside 16 bits")
            array = array.astype(np.uint16)
            if seen_through and alpha:
                return np.stack(
                    [array, np.where(array == value.info["transparency"], np.uint16(0), np.uint16(0xFFFF))], -1
                )
            return array
        if not gray and value.mode in ("L", "LA"):
            value = value.convert("RGB" if value.mode == "L" else "RGBA")
    return np.array(value)


def pixels_of(value: Any, **options: bool) -> Any:
    """What ``own_pixels`` made, as it is; anything else through it."""
    return value if isinstance(value, np.ndarray | bytes) else own_pixels(value, **options)


def as_hwc(value: Any, channels: tuple[int, ...], dtypes: tuple[type[Any], ...]) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.type not in dtypes:
        wanted = " or ".join(np.dtype(t).name for t in dtypes)
        raise TypeError(f"expected pixels of {wanted}, got {array.dtype}")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in channels:
        wanted = " or ".join(map(str, channels))
        raise ValueError(f"expected (height, width) or (height, width, {wanted}), got {array.shape}")
    if 0 in array.shape:
        raise ValueError(f"an image without pixels: {array.shape}")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def make_whole(field: Field, *names: str) -> None:
    """Numpy's integers as plain ones, which the options are stored as; other numbers are refused."""
    for name in names:
        object.__setattr__(field, name, whole(name, getattr(field, name)))


def make_flags(field: Field, *names: str) -> None:
    """Numpy's truth values as plain ones; anything else is refused."""
    for name in names:
        flag = getattr(field, name)
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name}={flag!r}: True or False")
        object.__setattr__(field, name, bool(flag))
