"""CPUs and memory as the kernel and cgroups tell them, from folders made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastloader.loader.resources import Memory, memory, usable_cpus

GIB = 1 << 30


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A machine of 64 CPUs and 16 GiB, 12 of them available, without cgroups."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    put(tmp_path, "proc/meminfo", f"MemTotal: {16 << 20} kB\nMemFree: 5 kB\nMemAvailable: {12 << 20} kB\n")
    return tmp_path


def put(root: Path, name: str, text: object) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(str(text))


def test_without_cgroups_the_machine_is_the_limit(root):
    assert usable_cpus(root) == 64
    assert memory(root) == Memory(12 * GIB, 16 * GIB)


def test_the_tightest_of_nested_cgroups_counts(root):
    put(root, "proc/self/cgroup", "0::/pod/job\n")
    put(root, "sys/fs/cgroup/pod/job/cpu.max", "max 100000\n")
    put(root, "sys/fs/cgroup/pod/cpu.max", "250000 100000\n")
    put(root, "sys/fs/cgroup/pod/job/memory.max", "max\n")
    put(root, "sys/fs/cgroup/pod/memory.max", 4 * GIB)
    put(root, "sys/fs/cgroup/pod/memory.current", 3 * GIB)
    put(root, "sys/fs/cgroup/pod/memory.stat", f"anon 5\ninactive_file {GIB}\nactive_file {GIB // 2}\n")
    assert usable_cpus(root) == 3
    assert memory(root) == Memory(GIB * 5 // 2, 4 * GIB)


def test_the_first_version_of_cgroups_is_read_too(root):
    put(root, "proc/self/cgroup", "4:cpu,cpuacct:/job\n3:memory:/gone\n")
    put(root, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "800000\n")
    put(root, "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", 2 * GIB)
    put(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", GIB)
    assert usable_cpus(root) == 8
    assert memory(root) == Memory(GIB, 2 * GIB)


def test_a_limit_that_is_none_is_none(root):
    put(root, "proc/self/cgroup", "3:memory:/\n")
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    put(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", GIB)
    assert memory(root) == Memory(12 * GIB, 16 * GIB)


def test_a_quota_below_one_cpu_is_one(root):
    put(root, "proc/self/cgroup", "0::/\n")
    put(root, "sys/fs/cgroup/cpu.max", "20000 100000\n")
    assert usable_cpus(root) == 1


def test_this_machine_can_be_asked():
    assert 1 <= usable_cpus() <= (os.cpu_count() or 1)
    assert 0 < memory().available <= memory().total
