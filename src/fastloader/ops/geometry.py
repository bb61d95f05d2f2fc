"""Operations that choose, resize and mirror pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastloader import kernels
from fastloader.ops.base import (
    MAX_SIDE,
    Fill,
    Op,
    PixelOp,
    Pixels,
    Step,
    both_sides,
    channels_of,
    check_fill,
    check_pixels,
    colour,
    filter_number,
    interval,
    likelihood,
    side,
    whole,
)


@dataclass(frozen=True)
class RandomResizedCrop(Op):
    """A part of random area and shape, resized to ``size``; drawn as torchvision does.

    ``scale`` bounds the part's share of the area, ``ratio`` its width over its height. Of a JPEG only the part is
    decoded. ``filter`` is one of Pillow's, antialiased.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    filter: str = "bilinear"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", both_sides("size", self.size))
        object.__setattr__(self, "scale", interval("scale", self.scale, 0, 1))
        object.__setattr__(self, "ratio", interval("ratio", self.ratio, 0, 1000))
        filter_number(self.filter)

    def output(self, given: Pixels) -> Pixels:
        """Of the size asked for."""
        check_pixels(given)
        height, width = both_sides("size", self.size)
        return replace(given, height=height, width=width)

    def step(self) -> Step:
        """Crop and resize in one."""
        height, width = both_sides("size", self.size)
        return Step("random_resized_crop", height, width, filter_number(self.filter), (*self.scale, *self.ratio))


