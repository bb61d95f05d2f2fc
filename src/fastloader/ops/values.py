"""Operations on what pixels are: numbers of which type, in which order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastloader import kernels
from fastloader.ops.base import Op, Pixels


@dataclass(frozen=True)
class Normalize(Op):
    """``(pixel - mean) / std`` in float32; both are in units of pixels (0 to 255), one number or one a channel.

    It is worked out as ``pixel * (1 / std) + (-mean / std)``, the product and the sum each rounded to float32.
    """

    mean: Sequence[float] | float
    std: Sequence[float] | float

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            value = getattr(self, name)
            numbers = tuple(map(float, value)) if isinstance(value, Sequence) else (float(value),)
            if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)) or (name == "std" and 0 in numbers):
                raise ValueError(f"{name}={value!r}: one number or three{', none of them 0' if name == 'std' else ''}")
            object.__setattr__(self, name, numbers)

    def output(self, given: Pixels) -> Pixels:
        """Floats."""
        if given.dtype != "uint8":
            raise ValueError(f"takes uint8 pixels, and gets {given.dtype}: put it before Cast")
        most = max(len(tuple(self.mean)), len(tuple(self.std)))  # type: ignore[arg-type]
        if most not in (1, given.channels):
            raise ValueError(f"has {most} numbers for {given.channels} channels")
        return replace(given, dtype="float32")

    def factors(self, channels: int) -> tuple[list[float], list[float]]:
        """Scale and bias of each channel."""
        mean, std = (list(v) * (channels if len(v) == 1 else 1) for v in (tuple(self.mean), tuple(self.std)))  # type: ignore[arg-type]
        return [1 / s for s in std], [-m / s for m, s in zip(mean, std, strict=True)]


@dataclass(frozen=True)
class Cast(Op):
    """Numbers of another type: "float16", "bfloat16" or "float32", rounded to the nearest."""

    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in kernels.ELEMENTS or self.dtype == "uint8":
            others = [name for name in kernels.ELEMENTS if name != "uint8"]
            raise ValueError(f"dtype={self.dtype!r}: one of {', '.join(others)}")

    def output(self, given: Pixels) -> Pixels:
        """Of that type."""
        if given.dtype not in ("uint8", "float32"):
            raise ValueError(f"takes uint8 or float32, and gets {given.dtype}; one Cast is enough")
        return replace(given, dtype=self.dtype)


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
