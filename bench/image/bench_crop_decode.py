"""Decoding random crops of JPEG photos, one thread: by the ways there are, against decoding all and cutting out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import Result, interleave

from fastloader import kernels

sys.path.insert(0, str(Path(__file__).parent))

from crops import jpegs, random_boxes

COUNT, ROUNDS = 60, 15


def measure(what: str, long_side: int, count: int, shrink: int = 1) -> list[Result]:
    """Ratios for photos of one size, decoded at one scale."""
    files, source = jpegs(count, long_side=long_side)
    shapes = [kernels.image_info(kernels.JPEG, file) for file in files]
    boxes = random_boxes([(-(-shape[0] // shrink), -(-shape[1] // shrink)) for shape in shapes])
    indexes = {interval: [kernels.jpeg_index(file, interval)[0] for file in files] for interval in (4, 8)}
    size = sum(map(len, files))

    def cut_out() -> None:
        for file, shape, (x, y, width, height) in zip(files, shapes, boxes, strict=True):
            everything = (0, 0, -(-shape[1] // shrink), -(-shape[0] // shrink))
            pixels, _ = kernels.decode_jpeg_box(file, b"", shape, everything, shrink=shrink, route="full")
            np.ascontiguousarray(pixels[y : y + height, x : x + width])

    def by(route: str, index: list[bytes]) -> Callable[[], None]:
        def run() -> None:
            for file, anchors, shape, box in zip(files, index, shapes, boxes, strict=True):
                kernels.decode_jpeg_box(file, anchors, shape, box, shrink=shrink, route=route)

        return run

    def walk() -> None:
        for file in files:
            kernels.jpeg_index(file, 4)

    times = interleave(
        ROUNDS, all=cut_out, partial=by("partial", [b""] * count), four=by("automatic", indexes[4]),
        eight=by("automatic", indexes[8]), always=by("splice", indexes[4]), index=walk,
    )  # fmt: skip
    per_image = {name: f"{seconds / count * 1e6:.0f} us an image" for name, seconds in times.items()}
    added = {interval: f", index +{sum(map(len, made)) / size:.2%}" for interval, made in indexes.items()}
    against = f"full decode, then crop: {per_image['all']}"
    goal = "<= 0.56" if shrink == 1 else ""
    return [
        Result(
            f"{what}: {name}", against, times[key] / times["all"], goal if key == "four" else "", per_image[key] + more
        )
        for key, name, more in (
            ("partial", "rows and columns of the crop", f", {source}, {size / count / 1e3:.0f} KB"),
            ("four", "seekable, every 4th MCU", added[4]),
            ("eight", "seekable, every 8th MCU", added[8]),
            ("always", "every 4th MCU, spliced even where most is wanted", ""),
            ("index", "making the index", ""),
        )
    ]


def main() -> list[Result]:
    """Photos of 500 pixels, and some of 2,000, whole and at a quarter."""
    return measure("500 px", 500, COUNT) + measure("2000 px", 2000, 8) + measure("2000 px at 1/4", 2000, 8, shrink=4)
