"""Operations on what pixels are: numbers of which type, in which order."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.functions import HALVES
from fastloader.ops.arrays import ArrayOp
from fastloader.ops.base import Op, Pixels
from fastloader.ops.labels import Numbers


@dataclass(frozen=True)
class Normalize(Op, ArrayOp):
    """``(pixel - mean) / std`` in float32; both are in units of pixels (0 to 255), one number or one a channel.

    It is worked out as ``pixel * (1 / std) + (-mean / std)``, the product and the sum each rounded to float32. Of an
    array, the last dimension is that of the channels.
    """

    mean: Sequence[float] | float
    std: Sequence[float] | float

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            value = getattr(self, name)
            value = value.tolist() if isinstance(value, np.ndarray) else value
            numbers = tuple(map(float, value)) if isinstance(value, Sequence) else (float(value),)
            if not numbers or not all(map(math.isfinite, numbers)) or (name == "std" and 0 in numbers):
                which = "one number, or one a channel"
                raise ValueError(f"{name}={value!r}: {which}{', none of them 0' if name == 'std' else ''}")
            object.__setattr__(self, name, numbers)

    def output(self, given: Pixels) -> Pixels:
        """Floats."""
        _check_numbers(given, "put it before Cast")
        self._check_channels(given.channels)
        return replace(given, dtype="float32")

    def array_output(self, given: Numbers) -> Numbers:
        """Floats."""
        _check_array(given)
        self._check_channels(given.shape[-1] if given.shape else 1)
        return replace(given, dtype="float32")

    def applied(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of any size, normalised by numpy."""
        self._check_channels(array.shape[-1] if array.ndim else 1)
        scale, bias = (np.array(one, np.float32) for one in self.factors(self.most))
        made: NDArray[Any] = array.astype(np.float32) * scale + bias
        return made

    @property
    def most(self) -> int:
        """How many channels it tells apart."""
        return max(len(tuple(self.mean)), len(tuple(self.std)))  # type: ignore[arg-type]

    def _check_channels(self, channels: int) -> None:
        for numbers in (self.mean, self.std):
            count = len(tuple(numbers))  # type: ignore[arg-type]
            if count not in (1, channels):
                raise ValueError(f"has {count} numbers for {channels} channels")

    def factors(self, channels: int) -> tuple[list[float], list[float]]:
        """Scale and bias of each channel."""
        mean, std = (list(v) * (channels if len(v) == 1 else 1) for v in (tuple(self.mean), tuple(self.std)))  # type: ignore[arg-type]
        return [1 / s for s in std], [-m / s for m, s in zip(mean, std, strict=True)]


@dataclass(frozen=True)
class Cast(Op, ArrayOp):
    """Numbers of another type: "float16", "bfloat16" or "float32", rounded to the nearest.

    Numbers that are neither uint8 nor float32 are rounded to float32 first.
    """

    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in kernels.ELEMENTS or self.dtype == "uint8":
            others = [name for name in kernels.ELEMENTS if name != "uint8"]
            raise ValueError(f"dtype={self.dtype!r}: one of {', '.join(others)}")

    def output(self, given: Pixels) -> Pixels:
        """Of that type."""
        _check_numbers(given, "one Cast is enough")
        return replace(given, dtype=self.dtype)

    def array_output(self, given: Numbers) -> Numbers:
        """Of that type."""
        _check_array(given)
        return replace(given, dtype=self.dtype)

    def applied(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of any size, cast by numpy."""
        return array.astype(np.float32, copy=False).astype(element_type(self.dtype))


def element_type(name: str) -> np.dtype[Any]:
    """Numpy's dtype; bfloat16 is one of ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        found: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        raise ModuleNotFoundError(
            "numpy has no bfloat16 of its own: pip install ml_dtypes, or use float16", name="ml_dtypes"
        ) from None
    return found


@dataclass(frozen=True)
class Layout(Op):
    """The order of dimensions: "CHW" as PyTorch has it, or "HWC"."""

    order: str = "CHW"

    def __post_init__(self) -> None:
        if self.order not in ("CHW", "HWC"):
            raise ValueError(f"order={self.order!r}: 'CHW' or 'HWC'")

    def output(self, given: Pixels) -> Pixels:
        """In that order."""
        return replace(given, layout=self.order)


def _check_numbers(given: Pixels, cure: str) -> None:
    if given.dtype not in kernels.NUMBERS or given.dtype in HALVES:
        cure = f": {cure}" if given.dtype in HALVES else ""
        raise ValueError(f"takes whole numbers, float32 and float64, and gets {given.dtype}{cure}")


def _check_array(given: Numbers) -> None:
    if given.dtype not in kernels.NUMBERS:
        raise ValueError(f"takes whole numbers and floats of up to 64 bits, and gets {given.dtype}")
