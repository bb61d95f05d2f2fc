"""fastloader as it is today: the engine decodes whole JPEGs; crop, resize and flip are Pillow's, in a Python transform.

The row that all others are held against: when the engine crops and resizes by itself, this file is what changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image
from task import BATCH, SIZE, WORKERS, Box, Task, draw_box

import fastloader as fl

VERSION = f"fastloader {fl.__version__} (resize: Pillow {PIL.__version__})"


def prepare(task: Task) -> None:
    """One .fld, the JPEGs byte for byte."""
    field: Any = fl.RawImageField(256, 256) if task.raw else fl.JPEGImageField()
    with fl.DatasetWriter(task.packed / "photos.fld", {"image": field}) as writer:
        for image in task.pixels if task.raw else map(Path.read_bytes, map(Path, task.paths)):
            writer.write_sample({"image": image})


def resized(image: NDArray[np.uint8], box: Box) -> Image.Image:
    """A crop, antialiased."""
    left, top, width, height = box
    cropped = np.ascontiguousarray(image[top : top + height, left : left + width])
    return Image.fromarray(cropped).resize((SIZE, SIZE), Image.Resampling.BILINEAR)


def augment(images: Any) -> NDArray[np.uint8]:
    """RandomResizedCrop and HorizontalFlip of a batch."""
    rng = np.random.default_rng()
    out = np.empty((len(images), SIZE, SIZE, 3), np.uint8)
    for row, image in zip(out, images, strict=True):
        one = resized(image, draw_box(rng, image.shape[1], image.shape[0]))
        row[:] = np.asarray(one)[:, :: int(1 - 2 * rng.integers(2))]
    return out


def batches(task: Task) -> Iterator[Any]:
    """(64, 224, 224, 3) of uint8."""
    order = np.random.default_rng(1).permutation(np.tile(np.arange(len(task)), task.passes))
    reader = fl.open(task.packed / "photos.fld")
    with fl.DataLoader(
        reader, BATCH, num_workers=WORKERS, drop_last=True, sampler=order.tolist(), transforms={"image": augment}
    ) as loader:
        for batch in loader:
            yield batch["image"]


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """The engine's decoder, Pillow's resize."""
    reader = fl.open(task.packed / "photos.fld")
    return np.stack([np.asarray(resized(reader[number]["image"], box)) for number, box in wanted])
