"""Operations on a whole batch: images made of two samples each, and labels to match."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.ops.base import Pixels, likelihood

_DRAWS = np.dtype([("rank", "u8"), ("chance", "f8"), ("share", "f8"), ("x", "f8"), ("y", "f8")])
MAX_ALPHA = 1000


class Draws(NamedTuple):
    """What the samples of a batch drew: each one's partner, its own share, and the middle of a box."""

    partners: NDArray[np.int64]
    shares: NDArray[np.float64]
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@dataclass(frozen=True)
class BatchOp(ABC):
    """Mixes the ``image`` and ``label`` of samples of a batch with likelihood ``p``, by shares from Beta(alpha, alpha).

    Each sample is the partner of one other, never its own where there are two. What a sample draws depends on the seed,
    the epoch, the sample and the op's place alone; who its partner is, on the samples of the batch too.
    """

    alpha: float = 1.0
    p: float = 1.0
    image: str = "image"
    label: str = "label"

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= MAX_ALPHA:
            raise ValueError(f"alpha={self.alpha!r}: above 0, and at most {MAX_ALPHA}")
        object.__setattr__(self, "p", likelihood(self.p))

    def draw(self, seed: int, epoch: int, samples: NDArray[np.int64], op: int) -> Draws:
        """The draws of a batch of these samples."""
        drawn = np.empty(len(samples), _DRAWS)
        kernels.draw_mix(seed, epoch, np.ascontiguousarray(samples, np.int64), op, self.alpha, drawn.view(np.uint8))
        order = np.argsort(drawn["rank"], kind="stable")
        partners = np.empty(len(samples), np.int64)
        partners[order] = np.roll(order, -1)
        shares = np.where(drawn["chance"] < self.p, drawn["share"], 1.0)
        return Draws(partners, shares, drawn["x"], drawn["y"])

    @abstractmethod
    def mix(
        self, images: NDArray[np.generic], pixels: Pixels, draws: Draws
    ) -> tuple[NDArray[np.generic], NDArray[np.float32]]:
        """The images, mixed, and the share of each that is its own."""


@dataclass(frozen=True)
class Mixup(BatchOp):
    """Each image is the sum of its own share and the rest of its partner's; so is its label."""

    alpha: float = 0.2

    def mix(
        self, images: NDArray[np.generic], pixels: Pixels, draws: Draws
    ) -> tuple[NDArray[np.generic], NDArray[np.float32]]:
        """By ``kernels.mixup``."""
        shares = draws.shares.astype(np.float32)
        return mixed(images, pixels.dtype, draws.partners, shares), shares


@dataclass(frozen=True)
class CutMix(BatchOp):
    """Each image gets a box of its partner's, at the same place; of the label, the box's part of the area.

    The box has the image's ratio of sides and a random middle; what sticks out is cut off.
    """

    def mix(
        self, images: NDArray[np.generic], pixels: Pixels, draws: Draws
    ) -> tuple[NDArray[np.generic], NDArray[np.float32]]:
        """By ``kernels.cutmix``."""
        height, width = pixels.height or 0, pixels.width or 0
        boxes = np.empty((len(images), 4), np.uint32)  # top, left, bottom, right
        part = np.sqrt(1 - draws.shares)
        for column, (middle, length) in enumerate(((draws.y, height), (draws.x, width))):
            centre, side = np.floor(middle * length), np.floor(part * length)
            boxes[:, column] = np.clip(centre - side // 2, 0, length)
            boxes[:, column + 2] = np.clip(centre - side // 2 + side, 0, length)
        out = np.empty_like(images)
        shape = (height, width, pixels.channels)
        layout = kernels.LAYOUTS.index(pixels.layout.lower())
        kernels.cutmix(
            images.view(np.uint8), shape, images.dtype.itemsize, layout, draws.partners, boxes, out.view(np.uint8)
        )
        sides = boxes[:, 2:].astype(np.int64) - boxes[:, :2]
        return out, (1 - sides.prod(axis=1) / (height * width)).astype(np.float32)


def mixed(
    values: NDArray[np.generic], dtype: str, partners: NDArray[np.int64], shares: NDArray[np.float32]
) -> NDArray[np.generic]:
    """``shares`` of each row, and the rest of its partner's."""
    out = np.empty_like(values)
    kernels.mixup(values.view(np.uint8), kernels.ELEMENTS.index(dtype), partners, shares, out.view(np.uint8))
    return out
