"""What operations draw: which numbers they can return, and on what these depend."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from fastloader.ops.base import Step


class Drawn(NamedTuple):
    """What an operation returns of each sample: its shape, its type, and what it means."""

    shape: tuple[int, ...]
    dtype: str
    meaning: str

    @property
    def numbers(self) -> int:
        """How many there are."""
        return prod(self.shape)

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}: {self.meaning}" if self.shape else f"{self.dtype}: {self.meaning}"


class _Rule(NamedTuple):
    """What a step tells, how many of its numbers its draws depend on, and whether on its size and the image's."""

    drawn: Drawn
    numbers: int | None
    own_size: bool = False
    given_size: bool = False


_BOX = Drawn((4,), "int32", "x, y, width, height of the part")
_ERASED = Drawn((4,), "int32", "x, y, width, height of the box; all 0 where there is none")
_HAPPENED = Drawn((), "bool", "whether it happened")
_FACTOR = Drawn((), "float32", "the factor; 1 where nothing changed")
_CHANGE = "the operation's number, from 0, and how far it goes"
GEOMETRY = Drawn((2, 3), "float32", "from x, y in the stored image to x, y here")
SIZE = Drawn((2,), "int32", "height, width")

_RULES = {
    "random_resized_crop": _Rule(_BOX, 4, given_size=True),
    "centre_crop": _Rule(_BOX, None),
    "random_crop": _Rule(_BOX, 1, own_size=True, given_size=True),
    "flip": _Rule(_HAPPENED, 1),
    "flip_down": _Rule(_HAPPENED, 1),
    "translate": _Rule(Drawn((2,), "int32", "pixels to the right and down"), 1, given_size=True),
    "rotate": _Rule(Drawn((), "float32", "degrees, counter-clockwise"), 2, given_size=True),
    "affine": _Rule(Drawn((2, 3), "float32", "from x, y before it to x, y behind it"), 12, given_size=True),
    "erase": _Rule(_ERASED, 5, given_size=True),
    "cutout": _Rule(_ERASED, 0, own_size=True, given_size=True),
    "brightness": _Rule(_FACTOR, 3),
    "contrast": _Rule(_FACTOR, 3),
    "saturation": _Rule(_FACTOR, 3),
    "hue": _Rule(Drawn((), "float32", "turns; 0 where nothing changed"), 3),
    "jitter": _Rule(Drawn((8,), "float32", "brightness, contrast, saturation, hue; their order by number"), 9),
    "gray": _Rule(_HAPPENED, 1),
    "sharpness": _Rule(_FACTOR, 3),
    "blur": _Rule(Drawn((), "float32", "sigma; 0 where nothing changed"), 3),
    "posterize": _Rule(_HAPPENED, 1),
    "solarize": _Rule(_HAPPENED, 1),
    "autocontrast": _Rule(_HAPPENED, 1),
    "equalize": _Rule(_HAPPENED, 1),
    "invert": _Rule(_HAPPENED, 1),
    "rand_augment": _Rule(Drawn((1, 2), "float32", f"{_CHANGE}, for each"), 3, given_size=True),
    "trivial_augment": _Rule(Drawn((2,), "float32", _CHANGE), 1, given_size=True),
    "tell_geometry": _Rule(GEOMETRY, None),
    "tell_size": _Rule(SIZE, None),
}  # fmt: skip


def drawn_by(step: Step | None) -> Drawn | None:
    """What the operation of this step can return; ``None`` where there is nothing."""
    rule = None if step is None else _RULES.get(step.kind)
    if step is None or rule is None:
        return None
    many = step.kind == "rand_augment"
    return rule.drawn._replace(shape=(int(step.numbers[0]), 2)) if many else rule.drawn


def draws_by(step: Step | None) -> tuple[object, ...] | None:
    """What, besides place and image, decides the draws; ``None`` for a step without."""
    rule = None if step is None else _RULES.get(step.kind)
    if step is None or rule is None or rule.numbers is None:
        return None
    return step.kind, *step.numbers[: rule.numbers], *((step.height, step.width) if rule.own_size else ())


def needs_size(step: Step) -> bool:
    """Whether the draws mean the same on images of one size alone."""
    return _RULES[step.kind].given_size
