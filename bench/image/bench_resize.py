"""Crops of a photo to 224 x 224: against Pillow, whose pixels these are, and OpenCV, whose are not. One thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from common import Result, interleave
from PIL import Image

from fastloader import kernels

try:
    import cv2
except ImportError:  # pip install opencv-python-headless
    cv2 = None
else:
    cv2.setNumThreads(1)

SIZE, CROPS = 224, 20
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}

Crop = tuple[int, int, int, int]


def photo(height: int, width: int) -> np.ndarray:
    """Smooth colours."""
    coarse = np.random.default_rng(0).integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).copy()


def crops(height: int, width: int, side: int) -> list[Crop]:
    """About ``side`` pixels wide and high, each a little different: no table serves twice."""
    rng = np.random.default_rng(side)
    found = []
    for _ in range(CROPS):
        h, w = side + int(rng.integers(-9, 10)), side + int(rng.integers(-9, 10))
        top, left = int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1))
        found.append((left, top, left + w, top + h))
    return found


def measure(side: int, name: str) -> list[Result]:
    """Pillow and OpenCV against this, and what the instruction sets give."""
    height, width = (414, 486) if side <= 400 else (1500, 2000)
    pixels = photo(height, width)
    image, boxes, out = Image.fromarray(pixels), crops(height, width, side), np.empty((SIZE, SIZE, 3), np.uint8)

    def here(level: str) -> Callable[[], None]:
        def run() -> None:
            for box in boxes:
                kernels.resize(
                    pixels, pixels.shape, 0, box, (SIZE, SIZE), kernels.FILTERS.index(name), False, out, level
                )

        return run

    actions: dict[str, Callable[[], object]] = {level: here(level) for level in kernels.simd_levels()}
    actions["Pillow"] = lambda: [image.resize((SIZE, SIZE), FILTERS[name], box) for box in boxes]
    if cv2 is not None:
        for what in ("AREA", "LINEAR") if name == "bilinear" else ("CUBIC",):
            number = getattr(cv2, f"INTER_{what}")
            actions[f"OpenCV {what}"] = lambda number=number: [
                cv2.resize(pixels[top:bottom, left:right], (SIZE, SIZE), interpolation=number)
                for left, top, right, bottom in boxes
            ]
    times = interleave(15, **actions)
    best = kernels.simd_levels()[0]
    pixel = {what: seconds / CROPS / SIZE**2 * 1e9 for what, seconds in times.items()}
    return [
        Result(f"{name}, {side} px to {SIZE}", what, times[best] / seconds, "<= 0.2" if what == "Pillow" else "",
               f"ns a pixel: {pixel[best]:.2f} ({best}) against {pixel[what]:.2f}")
        for what, seconds in times.items() if what != best
    ]  # fmt: skip


def main() -> list[Result]:
    """Small crops, which grow; large ones, which shrink; and one of a large photo."""
    return [result for name in FILTERS for side in (100, 256, 400, 1200) for result in measure(side, name)]
