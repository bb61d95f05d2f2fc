"""What benchmarks share: interleaved timing, so that noise hits all alternatives alike; the machine's name."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Result:
    """``what`` took ``ratio`` times as long as ``against``."""

    what: str
    against: str
    ratio: float
    goal: str
    details: str = ""


def interleave(rounds: int, **actions: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each action; every round runs all of them once. An action may return its own seconds."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + max(1, rounds // 10)):
        for name, action in actions.items():
            began = time.perf_counter()
            own = action()
            took = own if isinstance(own, float) else time.perf_counter() - began
            if number >= max(1, rounds // 10):  # the first tenth warms up
                times[name].append(took)
    return {name: statistics.median(values) for name, values in times.items()}


def interleave_counting(rounds: int, **actions: Callable[[], object]) -> tuple[dict[str, float], dict[str, float]]:
    """The same, and the median seconds of CPU time of this process, which tell more where others use the machine.

    Processes that an action starts are not counted.
    """
    used: dict[str, list[float]] = {name: [] for name in actions}

    def counted(name: str, action: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            began = time.process_time()
            own = action()
            used[name].append(time.process_time() - began)
            return own

        return run

    times = interleave(rounds, **{name: counted(name, action) for name, action in actions.items()})
    return times, {name: statistics.median(values[1:]) for name, values in used.items()}


def machine() -> str:
    """One line: CPU, cores, memory, kernel, Python."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Machine: {cpu}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def forget(path: Path) -> None:
    """Have the kernel drop the file."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def resident(path: Path) -> float:
    """Which share of a file's pages the kernel has in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    mapped = np.memmap(path, np.uint8, "r")
    pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
    if libc.mincore(mapped.ctypes.data, len(mapped), pages.ctypes.data):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return float((pages & 1).mean())
