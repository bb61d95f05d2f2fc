"""Augmentation policies: operations out of a fixed set, drawn for each image."""

from __future__ import annotations

from dataclasses import dataclass

from fastloader.ops.base import (
    Fill,
    PixelOp,
    Pixels,
    Step,
    channels_of,
    check_fill,
    check_pixels,
    colour,
    smoothness,
    whole,
)

_MOST_BINS = 10**6


@dataclass(frozen=True)
class RandAugment(PixelOp):
    """``num_ops`` operations, one after the other, each out of torchvision's fourteen and by the same ``magnitude``.

    The magnitude is one of ``num_magnitude_bins``, from 0 on. ``filter`` ("nearest" or "bilinear") and ``fill`` are
    those of operations that move pixels.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    filter: str = "nearest"
    fill: Fill = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_ops", whole("num_ops", self.num_ops, 1, 1000))
        bins = whole("num_magnitude_bins", self.num_magnitude_bins, 2, _MOST_BINS)
        object.__setattr__(self, "num_magnitude_bins", bins)
        object.__setattr__(self, "magnitude", whole("magnitude", self.magnitude, 0, bins - 1))
        object.__setattr__(self, "fill", colour("fill", self.fill))
        smoothness(self.filter)

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        check_pixels(given)
        check_fill("fill", self.fill, given)
        return given

    def step(self) -> Step:
        """The steps of other operations."""
        numbers = (self.num_ops, self.magnitude, self.num_magnitude_bins, *channels_of(self.fill))
        return Step("rand_augment", filter=smoothness(self.filter), numbers=numbers)


@dataclass(frozen=True)
class TrivialAugment(PixelOp):
    """One operation out of fourteen, by a magnitude drawn as well: torchvision's ``TrivialAugmentWide``."""

    num_magnitude_bins: int = 31
    filter: str = "nearest"
    fill: Fill = 0

    def __post_init__(self) -> None:
        bins = whole("num_magnitude_bins", self.num_magnitude_bins, 2, _MOST_BINS)
        object.__setattr__(self, "num_magnitude_bins", bins)
        object.__setattr__(self, "fill", colour("fill", self.fill))
        smoothness(self.filter)

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        check_pixels(given)
        check_fill("fill", self.fill, given)
        return given

    def step(self) -> Step:
        """The steps of other operations."""
        numbers = (self.num_magnitude_bins, *channels_of(self.fill))
        return Step("trivial_augment", filter=smoothness(self.filter), numbers=numbers)
