"""How often something can be done in a time, by one or by several at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """What was done: ``count`` times, ``bytes`` in all, in ``seconds``, by ``at_once`` at the same time."""

    at_once: int
    count: int
    bytes: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Times a second."""
        return self.count / max(self.seconds, 1e-9)

    @property
    def bytes_per_second(self) -> float:
        """Bytes a second."""
        return self.bytes / max(self.seconds, 1e-9)


def measured(make: Callable[[int], Callable[[], int]], at_once: int, seconds: float) -> Pace:
    """The pace of so many threads, each with a function of its own (``make(number)``) that returns bytes.

    Each does at least one, and none begins another when the time is over. What fails in one fails all.
    """
    works = [make(number) for number in range(at_once)]
    counts, sizes, failed = [0] * at_once, [0] * at_once, list[BaseException]()
    began = time.perf_counter()
    end = began + seconds

    def work(number: int) -> None:
        one = works[number]
        try:
            while not counts[number] or (time.perf_counter() < end and not failed):
                sizes[number] += one()
                counts[number] += 1
        except BaseException as error:
            failed.append(error)

    others = [threading.Thread(target=work, args=(number,), name="fastloader-doctor") for number in range(1, at_once)]
    for other in others:
        other.start()
    work(0)
    for other in others:
        other.join()
    took = time.perf_counter() - began
    if failed:
        raise failed[0]
    return Pace(at_once, sum(counts), sum(sizes), took)
