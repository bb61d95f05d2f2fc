"""What the machine, or the container we are in, has to give: CPUs and memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 1 << 60
"""Limits above this are no limits: the first version of cgroups writes a number where the second writes "max"."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that can still be taken, and bytes there are in all."""

    available: int
    total: int


def usable_cpus(root: Path = Path("/")) -> int:
    """How many CPUs this process may use: by affinity, and by the quota of its cgroup."""
    quotas = [quota for folder in _cgroups(root, "cpu") if (quota := _cpu_quota(folder)) is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *(math.ceil(quota) for quota in quotas)]))


def memory(root: Path = Path("/")) -> Memory:
    """What is left of the machine's memory or of the cgroup's limit, whichever is less."""
    told = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines() if ":" in line)
    found = [Memory(*(int(told[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal")))]
    for folder in _cgroups(root, "memory"):
        limit = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current", folder / "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < UNLIMITED:
            # Pages of files count as used, and go when someone needs the memory.
            left = limit - used + _reclaimable(folder / "memory.stat")
            found.append(Memory(max(0, min(left, limit)), limit))
    return min(found, key=lambda one: one.available)


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's cgroup and of those around it: each may set a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")
        inner = mount / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if folder.is_dir():  # a container may see its own cgroup as the root, whatever the path says
                yield folder
            if folder == mount:
                break


def _cpu_quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return None if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _number(*paths: Path) -> int | None:
    """The number in the first of these files that has one."""
    for path in paths:
        try:
            return int(path.read_text())
        except (OSError, ValueError):
            continue
    return None


def _reclaimable(path: Path) -> int:
    try:
        told = dict(line.split() for line in path.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return sum(int(told.get(name, 0)) for name in ("inactive_file", "active_file"))
