"""Operations that turn, shear, scale and move the image, its size kept; what comes into sight is filled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastloader.ops.base import (
    MAX_SIDE,
    Fill,
    PixelOp,
    Pixels,
    Step,
    channels_of,
    check_fill,
    check_pixels,
    colour,
    number,
    smoothness,
    spread,
    whole,
)

_MOST_DEGREES, _MOST_SHEAR = 1e6, 89.9


def _filled(op: Rotate | RandomRotation | Affine | RandomAffine | RandomTranslate, given: Pixels) -> Pixels:
    check_pixels(given)
    check_fill("fill", op.fill, given)
    return given


def _pair(name: str, value: Any, low: float, high: float) -> tuple[float, float]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(f"{name}={value!r}: two numbers, across and down")
    return number(name, value[0], low, high), number(name, value[1], low, high)


@dataclass(frozen=True)
class Rotate(PixelOp):
    """Turned counter-clockwise about its middle, as Pillow's ``rotate``. ``filter`` is "nearest" or "bilinear"."""

    degrees: float
    filter: str = "nearest"
    fill: Fill = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", number("degrees", self.degrees, -_MOST_DEGREES, _MOST_DEGREES))
        object.__setattr__(self, "fill", colour("fill", self.fill))
        smoothness(self.filter)

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        return _filled(self, given)

    def step(self) -> Step:
        """An affine map."""
        numbers = (self.degrees, self.degrees, *channels_of(self.fill))
        return Step("rotate", filter=smoothness(self.filter), numbers=numbers)


@dataclass(frozen=True)
class RandomRotation(PixelOp):
    """Turned by an angle out of a range, or out of ``-degrees`` to ``degrees``."""

    degrees: float | tuple[float, float]
    filter: str = "nearest"
    fill: Fill = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", spread("degrees", self.degrees, -_MOST_DEGREES, _MOST_DEGREES))
        object.__setattr__(self, "fill", colour("fill", self.fill))
        smoothness(self.filter)

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        return _filled(self, given)

    def step(self) -> Step:
        """An affine map."""
        least, most = spread("", self.degrees, -_MOST_DEGREES, _MOST_DEGREES)
        return Step("rotate", filter=smoothness(self.filter), numbers=(least, most, *channels_of(self.fill)))


@dataclass(frozen=True)
class Affine(PixelOp):
    """Turned clockwise, moved by whole pixels, scaled and sheared about its middle, as torchvision's ``affine``.

    ``shear`` is degrees across, or (across, down).
    """

    degrees: float = 0.0
    translate: tuple[int, int] = (0, 0)
    scale: float = 1.0
    shear: float | tuple[float, float] = 0.0
    filter: str = "nearest"
    fill: Fill = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", number("degrees", self.degrees, -_MOST_DEGREES, _MOST_DEGREES))
        across, down = _pair("translate", self.translate, -MAX_SIDE, MAX_SIDE)
        if across != int(across) or down != int(down):
            raise ValueError(f"translate={self.translate!r}: whole numbers of pixels")
        object.__setattr__(self, "translate", (int(across), int(down)))
        object.__setattr__(self, "scale", number("scale", self.scale, 1e-6, 1e6))
        shear = self.shear if isinstance(self.shear, tuple | list) else (self.shear, 0)
        object.__setattr__(self, "shear", _pair("shear", shear, -_MOST_SHEAR, _MOST_SHEAR))
        object.__setattr__(self, "fill", colour("fill", self.fill))
        smoothness(self.filter)

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        return _filled(self, given)

    def step(self) -> Step:
        """An affine map."""
        x, y = _pair("", self.shear, -_MOST_SHEAR, _MOST_SHEAR)
        drawn = (self.degrees, self.degrees, 0, 0, *self.translate, self.scale, self.scale, x, x, y, y)
        return Step("affine", filter=smoothness(self.filter), numbers=(*drawn, *channels_of(self.fill)))


@dataclass(frozen=True)
class RandomAffine(PixelOp):
    """Turned, moved, scaled and sheared at random, as torchvision's ``RandomAffine`` draws it.

    ``degrees``: a range, or one number for as far either way. ``translate``: the share of the width and of the height
    it moves by at most. ``scale``: a range of factors. ``shear``: degrees across, one number or a range, or the range
    across and the range down in four numbers.
    """

    degrees: float | tuple[float, float]
    translate: tuple[float, float] = (0.0, 0.0)
    scale: tuple[float, float] = (1.0, 1.0)
    shear: float | tuple[float, float] | tuple[float, float, float, float] = 0.0
    filter: str = "nearest"
    fill: Fill = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", spread("degrees", self.degrees, -_MOST_DEGREES, _MOST_DEGREES))
        object.__setattr__(self, "translate", _pair("translate", self.translate, 0, 1))
        if not isinstance(self.scale, tuple | list):
            raise TypeError(f"scale={self.scale!r}: the least and the most factor")
        object.__setattr__(self, "scale", spread("scale", self.scale, 1e-6, 1e6))
        four = isinstance(self.shear, tuple | list) and len(self.shear) == 4
        across, down = (self.shear[:2], self.shear[2:]) if four else (self.shear, (0.0, 0.0))  # type: ignore[index]
        ranges = (spread("shear", part, -_MOST_SHEAR, _MOST_SHEAR) for part in (across, down))
        object.__setattr__(self, "shear", tuple(x for one in ranges for x in one))
        object.__setattr__(self, "fill", colour("fill", self.fill))
        smoothness(self.filter)

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        return _filled(self, given)

    def step(self) -> Step:
        """An affine map."""
        degrees = spread("", self.degrees, -_MOST_DEGREES, _MOST_DEGREES)
        shear: tuple[float, ...] = self.shear  # type: ignore[assignment]
        drawn = (*degrees, *self.translate, 0, 0, *self.scale, *shear)
        return Step("affine", filter=smoothness(self.filter), numbers=(*drawn, *channels_of(self.fill)))


@dataclass(frozen=True)
class RandomTranslate(PixelOp):
    """Moved by up to ``padding`` whole pixels across and down, each distance as likely."""

    padding: int
    fill: Fill = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "padding", whole("padding", self.padding, 0, MAX_SIDE - 1))
        object.__setattr__(self, "fill", colour("fill", self.fill))

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        return _filled(self, given)

    def step(self) -> Step:
        """A copy."""
        return Step("translate", numbers=(self.padding, *channels_of(self.fill)))
