"""Operations that blank out a part of the image."""

from __future__ import annotations

from dataclasses import dataclass

from fastloader.ops.base import (
    Fill,
    PixelOp,
    Pixels,
    Step,
    both_sides,
    channels_of,
    check_fill,
    check_pixels,
    colour,
    interval,
    likelihood,
)


@dataclass(frozen=True)
class RandomErasing(PixelOp):
    """A box of random area and shape blanked out, drawn as torchvision does.

    ``scale`` bounds the box's share of the area, ``ratio`` its height over its width. ``value`` is what the box gets:
    one number from 0 to 255, three, or "random" for bytes that are each as likely.
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: Fill | str = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", likelihood(self.p))
        object.__setattr__(self, "scale", interval("scale", self.scale, 0, 1))
        object.__setattr__(self, "ratio", interval("ratio", self.ratio, 0, 1000))
        if self.value != "random":
            object.__setattr__(self, "value", colour("value", self.value))

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        check_pixels(given)
        if not isinstance(self.value, str):
            check_fill("value", self.value, given)
        return given

    def step(self) -> Step:
        """Rows of the box, written over."""
        noise = isinstance(self.value, str)
        fill = (0, 0, 0) if isinstance(self.value, str) else channels_of(self.value)
        return Step("erase", numbers=(self.p, *self.scale, *self.ratio, float(noise), *fill))


@dataclass(frozen=True)
class Cutout(PixelOp):
    """A box of this size, anywhere within the image, blanked out. A smaller image is an error of its sample."""

    size: int | tuple[int, int]
    fill: Fill = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", both_sides("size", self.size))
        object.__setattr__(self, "fill", colour("fill", self.fill))

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        check_pixels(given)
        check_fill("fill", self.fill, given)
        height, width = both_sides("size", self.size)
        for name, have, want in (("height", given.height, height), ("width", given.width, width)):
            if have is not None and have < want:
                raise ValueError(f"takes {want} pixels of {name}, and gets {have}")
        return given

    def step(self) -> Step:
        """Rows of the box, written over."""
        return Step("cutout", *both_sides("size", self.size), numbers=channels_of(self.fill))
