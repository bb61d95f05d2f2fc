"""The loader itself, run for a while: how fast, and what each field takes of a CPU."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastloader.loader import DataLoader, advise

Consumer = Callable[[Any], Any]
"""What is done with each batch."""


@dataclass(frozen=True, slots=True)
class Run:
    """A loader that was run, from the first batch on.

    ``shapes`` are those of a batch's arrays; ``idle`` is the share of all CPUs that nobody used meanwhile.
    """

    samples: int
    batches: int
    seconds: float
    first_batch: float
    advice: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    stats: dict[str, Any]
    idle: float = 1.0

    @property
    def samples_per_second(self) -> float:
        """How fast."""
        return self.samples / max(self.seconds, 1e-9)

    def a_sample(self, name: str, what: str) -> float:
        """Something of a field, for a sample: "stored_bytes", "decoded_bytes"."""
        return float(self.stats["fields"][name][what]) / max(1, self.samples)

    def cpu(self, name: str) -> float:
        """CPU seconds of a field, for a sample: the engine's, and Python's for what the engine can't do."""
        told = self.stats["fields"][name]
        python = told["python"] + told["transform"] if self.stats["threads"]["python"] else 0.0
        return float(told["decode"] + python) / max(1, self.samples)

    @property
    def awaits_bytes(self) -> bool:
        """Whether reading is what the loader was held back by."""
        return self.advice[0].startswith("I/O-bound")

    @property
    def working(self) -> float:
        """The share of their time that threads had work, with a CPU or without."""
        threads: dict[str, float] = self.stats["threads"]
        return (threads["busy"] + threads["preempted"]) / max(threads["seconds"], 1e-9)

    @property
    def has_cpu(self) -> float:
        """The share of that in which they had a CPU."""
        threads: dict[str, float] = self.stats["threads"]
        return threads["busy"] / max(threads["busy"] + threads["preempted"], 1e-9)

    @property
    def fields(self) -> list[str]:
        """Those that were loaded."""
        return list(self.stats["fields"])


def run(loader: DataLoader, seconds: float, *, once: bool = False, consumer: Consumer = lambda batch: None) -> Run:
    """Load for so many seconds, and one batch at least; with ``once``, for an epoch at most."""
    shapes: dict[str, tuple[int, ...]] = {}
    began = time.perf_counter()
    end = began + seconds
    first = 0.0
    before = _cpu_times()
    with loader, closing(_batches(loader, once)) as batches:
        for batch in batches:
            if not first:
                first = time.perf_counter() - began
                if isinstance(batch, dict):
                    shapes = {name: value.shape for name, value in batch.items() if hasattr(value, "shape")}
            consumer(batch)
            del batch
            if time.perf_counter() >= end:
                break
        took = time.perf_counter() - began
        stats = loader.stats()
    return Run(stats["samples"], stats["batches"], took, first, tuple(advise(stats)), shapes, stats, _idle(before))


def run_whole(make: Callable[[int], DataLoader | None], seconds: float) -> Run:
    """Epochs of more and more batches, for about so many seconds, each to its end; the last of them is told.

    ``make`` gives a loader of so many batches, or ``None`` where there are not so many. What was made and never given
    out would count as work of the samples that were.
    """
    end = time.perf_counter() + seconds
    number, found = 1, None
    while (loader := make(number)) is not None:
        found = run(loader, math.inf, once=True)
        if time.perf_counter() + 2 * found.seconds > end:
            break
        number *= 2
    assert found is not None
    return found


def _cpu_times() -> list[int]:
    """What the CPUs did since the machine was started, in ticks: the fourth and fifth are nothing."""
    try:
        return [int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return []


def _idle(before: list[int]) -> float:
    spent = [now - then for now, then in zip(_cpu_times(), before, strict=False)]
    return sum(spent[3:5]) / sum(spent) if sum(spent) > 0 else 1.0


def _batches(loader: DataLoader, once: bool) -> Any:
    for _ in range(1) if once else itertools.repeat(None):
        yield from loader
