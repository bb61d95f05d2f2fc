"""Photo-like JPEGs, the same on every run: crops of photos that scikit-image and scikit-learn ship, with noise."""

from __future__ import annotations

import io
import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SHIPPED = {
    "sklearn": ("datasets/images/china.jpg", "datasets/images/flower.jpg"),
    "skimage": (
        "data/coffee.png", "data/astronaut.png", "data/chelsea.png", "data/motorcycle_left.png", "data/rocket.jpg",
    ),
}  # fmt: skip


def originals() -> tuple[list[NDArray[np.uint8]], str]:
    """Photos, and where they are from. Without those packages they are made up: clouds of every scale, with edges."""
    found = []
    for package, names in SHIPPED.items():
        spec = find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            found += [Path(folder) / name for name in names if (Path(folder) / name).exists()]
    if found:
        return [np.asarray(Image.open(path).convert("RGB")) for path in found], f"{len(found)} shipped photos"
    return [_clouds(seed) for seed in range(6)], "made-up photos"


def _clouds(seed: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    sum_ = np.zeros((480, 640, 3))
    for octave in range(2, 9):
        coarse = rng.normal(size=(2**octave, 2**octave, 3)) * 90 / 2 ** (octave * 0.8)
        layers = [
            Image.fromarray(coarse[..., c].astype(np.float32)).resize((640, 480), Image.BICUBIC) for c in range(3)
        ]
        sum_ += np.stack([np.asarray(layer) for layer in layers], -1)
    sum_ += np.where(sum_[..., :1] > 10, 40, -20)
    return (sum_ + 128).clip(0, 255).astype(np.uint8)


def jpegs(count: int, seed: int = 0, long_side: int = 500) -> tuple[list[bytes], str]:
    """``count`` files of about 100 KB at 500 x 400: quality 90, 4:2:0."""
    base, source = originals()
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        short = int(long_side * rng.choice([0.75, 0.67, 0.8]))
        width, height = (long_side, short) if rng.random() < 0.6 else (short, long_side)
        photo = base[i % len(base)]
        rows = int(min(photo.shape[0], photo.shape[1] * height / width) * rng.uniform(0.55, 1))
        columns = int(rows * width / height)
        y, x = rng.integers(0, photo.shape[0] - rows + 1), rng.integers(0, photo.shape[1] - columns + 1)
        part = Image.fromarray(photo[y : y + rows, x : x + columns]).resize((width, height), Image.BICUBIC)
        noise = rng.normal(size=(height, width, 1)) * rng.uniform(7, 14) + rng.normal(size=(height, width, 3)) * 3
        out = io.BytesIO()
        Image.fromarray((np.asarray(part) + noise).clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
        made.append(out.getvalue())
    return made, source


def random_boxes(sizes: list[tuple[int, int]], seed: int = 0) -> list[tuple[int, int, int, int]]:
    """(x, y, width, height) within each (height, width), drawn as RandomResizedCrop does by default."""
    rng = np.random.default_rng(seed)
    boxes = []
    for height, width in sizes:
        for _ in range(10):
            area = height * width * rng.uniform(0.08, 1)
            ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                boxes.append((int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1)), w, h))
                break
        else:
            boxes.append((0, 0, min(height, width), min(height, width)))
    return boxes
