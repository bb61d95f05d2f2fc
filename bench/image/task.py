"""What every peer is asked to do, and the crops that all are compared on. Read in every environment: numpy alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIZE, BATCH, WORKERS = 224, 64, 2
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
VARIANTS = {"jpeg": "photos", "jpeg512": "photos512", "raw256": "raw256.npy"}
COMPARED, COMPARED_SEED = 200, 9

Box = tuple[int, int, int, int]
"""Left, top, width, height."""


@dataclass(frozen=True, slots=True)
class Task:
    """Photos, and a folder of the peer's own for whatever it makes of them."""

    source: Path
    packed: Path

    @property
    def raw(self) -> bool:
        """Whether the source is one array of pixels rather than a folder of JPEGs."""
        return self.source.suffix == ".npy"

    @property
    def paths(self) -> list[str]:
        """The JPEGs, in order."""
        return [str(path) for path in sorted(self.source.iterdir())]

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """The raw images, mapped: (count, 256, 256, 3)."""
        mapped: NDArray[np.uint8] = np.load(self.source, mmap_mode="r")
        return mapped

    @property
    def passes(self) -> int:
        """Times that the photos are seen in one long epoch, of which the first is not measured."""
        return 40 if self.raw else 5

    def __len__(self) -> int:
        return len(self.pixels) if self.raw else len(self.paths)


def draw_box(rng: np.random.Generator, width: int, height: int) -> Box:
    """A box as torchvision's RandomResizedCrop draws it."""
    for _ in range(10):
        area = width * height * rng.uniform(*SCALE)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1)), w, h
    w = min(width, round(height * RATIO[1]))
    h = min(height, round(width / RATIO[0]))
    return (width - w) // 2, (height - h) // 2, w, h


def compared(sizes: list[tuple[int, int]]) -> list[tuple[int, Box]]:
    """Which photos every peer crops for the comparison of quality, and where: (number, box)."""
    rng = np.random.default_rng(COMPARED_SEED)
    numbers = np.linspace(0, len(sizes) - 1, min(COMPARED, len(sizes))).astype(int).tolist()
    return [(number, draw_box(rng, *sizes[number])) for number in numbers]
