"""What memory gives to who copies, and the processor to who resizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.doctor.pace import Pace, measured

COPIED = 32 << 20
"""Bytes that each thread copies at a time: more than caches hold."""


@dataclass(frozen=True, slots=True)
class Copying:
    """Plain copies from memory to memory, by one thread and by one a CPU.

    Seconds are those that CPUs were at it, so that other programs do not count.
    """

    one: Pace
    all: Pace


def examine_copying(cpus: int, seconds: float) -> Copying:
    """Measure for about so many seconds."""
    copies = [_copy(number) for number in range(cpus)]
    return Copying(*(_pace(copies[:at_once], seconds / 2) for at_once in (1, cpus)))


def _copy(number: int) -> Callable[[], int]:
    source, target = np.full(COPIED, number, np.uint8), np.full(COPIED, 255, np.uint8)

    def copy() -> int:
        np.copyto(target, source)
        return COPIED

    return copy


def _pace(copies: Sequence[Callable[[], int]], seconds: float) -> Pace:
    began = time.process_time()
    found = measured(lambda number: copies[number], len(copies), seconds)
    return replace(found, seconds=(time.process_time() - began) / len(copies))


def resizing(images: Sequence[NDArray[np.uint8]], size: tuple[int, int], seconds: float) -> float:
    """CPU seconds that it takes to resize one of these images, whole, to (height, width)."""
    count = 0
    began, end = time.thread_time(), time.perf_counter() + seconds
    while not count or time.perf_counter() < end:
        for image in images:
            kernels.resize_image(image, size)
        count += len(images)
    return (time.thread_time() - began) / count
