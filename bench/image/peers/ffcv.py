"""FFCV: its own file, numba-compiled pipeline, libjpeg-turbo's full decode and OpenCV's INTER_AREA on the crop.

Its writer takes pixels, so JPEGs are encoded once more, at the same quality. Its raw mode stores pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
from ffcv.fields import RGBImageField
from ffcv.fields.decoders import RandomResizedCropRGBImageDecoder
from ffcv.libffcv import imdecode, resize_crop
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, ToTensor
from ffcv.writer import DatasetWriter
from numpy.typing import NDArray
from PIL import Image
from task import BATCH, SIZE, WORKERS, Box, Task

VERSION = f"ffcv {version('ffcv')}"


class Photos:
    """Samples for the writer."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.paths = [] if task.raw else task.paths

    def __len__(self) -> int:
        return len(self.task)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8]]:
        if self.task.raw:
            return (np.array(self.task.pixels[index]),)
        with Image.open(self.paths[index]) as file:
            return (np.array(file.convert("RGB")),)


def prepare(task: Task) -> None:
    """One .beton."""
    field = RGBImageField(write_mode="raw" if task.raw else "jpg", jpeg_quality=90)
    DatasetWriter(str(task.packed / "photos.beton"), {"image": field}, num_workers=1).from_indexed_dataset(Photos(task))


def batches(task: Task) -> Iterator[Any]:
    """(64, 224, 224, 3) of uint8."""
    image = [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip(), ToTensor()]
    loader = Loader(
        str(task.packed / "photos.beton"), BATCH, WORKERS, os_cache=True, order=OrderOption.RANDOM, seed=1,
        indices=np.tile(np.arange(len(task)), task.passes), pipelines={"image": image},
    )  # fmt: skip
    for (images,) in loader:
        yield images


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """By the two functions that its decoder calls, on the photos as they came."""
    out = np.empty((len(wanted), SIZE, SIZE, 3), np.uint8)
    paths = task.paths
    for row, (number, (left, top, width, height)) in zip(out, wanted, strict=True):
        encoded = np.fromfile(paths[number], np.uint8)
        with Image.open(paths[number]) as file:
            w, h = file.size
        pixels = np.empty((h, w, 3), np.uint8)
        imdecode(encoded, pixels, h, w, h, w, 0, 0, 1, 1, False, False)
        resize_crop(pixels, top, top + height, left, left + width, row)
    return out
