"""What a store gives of these very objects: how soon, and how much at a time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastloader.doctor.pace import Pace, measured
from fastloader.loader.reading import REQUEST
from fastloader.stores import Store

AT_ONCE = (1, 4, 16, 64)
LATENCIES = 16
LEAST_PIECE = 64 << 10
A_PIECE_TAKES = 0.25
"""Seconds that a range should take at most, so that a slow network is told within the time there is."""


@dataclass(frozen=True, slots=True)
class Network:
    """``latency``: seconds that reads of a few bytes took, one after the other. ``ranges``: reads of ``range_bytes``.

    ``random``: reads of single samples. Both by how many were asked for at a time.
    """

    latency: tuple[float, ...]
    ranges: tuple[Pace, ...]
    random: tuple[Pace, ...]
    range_bytes: int
    sample_bytes: int

    def best(self, pattern: str) -> Pace:
        """The most that any number of readers got."""
        paces: tuple[Pace, ...] = getattr(self, pattern)
        return max(paces, key=lambda pace: pace.bytes_per_second)

    @property
    def median(self) -> float:
        """The latency in the middle."""
        return sorted(self.latency)[len(self.latency) // 2]


def examine_network(
    store: Store, objects: Sequence[tuple[str, int]], sample_bytes: int, seconds: float
) -> Network:  # fmt: skip
    """Measure for about so many seconds; ``objects`` are keys and sizes."""
    latency = _latency(store, objects, seconds / 5)
    began = time.perf_counter()
    probe = _reader(store, objects, LEAST_PIECE)(0)()
    pace = probe / max(time.perf_counter() - began - min(latency), 1e-6)
    piece = int(min(REQUEST, max(LEAST_PIECE, pace * A_PIECE_TAKES)))
    each = 0.8 * seconds / (2 * len(AT_ONCE))
    ranges = tuple(measured(_reader(store, objects, piece), at_once, each) for at_once in AT_ONCE)
    single = tuple(measured(_reader(store, objects, max(1, sample_bytes)), at_once, each) for at_once in AT_ONCE)
    return Network(latency, ranges, single, piece, sample_bytes)


def _latency(store: Store, objects: Sequence[tuple[str, int]], seconds: float) -> tuple[float, ...]:
    read = _reader(store, objects, 64)(0)
    read()  # the first one makes the connection
    found: list[float] = []
    end = time.perf_counter() + seconds
    while not found or (len(found) < LATENCIES and time.perf_counter() < end):
        began = time.perf_counter()
        read()
        found.append(time.perf_counter() - began)
    return tuple(found)


def _reader(store: Store, objects: Sequence[tuple[str, int]], size: int) -> Callable[[int], Callable[[], int]]:
    sizes = [one for _, one in objects]

    def make(number: int) -> Callable[[], int]:
        draw = random.Random(number)

        def read() -> int:
            key, whole = draw.choices(objects, sizes)[0]
            count = min(size, whole)
            return len(store.read(key, draw.randint(0, whole - count), count))

        return read

    return make
