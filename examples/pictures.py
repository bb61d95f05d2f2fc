"""The pictures that the training examples learn from: shapes in four classes, generated, with noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fastloader as fl

CLASSES, SIDE = 4, 32
TRAIN, TEST = 2048, 512


def picture(rng: np.random.Generator, label: int) -> np.ndarray:
    """A disc, a square, a cross or a ring, somewhere, in some colour, under noise."""
    y, x = np.mgrid[: SIDE + 8, : SIDE + 8]
    at, size = rng.uniform(14, 26, 2), rng.uniform(6, 10)
    far = np.hypot(y - at[0], x - at[1])
    wide = np.maximum(abs(y - at[0]), abs(x - at[1]))
    near = np.minimum(abs(y - at[0]), abs(x - at[1]))
    shape = [far < size, wide < size * 0.85, (near < size / 4) & (wide < size), (far < size) & (far > size * 0.6)][
        label
    ]
    image = rng.integers(0, 90, 3) + shape[..., None] * rng.integers(90, 160, 3) + rng.normal(0, 12, (*far.shape, 3))
    return np.clip(image, 0, 255).astype(np.uint8)


def write(path: Path, samples: int, seed: int) -> None:
    """A dataset of such pictures."""
    rng = np.random.default_rng(seed)
    with fl.DatasetWriter(path, {"image": fl.JPEGImageField(quality=95), "label": fl.IntField()}) as writer:
        for number in range(samples):
            writer.write_sample({"image": picture(rng, number % CLASSES), "label": number % CLASSES})


def written(folder: Path) -> tuple[Path, Path]:
    """One dataset to train with and one of unseen pictures, made where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    train, test = folder / "train.fld", folder / "test.fld"
    for path, samples, seed in ((train, TRAIN, 0), (test, TEST, 1)):
        if not path.exists():
            write(path, samples, seed)
    return train, test


def pipeline(train: bool) -> list[fl.ops.Op]:
    """Crops and flips to train with, the middle to test with; numbers around 0."""
    crop = [fl.ops.RandomCrop(SIDE), fl.ops.HorizontalFlip()] if train else [fl.ops.CenterCrop(SIDE)]
    return [*crop, fl.ops.Normalize(110.0, 60.0)]
