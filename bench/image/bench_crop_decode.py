"""Decoding random crops of JPEG photos, one thread: by the ways there are, against decoding all and cutting out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import Result, interleave

from fastloader import kernels

sys.path.insert(0, str(Path(__file__).parent))

from photos import jpegs, random_boxes

COUNT, ROUNDS = 60, 15


def measure(what: str, long_side: int, count: int) -> list[Result]:
    """Ratios for photos of one size."""
    files, source = jpegs(count, long_side=long_side)
    shapes = [kernels.image_info(kernels.JPEG, file) for file in files]
    boxes = random_boxes([shape[:2] for shape in shapes])
    indexes = {interval: [kernels.jpeg_index(file, interval)[0] for file in files] for interval in (4, 8)}
    size = sum(map(len, files))

    def cut_out() -> None:
        for file, shape, (x, y, width, height) in zip(files, shapes, boxes, strict=True):
            np.ascontiguousarray(kernels.decode_image(kernels.JPEG, file, shape)[y : y + height, x : x + width])

    def by(route: str, index: list[bytes]) -> Callable[[], None]:
        def run() -> None:
            for file, anchors, shape, box in zip(files, index, shapes, boxes, strict=True):
                kernels.decode_jpeg_box(file, anchors, shape, box, route=route)

        return run

    def walk() -> None:
        for file in files:
            kernels.jpeg_index(file, 8)

    none = [b""] * count
    times = interleave(
        ROUNDS, all=cut_out, partial=by("partial", none), four=by("automatic", indexes[4]),
        eight=by("automatic", indexes[8]), always=by("splice", indexes[8]), index=walk,
    )  # fmt: skip
    per_image = {name: f"{seconds / count * 1e6:.0f} us an image" for name, seconds in times.items()}
    added = {interval: f", index +{sum(map(len, made)) / size:.2%}" for interval, made in indexes.items()}
    against = f"full decode, then crop: {per_image['all']}"
    return [
        Result(f"{what}: {name}", against, times[key] / times["all"], goal, per_image[key] + more)
        for key, name, goal, more in (
            ("partial", "rows and columns of the crop", "", f", {source}, {size / count / 1e3:.0f} KB"),
            ("four", "seekable, every 4th MCU", "<= 0.56", added[4]),
            ("eight", "seekable, every 8th MCU", "<= 0.58", added[8]),
            ("always", "the same, spliced even where most is wanted", "", ""),
            ("index", "making the index", "", ""),
        )
    ]


def main() -> list[Result]:
    """Photos of 500 pixels, and some of 2,000."""
    return measure("500 px", 500, COUNT) + measure("2000 px", 2000, 8)
