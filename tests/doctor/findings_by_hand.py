"""Findings made by hand: a machine of four CPUs, and a dataset that nothing holds back."""

from __future__ import annotations

from typing import Any

from fastloader.doctor.disk import Disk
from fastloader.doctor.findings import FieldWork, Findings
from fastloader.doctor.loading import Run
from fastloader.doctor.memory import Copying
from fastloader.doctor.network import Network
from fastloader.doctor.pace import Pace

GIGABYTE = 10**9


def pace(bytes_per_second: float, size: int, at_once: int = 8) -> Pace:
    """So many bytes in a second, in reads of a size."""
    return Pace(at_once, max(1, round(bytes_per_second / size)), round(bytes_per_second), 1.0)


def loaded(samples_per_second: float, advice: str = "decode-bound: all cores busy", **threads: float) -> Run:
    """A loader that was run for a second."""
    told = {"native": 4, "python": 0, "seconds": 4.0, "busy": 3.9, "blocked": 0.0, "preempted": 0.0, "idle": 0.1}
    stats = {"threads": told | threads, "io": {"mode": "mmap"}, "fields": {}}
    return Run(round(samples_per_second), 10, 1.0, 0.01, (advice,), {}, stats)


def work(name: str = "image", type: str = "JPEGImage", cpu: float = 1e-4, **more: Any) -> FieldWork:
    """A field of 100 kB that becomes 600 kB."""
    facts = {"alone": cpu, "stored_bytes": 1e5, "unpacked_bytes": 6e5, "decoded_bytes": 6e5} | more
    return FieldWork(name, type, cpu, **facts)


def disk(random: float = 2 * GIGABYTE, pages: float = 3 * GIGABYTE) -> Disk:
    """A disk that gives so many bytes a second."""
    return Disk((pace(pages, 1 << 20),), (pace(pages, 2 << 20),), (pace(random, 100_000),), 100_000, 2 << 20, True, 0.0)


def network(one: float = 1e8, many: float = 2e9, random: float = 1e9) -> Network:
    """A store that gives so many bytes a second to one reader, and to many."""
    ranges = pace(one, 4 << 20, 1), pace(many, 4 << 20, 64)
    return Network((0.02, 0.03, 0.05), ranges, (pace(random, 100_000, 64),), 4 << 20, 100_000)


def findings(**changes: Any) -> Findings:
    """A dataset of a million samples, with changes."""
    facts: dict[str, Any] = {
        "path": "train.fld", "order": "random", "batch_size": 256, "num_samples": 10**6,
        "num_bytes": 100 * GIGABYTE, "cpus": 4, "threads": 4, "memory_available": 64 * GIGABYTE,
        "memory_total": 128 * GIGABYTE, "cold": loaded(900), "hot": loaded(35_000), "with_consumer": None,
        "fields": (work(),), "copying": Copying(pace(10 * GIGABYTE, 1 << 25, 1), pace(30 * GIGABYTE, 1 << 25, 4)),
        "disk": disk(), "seconds": 20.0,
    }  # fmt: skip
    return Findings(**facts | changes)
