"""Meta's SPDL: FFmpeg decodes, and crops, scales and flips before it makes RGB, in the threads of a pipeline."""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
import spdl.io
from numpy.typing import NDArray
from spdl.pipeline import PipelineBuilder
from task import BATCH, SIZE, WORKERS, Box, Task, draw_box

VERSION = f"SPDL {version('spdl_io')}"


def frames(path: str, box: Box | None, flip: bool, rng: np.random.Generator | None = None) -> Any:
    """One image, still in FFmpeg's memory."""
    packets = spdl.io.demux_image(path)
    if rng is not None:
        box = draw_box(rng, packets.width, packets.height)
    assert box is not None
    left, top, width, height = box
    # Without exact, the crop is moved and shrunk to even numbers.
    steps = f"crop={width}:{height}:{left}:{top}:exact=1,scale={SIZE}:{SIZE}:flags=bilinear"
    steps += ",hflip" if flip else ""
    return spdl.io.decode_packets(packets, spdl.io.get_video_filter_desc(filter_desc=steps, pix_fmt="rgb24"))


def batches(task: Task) -> Iterator[Any]:
    """(64, 224, 224, 3) of uint8."""
    paths = task.paths * task.passes
    random.Random(1).shuffle(paths)
    seeds = np.random.default_rng(1)

    def load(item: tuple[str, int]) -> Any:
        rng = np.random.default_rng(item[1])
        return frames(item[0], None, bool(rng.integers(2)), rng)

    pipeline = (
        PipelineBuilder()
        .add_source(zip(paths, seeds.integers(1 << 62, size=len(paths)).tolist(), strict=True))
        .pipe(load, concurrency=WORKERS)
        .aggregate(BATCH, drop_last=True)
        .pipe(spdl.io.convert_frames)
        .add_sink(2)
        .build(num_threads=WORKERS)
    )
    with pipeline.auto_stop():
        for buffer in pipeline:
            yield spdl.io.to_numpy(buffer)


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """By FFmpeg's filters."""
    paths = task.paths
    found = [spdl.io.convert_frames(frames(paths[number], box, flip=False)) for number, box in wanted]
    return np.stack([spdl.io.to_numpy(one) for one in found])
