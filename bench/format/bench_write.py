"""Writing 4 GB of byte payloads: memory held, and speed against copying the finished file."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from common import Result

TOTAL = 4 << 30
PAYLOADS = (65_536, 4096)
ROUNDS = 5
MEMORY_FILES = Path("/dev/shm")


def write(path: Path, payload: int, total: int) -> None:
    """Write, then print seconds, CPU seconds and peak memory; in a process of its own, so that all are the writer's."""
    import fastloader as fl

    pool = os.urandom(payload + (1 << 20))
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far: a new process starts with its parent's
    path.unlink(missing_ok=True)
    began, cpu = time.perf_counter(), time.process_time()
    with fl.DatasetWriter(path, {"x": fl.BytesField()}) as writer:
        for i in range(total // payload):
            at = i * 61 % (1 << 20)
            writer.write_sample({"x": pool[at : at + payload]})
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0])
    print(json.dumps({"seconds": took, "cpu": cpu, "peak_mb": peak / 1024}))


def copy(source: Path, target: Path) -> tuple[float, float]:
    """Seconds, and those of the CPU, to copy a file and have it on disk, as the writer does.

    ``copyfile`` lets the kernel copy, which is the quickest way there is. It has the best conditions too: the source is
    in memory, and so was, a moment ago, what the copy needs of it. Memory that was not in use lately costs more, on
    virtual machines many times more.
    """
    with source.open("rb", buffering=0) as file:
        while file.read(1 << 22):
            pass
    target.unlink(missing_ok=True)
    began, cpu = time.perf_counter(), time.process_time()
    shutil.copyfile(source, target)
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    return time.perf_counter() - began, time.process_time() - cpu


@dataclass
class Times:
    """Seconds of each round, those of the CPU, and the most memory that a writer held."""

    written: list[float] = field(default_factory=list)
    copied: list[float] = field(default_factory=list)
    write_cpu: list[float] = field(default_factory=list)
    copy_cpu: list[float] = field(default_factory=list)
    peak_mb: float = 0.0

    def results(self, what: str, against: str, goal: str, size: int) -> list[Result]:
        """Typical rounds; the best, which disks with moods and busy neighbours disturb the least."""
        middle = statistics.median(self.written), statistics.median(self.copied)
        best = min(self.written), min(self.copied)
        rounds = " ".join(f"{w / c:.2f}" for w, c in zip(self.written, self.copied, strict=True))
        peak = f"peak memory {self.peak_mb:.0f} MB (goal: < 400)"
        cpu = f"{statistics.median(self.write_cpu):.1f} s of CPU against {statistics.median(self.copy_cpu):.1f}"
        return [
            Result(what, against, middle[0] / middle[1], goal,
                   f"medians of {len(self.written)}: {_speeds(size, *middle)}; {cpu}; rounds {rounds}"),
            Result(what, against, best[0] / best[1], goal,
                   f"best of {len(self.written)}: {_speeds(size, *best)}; {peak}"),
        ]  # fmt: skip


def _speeds(size: int, wrote: float, copied: float) -> str:
    return f"{size / 1e9 / wrote:.2f} GB/s against {size / 1e9 / copied:.2f}"


def measure(folder: Path, total: int) -> dict[int, Times]:
    """Rounds of writing and copying, payload sizes in turn. One round before only makes the files to be replaced."""
    times = {payload: Times() for payload in PAYLOADS}
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    path, twin = folder / "written.fld", folder / "copied.fld"
    for number in range(1 + ROUNDS):
        for payload, its in times.items():
            command = [sys.executable, __file__, "--write", str(path), str(payload), str(total)]
            said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
            report = json.loads(said)
            copied, copy_cpu = copy(path, twin)
            if number > 0:
                its.written.append(report["seconds"])
                its.copied.append(copied)
                its.write_cpu.append(report["cpu"])
                its.copy_cpu.append(copy_cpu)
                its.peak_mb = max(its.peak_mb, report["peak_mb"])
    return times


def memory_total(total: int) -> int:
    """As much of it as two files in memory can hold with room to spare."""
    available = int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) << 10
    return min(total, available // 4, shutil.disk_usage(MEMORY_FILES).free // 4)


def main(total: int = TOTAL) -> list[Result]:
    """On disk, which is the goal, and in memory, where nothing but the work of the CPU is left."""
    results = []
    for where, size, goal in ((Path(tempfile.gettempdir()), total, "< 2"), (MEMORY_FILES, memory_total(total), "-")):
        kind = " in memory" if where == MEMORY_FILES else ""
        with tempfile.TemporaryDirectory(dir=where) as folder:
            for payload, times in measure(Path(folder), size).items():
                what = f"write {size / 1e9:.1f} GB{kind} in payloads of {payload:,} bytes"
                results += times.results(what, f"copying the file{kind}", goal, size)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", nargs=3, metavar=("PATH", "PAYLOAD", "TOTAL"))
    given = parser.parse_args().write
    write(Path(given[0]), int(given[1]), int(given[2]))
