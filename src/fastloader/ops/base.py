"""What an operation is: it says what it makes of an image's shape and type, and which native step does it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastloader import kernels

MAX_SIDE = 1 << 16


@dataclass(frozen=True, slots=True)
class Pixels:
    """An image between two operations; a side that differs from image to image is ``None``."""

    height: int | None
    width: int | None
    channels: int = 3
    dtype: str = "uint8"
    layout: str = "HWC"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape in the layout's order."""
        sides = (self.height, self.width)
        return (*sides, self.channels) if self.layout == "HWC" else (self.channels, *sides)

    def __str__(self) -> str:
        sides = ", ".join("?" if side is None else str(side) for side in self.shape)
        return f"({sides}) {self.dtype} {self.layout}"


class Step(NamedTuple):
    """A native step: its kind, the size it gives, a filter, and up to four numbers."""

    kind: int
    height: int = 0
    width: int = 0
    filter: int = 0
    numbers: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


class Op(ABC):
    """One operation. Subclasses are frozen dataclasses whose attributes are their options."""

    @abstractmethod
    def output(self, given: Pixels) -> Pixels:
        """What comes out of it; raises ``ValueError`` where it can't take what is given."""

    def step(self) -> Step | None:
        """The native step; ``None`` for what is part of the last one, the cast."""
        return None


def check_pixels(given: Pixels) -> None:
    """Geometry and colours are worked on as 8-bit samples in rows of pixels."""
    if given.dtype != "uint8":
        raise ValueError(f"takes uint8 pixels, and gets {given.dtype}: put it before Normalize and Cast")
    if given.layout != "HWC":
        raise ValueError(f"takes (height, width, channels), and gets {given.layout}: put it before Layout")


def side(name: str, value: Any) -> int:
    """A length in pixels."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r}: a whole number of pixels")
    found = value.__index__()
    if not 1 <= found <= MAX_SIDE:
        raise ValueError(f"{name}={value!r}: from 1 to {MAX_SIDE} pixels")
    return int(found)


def both_sides(name: str, value: Any) -> tuple[int, int]:
    """Height and width, from one number for both or from two."""
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise ValueError(f"{name}={value!r}: one number, or height and width")
        return side(name, value[0]), side(name, value[1])
    return side(name, value), side(name, value)


def interval(name: str, value: Any, low: float, high: float) -> tuple[float, float]:
    """Two numbers, the lesser first, both within bounds."""
    try:
        first, second = (float(number) for number in value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r}: two numbers") from None
    if not (low < first <= second <= high and math.isfinite(second)):
        raise ValueError(f"{name}={value!r}: two numbers, the lesser first, above {low:g} and at most {high:g}")
    return first, second


def likelihood(value: Any) -> float:
    """A number from 0 to 1."""
    number = float(value)
    if not 0 <= number <= 1:
        raise ValueError(f"p={value!r}: from 0 to 1")
    return number


def filter_number(name: str) -> int:
    """The native number of a filter."""
    if name not in kernels.FILTERS:
        raise ValueError(f"filter={name!r}: one of {', '.join(kernels.FILTERS)}")
    return kernels.FILTERS.index(name)
