"""NVIDIA DALI on the CPU: the decoder that decodes the crop alone, then an antialiased resize."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import nvidia.dali
from numpy.typing import NDArray
from nvidia.dali import fn, pipeline_def, types
from task import BATCH, RATIO, SCALE, SIZE, WORKERS, Box, Task

VERSION = f"DALI {nvidia.dali.__version__}"


@pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None, seed=1)
def training(paths: list[str]) -> Any:
    """Files to batches."""
    encoded, _ = fn.readers.file(files=paths, random_shuffle=True, initial_fill=1024)
    images = fn.decoders.image_random_crop(encoded, random_area=SCALE, random_aspect_ratio=RATIO)
    images = fn.resize(images, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True)
    return fn.flip(images, horizontal=fn.random.coin_flip())


def batches(task: Task) -> Iterator[Any]:
    """(64, 224, 224, 3) of uint8."""
    paths = task.paths
    pipeline = training(paths * task.passes)
    pipeline.build()
    for _ in range(task.passes * len(paths) // BATCH):
        (images,) = pipeline.run()
        yield np.asarray(images.as_tensor())


@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def cropping(paths: list[str], boxes: list[Box]) -> Any:
    """The same with given boxes."""
    encoded, _ = fn.readers.file(files=paths)
    starts = fn.external_source([np.array([top, left], np.int32) for left, top, _, _ in boxes], batch=False)
    shapes = fn.external_source([np.array([height, width], np.int32) for _, _, width, height in boxes], batch=False)
    images = fn.decoders.image_slice(encoded, start=starts, shape=shapes, axes=[0, 1])
    return fn.resize(images, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True)


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """By the decoder's slices."""
    paths = task.paths
    pipeline = cropping([paths[number] for number, _ in wanted], [box for _, box in wanted])
    pipeline.build()
    return np.stack([np.asarray(pipeline.run()[0].as_tensor())[0].copy() for _ in wanted])
