"""What a loader has done and where the time went, as ``DataLoader.stats`` tells it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.loader.parts import Fault

MOST_LISTED = 1000


class Counters:
    """What was counted in Python. Threads that finish batches add to it under its lock, once a batch."""

    def __init__(self, columns: int) -> None:
        self.batches = 0
        self.samples = 0
        self.waiting = 0.0
        self.consumer = 0.0
        self.planning = 0.0
        self.python = 0.0
        self.collate = 0.0
        self.columns = [0.0] * columns
        self.transforms: defaultdict[str, float] = defaultdict(float)
        self.faults = 0
        self.listed: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def made(self, laps: Sequence[float]) -> None:
        """A batch was finished: when that began, when the values of each column were there, and when all was done."""
        with self._lock:
            self.python += laps[-1] - laps[0]
            for i in range(len(self.columns)):
                self.columns[i] += laps[i + 1] - laps[i]

    def transformed(self, transforms: Mapping[str, float], collate: float) -> None:
        """A batch went through the user's functions in so many seconds."""
        with self._lock:
            self.collate += collate
            for name, seconds in transforms.items():
                self.transforms[name] += seconds

    def found(self, faults: Sequence[Fault], samples: NDArray[np.int64]) -> None:
        """Some values of a batch were bad."""
        with self._lock:
            self.faults += len(faults)
            room = max(MOST_LISTED - len(self.listed), 0)
            self.listed += [
                {"sample": int(samples[fault.row]), "field": fault.field, "error": str(fault.error)}
                for fault in faults[:room]
            ]


def summary(counters: Counters, columns: dict[str, dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
    """Everything in one dictionary, ready for JSON; ``columns`` and ``usage`` are what the engine tells."""
    total = {key: sum(times[key] for times in columns.values()) for key in next(iter(columns.values()))}
    fields = {
        name: {
            "lookup": times["lookup"],
            "read": times["read"],
            "decode": times["cpu"],
            "blocked": times["blocked"],
            "preempted": times["preempted"],
            "python": python,
            "transform": counters.transforms.get(name, 0.0),
            "stored_bytes": times["stored_bytes"],
            "decoded_bytes": times["decoded_bytes"],
        }
        for (name, times), python in zip(columns.items(), counters.columns, strict=True)
    }
    return {
        "batches": counters.batches,
        "samples": counters.samples,
        "running": usage["running"],
        "waiting": counters.waiting,
        "consumer": counters.consumer,
        "planning": counters.planning,
        "python": counters.python,
        "transform": sum(counters.transforms.values()),
        "collate": counters.collate,
        "fields": fields,
        "threads": {
            "native": usage["threads"],
            "most_in_one_batch": usage["most_in_one_batch"],
            "seconds": usage["hired"],
            "busy": total["cpu"],
            "blocked": total["blocked"],
            "preempted": total["preempted"],
            "idle": usage["idle"],
        },
        "io": {
            "mode": "mmap",
            "bytes": total["stored_bytes"],
            "waiting": total["blocked"],
            "major_faults": total["major_faults"],
        },
        "memory": {"largest_batch": usage["largest_batch"], "kept": usage["kept"]},
        "bad_values": counters.faults,
        "bad": list(counters.listed),
    }
