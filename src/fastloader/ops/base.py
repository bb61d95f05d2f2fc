"""What an operation is: it says what it makes of an image's shape and type, and which native step does it."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
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
    """A native step: one of ``kernels.STEPS``, a size, a filter, and as many numbers as the step takes."""

    kind: str
    height: int = 0
    width: int = 0
    filter: int = 0
    numbers: tuple[float, ...] = ()


class Op(ABC):
    """One operation. Subclasses are frozen dataclasses whose attributes are their options."""

    @abstractmethod
    def output(self, given: Pixels) -> Pixels:
        """What comes out of it; raises ``ValueError`` where it can't take what is given."""

    def step(self) -> Step | None:
        """The native step; ``None`` for what is part of the last one, the cast."""
        return None

    def shared(self, name: str) -> Named:
        """The same, drawing by this name and not by its place: all operations of the name draw alike.

        So an image and its mask, each with a pipeline of its own, are cut and turned together.
        """
        return replace(Named.of(self), share=_name("shared", name))

    def returning(self, field: str) -> Named:
        """The same, with what it draws for each sample as a field of the batch.

        docs/reference/ops.md says what that is; ``explain()`` does as well.
        """
        return replace(Named.of(self), returns=_name("returning", field))


@dataclass(frozen=True)
class Named(Op):
    """An operation with a name for its draws, for what it returns, or for both; ``Op.shared`` and ``returning``."""

    op: Op
    share: str | None = None
    returns: str | None = None

    @classmethod
    def of(cls, op: Op) -> Named:
        """The operation, with the names it has."""
        return op if isinstance(op, Named) else cls(op)

    def __str__(self) -> str:
        calls = (("shared", self.share), ("returning", self.returns))
        return str(self.op) + "".join(f".{call}({name!r})" for call, name in calls if name is not None)

    def output(self, given: Pixels) -> Pixels:
        """The operation's."""
        return self.op.output(given)

    def step(self) -> Step | None:
        """The operation's."""
        return self.op.step()


class PixelOp(Op):
    """An operation that changes pixels, and neither how many there are nor what they are."""

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape and type."""
        check_pixels(given)
        return given


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


def check_colours(given: Pixels) -> None:
    """Three channels, as there are no colours in one."""
    if given.channels != 3:
        raise ValueError(f"takes 3 channels, and gets {given.channels}: put it before Grayscale")


def number(name: str, value: Any, low: float, high: float) -> float:
    """A number within bounds."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r}: a number")
    found = float(value)
    if not low <= found <= high:
        raise ValueError(f"{name}={value!r}: from {low:g} to {high:g}")
    return found


def whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r}: a whole number")
    found = int(value.__index__())
    if not low <= found <= high:
        raise ValueError(f"{name}={value!r}: from {low} to {high}")
    return found


def spread(name: str, value: Any, low: float, high: float) -> tuple[float, float]:
    """Two numbers within bounds, the lesser first; one number is as far below 0 as above."""
    if not isinstance(value, tuple | list):
        most = number(name, value, 0, high)
        return 0.0 - most, most
    if len(value) != 2:
        raise ValueError(f"{name}={value!r}: one number, or the least and the most")
    first, second = (number(name, one, low, high) for one in value)
    if first > second:
        raise ValueError(f"{name}={value!r}: the lesser number first")
    return first, second


def _name(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{what}({value!r}): a name")
    return value


Fill = int | tuple[int, int, int]


def colour(name: str, value: Any) -> Fill:
    """One number from 0 to 255 for all channels, or red, green and blue."""
    if not isinstance(value, tuple | list):
        return whole(name, value, 0, 255)
    if len(value) != 3:
        raise ValueError(f"{name}={value!r}: one number from 0 to 255, or three")
    red, green, blue = (whole(name, one, 0, 255) for one in value)
    return red, green, blue


def channels_of(fill: Fill) -> tuple[int, int, int]:
    """A fill as three numbers."""
    return fill if isinstance(fill, tuple) else (fill, fill, fill)


def check_fill(name: str, fill: Fill, given: Pixels) -> None:
    """Three numbers are for three channels."""
    if isinstance(fill, tuple) and given.channels != 3:
        raise ValueError(f"has {name}={fill!r} for {given.channels} channel: give it one number")


def likelihood(value: Any) -> float:
    """A number from 0 to 1."""
    return number("p", value, 0, 1)


def smoothness(name: str) -> int:
    """The native number of a filter that an affine map can have."""
    if name not in ("nearest", "bilinear"):
        raise ValueError(f"filter={name!r}: nearest or bilinear")
    return filter_number(name)


def filter_number(name: str) -> int:
    """The native number of a filter."""
    if name not in kernels.FILTERS:
        raise ValueError(f"filter={name!r}: one of {', '.join(kernels.FILTERS)}")
    return kernels.FILTERS.index(name)
