"""Writing 4 GB of byte payloads: memory held, and speed against copying the finished file."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Result

TOTAL = 4 << 30
PAYLOADS = (65_536, 4096)
ROUNDS = 5


def write(path: Path, payload: int, total: int) -> None:
    """Write, then print seconds and peak memory; runs in a process of its own so that the peak is the writer's."""
    import fastloader as fl

    pool = os.urandom(payload + (1 << 20))
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far: a new process starts with its parent's
    began = time.perf_counter()
    with fl.DatasetWriter(path, {"x": fl.BytesField()}) as writer:
        for i in range(total // payload):
            at = i * 61 % (1 << 20)
            writer.write_sample({"x": pool[at : at + payload]})
    took = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0])
    print(json.dumps({"seconds": took, "peak_mb": peak / 1024}))


def copy(source: Path, target: Path) -> float:
    """Seconds to copy a file and have it on disk, as the writer does."""
    began = time.perf_counter()
    shutil.copyfile(source, target)
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    return time.perf_counter() - began


def main(total: int = TOTAL) -> list[Result]:
    """Rounds of writing and copying, payload sizes in turn; the best of each counts, as disks have moods."""
    written: dict[int, list[float]] = {payload: [] for payload in PAYLOADS}
    copied: dict[int, list[float]] = {payload: [] for payload in PAYLOADS}
    peak = dict.fromkeys(PAYLOADS, 0.0)
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with tempfile.TemporaryDirectory() as folder:
        path, twin = Path(folder) / "written.fld", Path(folder) / "copied.fld"
        for _ in range(ROUNDS):
            for payload in PAYLOADS:
                command = [sys.executable, __file__, "--write", str(path), str(payload), str(total)]
                said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
                report = json.loads(said)
                written[payload].append(report["seconds"])
                peak[payload] = max(peak[payload], report["peak_mb"])
                copied[payload].append(copy(path, twin))
    gb = total / 1e9
    return [
        Result(f"write {gb:.1f} GB in payloads of {payload:,} bytes", "copying the file",
               min(written[payload]) / min(copied[payload]), "< 2",
               f"{gb / min(written[payload]):.2f} GB/s against {gb / min(copied[payload]):.2f}, best of {ROUNDS}; "
               f"peak memory {peak[payload]:.0f} MB (goal: < 400)")
        for payload in PAYLOADS
    ]  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", nargs=3, metavar=("PATH", "PAYLOAD", "TOTAL"))
    given = parser.parse_args().write
    write(Path(given[0]), int(given[1]), int(given[2]))
