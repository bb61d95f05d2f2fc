"""What a process and all below it use, read from /proc, so that every environment can do it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def members(pid: int) -> list[int]:
    """The process and all its descendants that live."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                waiting += map(int, children.read_text().split())
            except OSError:  # it ended meanwhile
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of the tree so far, those included that ended and were waited for."""
    ticks = 0
    for one in members(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICK


def machine_seconds() -> float:
    """CPU time that all processes used so far, and that the host took away."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a tree, pages that several share counted in parts."""

    total: int
    own: int
    """Without pages of mapped files, which the system can drop: libraries, and datasets that are mapped."""


def memory(pid: int) -> Memory:
    """Proportional set size of the tree."""
    total = files = 0
    for one in members(pid):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, rest = line.partition(":")
            if name in ("Pss", "Pss_File"):
                size = int(rest.split()[0]) * 1024
                total += size if name == "Pss" else 0
                files += size if name == "Pss_File" else 0
    return Memory(total, total - files)
