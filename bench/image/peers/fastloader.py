"""fastloader: crop, resize and flip in the engine, from stored bytes to the batch; only the crop is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from task import BATCH, SIZE, WORKERS, Box, Task

import fastloader as fl
from fastloader import kernels

VERSION = f"fastloader {fl.__version__}"
SPARE = 2
"""A JPEG is decoded smaller where that leaves this many times the pixels asked for (native/kernels/program_image)."""


def prepare(task: Task) -> None:
    """One .fld, the JPEGs byte for byte, each with its index."""
    field: Any = fl.RawImageField(256, 256) if task.raw else fl.JPEGImageField()
    with fl.DatasetWriter(task.packed / "photos.fld", {"image": field}) as writer:
        for image in task.pixels if task.raw else map(Path.read_bytes, map(Path, task.paths)):
            writer.write_sample({"image": image})


def batches(task: Task) -> Iterator[Any]:
    """(64, 224, 224, 3) of uint8."""
    order = np.random.default_rng(1).permutation(np.tile(np.arange(len(task)), task.passes))
    reader = fl.open(task.packed / "photos.fld")
    pipeline = [fl.ops.RandomResizedCrop(SIZE), fl.ops.HorizontalFlip()]
    with fl.DataLoader(
        reader, BATCH, num_workers=WORKERS, drop_last=True, sampler=order.tolist(), pipelines={"image": pipeline}
    ) as loader:
        for batch in loader:
            yield batch["image"]


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """The kernels that the pipeline runs, with boxes given."""
    reader = fl.open(task.packed / "photos.fld")
    return np.stack([_crop(reader, number, box) for number, box in wanted])


def _crop(reader: fl.DatasetReader, number: int, box: Box) -> NDArray[np.uint8]:
    left, top, width, height = box
    payload = reader.read_payload(number, "image")
    assert payload is not None
    if not isinstance(reader.fields["image"], fl.JPEGImageField):
        return kernels.resize_image(reader[number]["image"][top : top + height, left : left + width], (SIZE, SIZE))
    shrink = 1
    while shrink < 8 and min(width, height) >= SPARE * 2 * shrink * SIZE:
        shrink *= 2
    shape = kernels.image_info(kernels.JPEG, payload)
    x, y = left // shrink, top // shrink
    w, h = -(-(left + width) // shrink) - x, -(-(top + height) // shrink) - y
    pixels, _ = kernels.decode_jpeg_box(payload, b"", shape, (x, y, w, h), shrink=shrink)
    inner = (left / shrink - x, top / shrink - y, (left + width) / shrink - x, (top + height) / shrink - y)
    return kernels.resize_image(pixels, (SIZE, SIZE), box=inner)
