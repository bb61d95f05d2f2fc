"""What memory gives to who copies, and the processor to who resizes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.doctor.pace import Pace, measured

COPIED = 32 << 20
"""Bytes that each thread copies at a time: more than caches hold."""

TRIES = 5
"""The best of which counts: other programs use memory, too."""


@dataclass(frozen=True, slots=True)
class Copying:
    """Plain copies from memory to memory: by one thread, in seconds of its CPU, and by one a CPU, in seconds."""

    one: Pace
    all: Pace


def examine_copying(cpus: int, seconds: float) -> Copying:
    """Measure for about so many seconds."""

    def make(number: int) -> Any:
        source, target = np.full(COPIED, number, np.uint8), np.full(COPIED, 255, np.uint8)

        def copy() -> int:
            np.copyto(target, source)
            return COPIED

        return copy

    copy = make(0)
    began = time.thread_time()
    one = measured(lambda number: copy, 1, seconds / 2)
    one = replace(one, seconds=time.thread_time() - began)
    tries = [measured(make, cpus, seconds / 2 / TRIES) for _ in range(TRIES)]
    return Copying(one, max(tries, key=lambda pace: pace.bytes_per_second))


def resizing(images: Sequence[NDArray[np.uint8]], size: tuple[int, int], seconds: float) -> float:
    """CPU seconds that it takes to resize one of these images, whole, to (height, width)."""
    count = 0
    began, end = time.thread_time(), time.perf_counter() + seconds
    while not count or time.perf_counter() < end:
        for image in images:
            kernels.resize_image(image, size)
        count += len(images)
    return (time.thread_time() - began) / count
