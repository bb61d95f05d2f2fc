"""Arrays for the page: reduced to as many numbers as a small plot has room for."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.fields import SpectrogramField
from fastloader.viewer.items import Item

POINTS = 512
SIDE = 256
BARS = 64
"""Vectors up to this length are drawn as bars, a number each."""


def plot(item: Item) -> dict[str, Any]:
    """A value that is an array, as a line or a map."""
    return plot_of(np.asarray(item.value), turned=isinstance(item.field, SpectrogramField))


def plot_of(array: NDArray[Any], turned: bool = False) -> dict[str, Any]:
    """A line of one dimension, a map of two; of more, the first of each leading dimension. ``turned``: time across."""
    if array.dtype.kind == "c":
        array = np.abs(array)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf" or not array.size:
        raise FormatError(f"an array of {array.dtype} and the shape {list(array.shape)} has no plot")
    whole = array
    slices = max(0, array.ndim - 2)
    for _ in range(slices):
        array = array[0]
    told: dict[str, Any] = {"dtype": str(whole.dtype), "shape": list(whole.shape), "slices": slices}
    numbers = np.atleast_1d(array).astype(np.float64)
    good = np.isfinite(numbers)
    told |= {"unknown": int(numbers.size - good.sum())}
    if not good.any():
        return told | {"form": "none"}
    told |= {
        "min": float(numbers[good].min()), "max": float(numbers[good].max()), "mean": float(numbers[good].mean()),
        "std": float(numbers[good].std()),
    }  # fmt: skip
    filled = np.where(good, numbers, told["min"])
    if filled.ndim == 1:
        return told | _line(filled)
    return told | _map(filled.T[::-1] if turned else filled, told["min"], told["max"])


def _line(numbers: NDArray[np.float64]) -> dict[str, Any]:
    if len(numbers) <= POINTS:
        form = "bars" if len(numbers) <= BARS else "line"
        return {"form": form, "low": _short(numbers), "high": _short(numbers)}
    starts = np.linspace(0, len(numbers), POINTS + 1).astype(np.int64)[:-1]
    low, high = np.minimum.reduceat(numbers, starts), np.maximum.reduceat(numbers, starts)
    return {"form": "line", "low": _short(low), "high": _short(high)}


def _short(numbers: NDArray[np.float64]) -> list[float]:
    return [float(f"{number:.5g}") for number in numbers.tolist()]


def _map(numbers: NDArray[np.float64], low: float, high: float) -> dict[str, Any]:
    """Means of blocks, as bytes from least to most."""
    for axis in (0, 1):
        size = numbers.shape[axis]
        if size > SIDE:
            starts = np.linspace(0, size, SIDE + 1).astype(np.int64)[:-1]
            lengths = np.diff(np.append(starts, size))
            sums = np.add.reduceat(numbers, starts, axis=axis)
            numbers = sums / (lengths[:, None] if axis == 0 else lengths)
    scaled = (numbers - low) * (255 / (high - low) if high > low else 0)
    shown = np.rint(np.clip(scaled, 0, 255)).astype(np.uint8)
    data = base64.b64encode(np.ascontiguousarray(shown).tobytes()).decode("ascii")
    return {"form": "map", "rows": shown.shape[0], "columns": shown.shape[1], "data": data}
