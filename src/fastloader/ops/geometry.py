"""Operations that choose, resize and mirror pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastloader.ops.base import Op, Pixels, Step, both_sides, check_pixels, filter_number, interval, likelihood, side

_RANDOM_RESIZED_CROP, _RESIZE, _RESIZE_SHORTER, _CENTRE_CROP, _RANDOM_CROP, _FLIP, _FLIP_DOWN = range(7)


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
        return Step(_RANDOM_RESIZED_CROP, height, width, filter_number(self.filter), (*self.scale, *self.ratio))


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
            return Step(_RESIZE, *self.size, number)
        return Step(_RESIZE_SHORTER, self.size, 0, number)


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
        return Step(_CENTRE_CROP, *both_sides("size", self.size))


@dataclass(frozen=True)
class RandomCrop(Op):
    """A part of this size from anywhere in the image, with ``padding`` black pixels on each side first."""

    size: int | tuple[int, int]
    padding: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", both_sides("size", self.size))
        if self.padding:
            side("padding", self.padding)

    def output(self, given: Pixels) -> Pixels:
        """Of the size asked for."""
        return _crop_output(self, given, self.padding)

    def step(self) -> Step:
        """Narrows what is decoded, where nothing is padded."""
        return Step(_RANDOM_CROP, *both_sides("size", self.size), 0, (float(self.padding), 0.0, 0.0, 0.0))


@dataclass(frozen=True)
class HorizontalFlip(Op):
    """Left and right exchanged, with likelihood ``p``. Behind a resize it costs nothing."""

    p: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", likelihood(self.p))

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        check_pixels(given)
        return given

    def step(self) -> Step:
        """A mirror."""
        return Step(_FLIP, numbers=(self.p, 0.0, 0.0, 0.0))


@dataclass(frozen=True)
class VerticalFlip(Op):
    """Top and bottom exchanged, with likelihood ``p``."""

    p: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", likelihood(self.p))

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        check_pixels(given)
        return given

    def step(self) -> Step:
        """A mirror."""
        return Step(_FLIP_DOWN, numbers=(self.p, 0.0, 0.0, 0.0))
