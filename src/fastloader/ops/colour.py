"""Operations on colours: brightness, contrast, saturation and hue, as torchvision draws and Pillow applies them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fastloader.ops.base import Op, PixelOp, Pixels, Step, check_colours, check_pixels, likelihood, number, spread

_MOST = 1e6
Amount = float | tuple[float, float]


def _factors(name: str, value: Any) -> tuple[float, float]:
    """The least and the most factor; one number is as far below 1 as above, though not below 0."""
    if isinstance(value, tuple | list):
        return spread(name, value, 0, _MOST)
    amount = number(name, value, 0, _MOST)
    return max(0.0, 1 - amount), 1 + amount


def _turns(name: str, value: Any) -> tuple[float, float]:
    return spread(name, value, -0.5, 0.5)


@dataclass(frozen=True)
class ColorJitter(PixelOp):
    """Brightness, contrast, saturation and hue changed at random, in random order, as torchvision's does.

    Each of the first three is a range of factors, or one number ``x`` for the range from ``max(0, 1 - x)`` to
    ``1 + x``. ``hue`` is a range of turns from -0.5 to 0.5, or one number for as far either way. With likelihood
    ``1 - p`` nothing changes.
    """

    brightness: Amount = 0.0
    contrast: Amount = 0.0
    saturation: Amount = 0.0
    hue: Amount = 0.0
    p: float = 1.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            object.__setattr__(self, name, _factors(name, getattr(self, name)))
        object.__setattr__(self, "hue", _turns("hue", self.hue))
        object.__setattr__(self, "p", likelihood(self.p))

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        check_pixels(given)
        if self.saturation != (1, 1) or self.hue != (0, 0):
            check_colours(given)
        return given

    def step(self) -> Step:
        """Up to four changes in place."""
        parts = (_factors("", self.brightness), _factors("", self.contrast), _factors("", self.saturation))
        return Step("jitter", numbers=(self.p, *(x for part in parts for x in part), *_turns("", self.hue)))


class ColourOp(PixelOp):
    """An operation that changes pixels of three channels, and not their number."""

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        check_pixels(given)
        check_colours(given)
        return given


@dataclass(frozen=True)
class FactorOp(PixelOp):
    """An operation by a factor that is drawn from a range."""

    amount: Amount
    p: float = 1.0
    _step: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", _factors("amount", self.amount))
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """With the range of the factor."""
        return Step(self._step, numbers=(self.p, *_factors("", self.amount)))


@dataclass(frozen=True)
class RandomBrightness(FactorOp):
    """Every sample times a factor: from a range, or from ``1 - amount`` to ``1 + amount``."""

    _step: ClassVar[str] = "brightness"


@dataclass(frozen=True)
class RandomContrast(FactorOp):
    """Samples further from the image's mean by a factor: from a range, or ``1 - amount`` to ``1 + amount``."""

    _step: ClassVar[str] = "contrast"


@dataclass(frozen=True)
class RandomSaturation(ColourOp, FactorOp):
    """Colours further from gray by a factor: from a range, or ``1 - amount`` to ``1 + amount``."""

    _step: ClassVar[str] = "saturation"


@dataclass(frozen=True)
class RandomHue(ColourOp):
    """Colours turned around their circle: by a range of turns within -0.5 to 0.5, or ``amount`` either way."""

    amount: Amount
    p: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", _turns("amount", self.amount))
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """To Pillow's HSV and back."""
        return Step("hue", numbers=(self.p, *_turns("", self.amount)))


@dataclass(frozen=True)
class Grayscale(Op):
    """Gray by Pillow's weights, in one channel or in three. Before a resize, one channel is part of decoding."""

    channels: int = 1

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise ValueError(f"channels={self.channels!r}: 1 or 3")

    def output(self, given: Pixels) -> Pixels:
        """As many channels as asked for."""
        check_pixels(given)
        check_colours(given)
        return replace(given, channels=self.channels)

    def step(self) -> Step:
        """A weighted sum."""
        return Step("gray", numbers=(1, self.channels))


@dataclass(frozen=True)
class RandomGrayscale(ColourOp):
    """Gray in all three channels, with likelihood ``p``."""

    p: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """A weighted sum."""
        return Step("gray", numbers=(self.p, 3))