@dataclass(frozen=True)
class Resize(Op):
    """The whole image at another size: (height, width), or one number for its shorter side, the ratio kept."""

    size: int | tuple[int, int]
    filter: str = "bilinear"

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "size",
            both_sides("size", self.size) if isinstance(self.size, tuple | list) else side("size", self.size),
        )
        filter_number(self.filter)

    def output(self, given: Pixels) -> Pixels:
        """Of the size asked for; the longer side follows from the image."""
        check_pixels(given)
        if isinstance(self.size, tuple):
            return replace(given, height=self.size[0], width=self.size[1])
        if given.height is None or given.width is None:
            return replace(given, height=None, width=None)
        if given.height <= given.width:
            return replace(given, height=self.size, width=max(self.size * given.width // given.height, 1))
        return replace(given, height=max(self.size * given.height // given.width, 1), width=self.size)

    def step(self) -> Step:
        """An antialiased resize."""
        number = filter_number(self.filter)
        if isinstance(self.size, tuple):
            return Step("resize", *self.size, number)
        return Step("resize_shorter", self.size, 0, number)


def _crop_output(op: CenterCrop | RandomCrop, given: Pixels, padding: int) -> Pixels:
    check_pixels(given)
    height, width = both_sides("size", op.size)
    for name, have, want in (("height", given.height, height), ("width", given.width, width)):
        if have is not None and have + 2 * padding < want:
            raise ValueError(f"takes {want} pixels of {name}, and gets {have}")
    return replace(given, height=height, width=width)


@dataclass(frozen=True)
class CenterCrop(Op):
    """The middle of the image. A smaller image is an error of its sample."""

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", both_sides("size", self.size))

    def output(self, given: Pixels) -> Pixels:
        """Of the size asked for."""
        return _crop_output(self, given, 0)

    def step(self) -> Step:
        """Narrows what is decoded."""
        return Step("centre_crop", *both_sides("size", self.size))


@dataclass(frozen=True)
class RandomCrop(Op):
    """A part of this size from anywhere in the image, with ``padding`` pixels of ``fill`` on each side first."""

    size: int | tuple[int, int]
    padding: int = 0
    fill: Fill = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", both_sides("size", self.size))
        object.__setattr__(self, "padding", whole("padding", self.padding, 0, MAX_SIDE - 1))
        object.__setattr__(self, "fill", colour("fill", self.fill))

    def output(self, given: Pixels) -> Pixels:
        """Of the size asked for."""
        check_fill("fill", self.fill, given)
        return _crop_output(self, given, self.padding)

    def step(self) -> Step:
        """Narrows what is decoded, where nothing of the padding shows."""
        numbers = (self.padding, *channels_of(self.fill))
        return Step("random_crop", *both_sides("size", self.size), numbers=numbers)


@dataclass(frozen=True)
class HorizontalFlip(PixelOp):
    """Left and right exchanged, with likelihood ``p``. Behind a resize it costs nothing."""

    p: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """A mirror."""
        return Step("flip", numbers=(self.p,))


@dataclass(frozen=True)
class VerticalFlip(PixelOp):
    """Top and bottom exchanged, with likelihood ``p``."""

    p: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """A mirror."""
        return Step("flip_down", numbers=(self.p,))


@dataclass(frozen=True)
class Pad(Op):
    """Pixels added around the image: as many on each side, (across, down), or (left, top, right, bottom).

    ``mode`` is what they are: "constant" (``fill``), "edge", "reflect" or "symmetric", as ``numpy.pad`` names them.
    """

    padding: int | tuple[int, int] | tuple[int, int, int, int]
    fill: Fill = 0
    mode: str = "constant"

    def __post_init__(self) -> None:
        given = self.padding if isinstance(self.padding, tuple | list) else (self.padding,) * 4
        if len(given) not in (2, 4):
            raise ValueError(f"padding={self.padding!r}: one number, (across, down), or (left, top, right, bottom)")
        four = tuple(whole("padding", one, 0, MAX_SIDE - 1) for one in given)
        object.__setattr__(self, "padding", four * (4 // len(four)))
        object.__setattr__(self, "fill", colour("fill", self.fill))
        if self.mode not in kernels.PADDINGS:
            raise ValueError(f"mode={self.mode!r}: one of {', '.join(kernels.PADDINGS)}")
        if self.fill != 0 and self.mode != "constant":
            raise ValueError(f"fill={self.fill!r} has no effect with mode={self.mode!r}")

    def output(self, given: Pixels) -> Pixels:
        """Larger by the padding."""
        check_pixels(given)
        check_fill("fill", self.fill, given)
        left, top, right, bottom = self._four()
        height = None if given.height is None else given.height + top + bottom
        width = None if given.width is None else given.width + left + right
        for found in (height, width):
            if found is not None and found > MAX_SIDE:
                raise ValueError(f"gives a side of {found} pixels; it may have {MAX_SIDE}")
        return replace(given, height=height, width=width)

    def step(self) -> Step:
        """A copy into a larger image."""
        return Step("pad", numbers=(*self._four(), kernels.PADDINGS.index(self.mode), *channels_of(self.fill)))

    def _four(self) -> tuple[int, int, int, int]:
        left, top, right, bottom = self.padding  # type: ignore[misc]
        return left, top, right, bottom


@dataclass(frozen=True)
class Geometry(Op):
    """Changes nothing; returns how pixels moved up to its place, as the field ``returns`` of the batch.

    That is a matrix (2, 3) for each sample: ``x, y = matrix @ (x, y, 1)`` from coordinates of the image as it is
    read to those of the image here. A pixel's middle lies at (column + 0.5, row + 0.5).
    """

    returns: str

    def __post_init__(self) -> None:
        if not isinstance(self.returns, str) or not self.returns:
            raise TypeError(f"returns={self.returns!r}: a name")

    def output(self, given: Pixels) -> Pixels:
        """Unchanged."""
        return given

    def step(self) -> Step:
        """Looks at the map that the program keeps."""
        return Step("tell_geometry")


@dataclass(frozen=True)
class Size(Op):
    """Changes nothing; returns height and width of the image at its place, as the field ``returns`` of the batch."""

    returns: str

    def __post_init__(self) -> None:
        if not isinstance(self.returns, str) or not self.returns:
            raise TypeError(f"returns={self.returns!r}: a name")

    def output(self, given: Pixels) -> Pixels:
        """Unchanged."""
        return given

    def step(self) -> Step:
        """Looks at the image."""
        return Step("tell_size")
