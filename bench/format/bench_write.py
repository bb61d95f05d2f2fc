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
    """Three rounds of write and copy for each payload size."""
    results = []
    for payload in PAYLOADS:
        with tempfile.TemporaryDirectory() as folder:
            path, twin = Path(folder) / "written.fld", Path(folder) / "copied.fld"
            written, copied, peak = [], [], 0.0
            for _ in range(3):
                command = [sys.executable, __file__, "--write", str(path), str(payload), str(total)]
                paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
                environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
                said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
                report = json.loads(said)
                written.append(report["seconds"])
                peak = max(peak, report["peak_mb"])
                copied.append(copy(path, twin))
        best = min(written) / min(copied)
        gb = total / 1e9
        results.append(
            Result(f"write {gb:.1f} GB in payloads of {payload:,} bytes", "copying the file", best, "< 2",
                   f"{gb / min(written):.2f} GB/s against {gb / min(copied):.2f}, best of 3; peak memory {peak:.0f} MB "
                   "(goal: < 400)")
        )  # fmt: skip
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", nargs=3, metavar=("PATH", "PAYLOAD", "TOTAL"))
    given = parser.parse_args().write
    write(Path(given[0]), int(given[1]), int(given[2]))
