"""Operations on tones, each of them Pillow's of that name: Solarize, Posterize, Equalize, AutoContrast, Invert."""

from __future__ import annotations

from dataclasses import dataclass

from fastloader.ops.base import PixelOp, Step, likelihood, number, whole


@dataclass(frozen=True)
class Solarize(PixelOp):
    """Samples from ``threshold`` on inverted; 256 leaves all as they are."""

    threshold: float = 128.0
    p: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", number("threshold", self.threshold, 0, 256))
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """A table of 256 values."""
        return Step("solarize", numbers=(self.p, self.threshold))


@dataclass(frozen=True)
class Posterize(PixelOp):
    """The upper ``bits`` of each sample, 1 to 8."""

    bits: int
    p: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", whole("bits", self.bits, 1, 8))
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """A table of 256 values."""
        return Step("posterize", numbers=(self.p, self.bits))


@dataclass(frozen=True)
class Equalize(PixelOp):
    """Tones spread so that each is as frequent, channel by channel."""

    p: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """Histograms, and a table for each channel."""
        return Step("equalize", numbers=(self.p,))


@dataclass(frozen=True)
class AutoContrast(PixelOp):
    """Tones stretched so that the darkest is 0 and the lightest 255, channel by channel."""

    p: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """Histograms, and a table for each channel."""
        return Step("autocontrast", numbers=(self.p,))


@dataclass(frozen=True)
class Invert(PixelOp):
    """The negative: 255 less each sample."""

    p: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """A table of 256 values."""
        return Step("invert", numbers=(self.p,))
