"""The loader itself, run for a while: how fast, and what each field takes of a CPU."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from fastloader.loader import DataLoader, advise

Consumer = Callable[[Any], Any]
"""What is done with each batch."""


@dataclass(frozen=True, slots=True)
class Run:
    """A loader that was run, from the first batch on. ``shapes`` are those of a batch's arrays."""

    samples: int
    batches: int
    seconds: float
    first_batch: float
    advice: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    stats: dict[str, Any]

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
    return Run(stats["samples"], stats["batches"], took, first, tuple(advise(stats)), shapes, stats)


def _batches(loader: DataLoader, once: bool) -> Any:
    for _ in range(1) if once else itertools.repeat(None):
        yield from loader
