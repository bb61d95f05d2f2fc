"""What a loader has done and where the time went, as ``DataLoader.stats`` tells it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.loader.columns import Fault

MOST_LISTED = 1000


@dataclass(slots=True)
class Counters:
    """What was counted in Python. Threads that finish batches add to it under its lock, once a batch."""

    batches: int = 0
    samples: int = 0
    waiting: float = 0.0
    consumer: float = 0.0
    python: float = 0.0
    collate: float = 0.0
    fields: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    transforms: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    faults: int = 0
    listed: list[dict[str, Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def made(self, spent: Spent, python: float) -> None:
        """A batch was finished."""
        with self._lock:
            self.python += python
            self.collate += spent.collate
            for total, mine in ((self.fields, spent.fields), (self.transforms, spent.transforms)):
                for name, seconds in mine.items():
                    total[name] += seconds

    def found(self, faults: Sequence[Fault], samples: NDArray[np.int64]) -> None:
        """Some values of a batch were bad."""
        with self._lock:
            self.faults += len(faults)
            room = max(MOST_LISTED - len(self.listed), 0)
            self.listed += [
                {"sample": int(samples[fault.row]), "field": fault.field, "error": str(fault.error)}
                for fault in faults[:room]
            ]


@dataclass(slots=True)
class Spent:
    """Seconds of Python for one batch: by field making values, by field in transforms, and in ``collate_fn``."""

    fields: dict[str, float] = field(default_factory=dict)
    transforms: dict[str, float] = field(default_factory=dict)
    collate: float = 0.0


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
            "python": counters.fields[name],
            "transform": counters.transforms[name],
            "stored_bytes": times["stored_bytes"],
            "decoded_bytes": times["decoded_bytes"],
        }
        for name, times in columns.items()
    }
    return {
        "batches": counters.batches,
        "samples": counters.samples,
        "running": usage["running"],
        "waiting": counters.waiting,
        "consumer": counters.consumer,
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
        "bad_values": counters.faults,
        "bad": list(counters.listed),
    }
