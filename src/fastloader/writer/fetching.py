"""Samples asked for by number, by several threads at once if wanted, and given back in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

BUDGET = 64 << 20
"""Bytes of samples fetched ahead, as far as can be told from those that came before."""
MAX_JOB = 16
"""Samples that one thread fetches in one go."""


def fetch_in_order(fetch: Callable[[int], tuple[T, int]], count: int, workers: int) -> Generator[tuple[T, int]]:
    """``fetch(number)`` for all numbers below ``count``, each a sample and its size in bytes.

    With no workers it is called in this thread, when the sample is asked for. Otherwise samples are fetched ahead, as
    many as the sizes of the latest ones let expect to fit the budget; the very first comes alone.
    """
    if workers == 0:
        yield from map(fetch, range(count))
        return
    waiting: deque[tuple[int, Future[list[tuple[T, int]]]]] = deque()
    begun = in_flight = 0
    expected = BUDGET  # bytes of a sample; one large one is forgotten after some jobs of small ones
    pool = ThreadPoolExecutor(workers, "fastloader-fetcher")
    try:
        while begun < count or waiting:
            length = min(MAX_JOB, max(1, BUDGET // (expected * 2 * workers)))
            while begun < count and (
                not waiting or (len(waiting) < 2 * workers and (in_flight + length) * expected <= BUDGET)
            ):
                numbers = range(begun, min(begun + length, count))
                waiting.append((len(numbers), pool.submit(_fetch_all, fetch, numbers)))
                begun, in_flight = numbers.stop, in_flight + len(numbers)
            taken, future = waiting.popleft()
            in_flight -= taken
            samples = future.result()
            largest = max(1, *(size for _, size in samples))
            expected = largest if begun == 1 else max(largest, expected - expected // 8)
            yield from samples
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _fetch_all(fetch: Callable[[int], tuple[T, int]], numbers: range) -> list[tuple[T, int]]:
    return [fetch(number) for number in numbers]
