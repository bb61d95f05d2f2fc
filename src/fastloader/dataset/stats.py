"""What an iterator has done: elements given, elements left out, and what its native loaders counted."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from fastloader.loader import DataLoader

MOST_LISTED = 1000
KEPT = 4
"""Loaders that wait for another pass over their step, and accounts of ended ones."""


class Stats:
    """Several threads count here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.elements = 0
        self.waiting = 0.0
        self.loaders = Loaders()
        self._skipped = 0
        self._listed: list[str] = []

    def skip(self, error: Exception) -> None:
        """Count an element that was left out."""
        with self._lock:
            self._skipped += 1
            if len(self._listed) < MOST_LISTED:
                self._listed.append(str(error))

    def to_dict(self) -> dict[str, Any]:
        """Everything, with what native loaders have counted until now."""
        totals, listed, engines = self.loaders.counted()
        return {
            "elements": self.elements,
            "waiting": self.waiting,
            "skipped": self._skipped + totals["bad_values"],
            "bad": [*self._listed, *listed][:MOST_LISTED],
            "native": totals,
            "engines": engines,
        }


class Loaders:
    """The native loaders of an iterator. One whose pass is over waits for the next pass over the same step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[DataLoader] = []
        self._idle: list[tuple[Hashable, DataLoader]] = []
        self._totals = dict.fromkeys(("batches", "samples", "bad_values"), 0)
        self._listed: list[str] = []
        self._ended: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def take(self, step: Hashable, make: Callable[[], DataLoader]) -> DataLoader:
        """The loader that waits for this step, or a new one."""
        with self._lock:
            for number, (waiting, loader) in enumerate(self._idle):
                if waiting == step:
                    del self._idle[number]
                    return loader
            loader = make()
            self._all.append(loader)
            return loader

    def give_back(self, step: Hashable, loader: DataLoader) -> None:
        """A pass is over. Only a few loaders are kept, as each has memory of its own."""
        with self._lock:
            self._idle.append((step, loader))
            if len(self._idle) > KEPT:
                self._end(self._idle.pop(0)[1])

    def end(self) -> None:
        """End those that no pass uses."""
        with self._lock:
            while self._idle:
                self._end(self._idle.pop(0)[1])

    def _end(self, loader: DataLoader) -> None:
        self._ended.append(self._add(loader.stats(), self._totals, self._listed))
        self._all.remove(loader)
        loader.close()

    @staticmethod
    def _add(told: dict[str, Any], totals: dict[str, int], listed: list[str]) -> dict[str, Any]:
        for name in totals:
            totals[name] += told[name]
        listed += [one["error"] for one in told["bad"]][: MOST_LISTED - len(listed)]
        return told

    def counted(self) -> tuple[dict[str, int], list[str], list[dict[str, Any]]]:
        """Totals, what was bad, and what each loader says for itself, the last few that ended included."""
        with self._lock:
            totals, listed = dict(self._totals), list(self._listed)
            return totals, listed, [*self._ended, *(self._add(one.stats(), totals, listed) for one in self._all)]
