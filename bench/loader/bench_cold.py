"""Random reads of 4 KB and 100 KB payloads that are not in memory, against a bare io_uring loop and sequential reads.

The bare loop (bare_uring.cc) reads aligned pieces of the same size from the same file: O_DIRECT, registered buffers,
128 under way at any time. The kernel forgets the file before each run of a loader; the tables are brought back into
memory, as they would be there after the first few thousand samples. TMPDIR says on which disk.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bare_reads import bare, compiled
from common import Result, interleave, resident
from numpy.typing import NDArray

import fastloader as fl

DEPTH = 128
# Payload, batch size, samples in the file, samples read a run. The files have 1 and 2 GB; half is read, long enough for
# the start of an epoch not to count.
CASES = {"4 KB": (4096, 256, 262_144, 131_072), "100 KB": (102_400, 64, 20_480, 10_240)}
MAPPED_SHARE = 128  # a mapped file reads a page fault at a time: it gets a small share of the samples
SEQUENTIAL = 1 << 20


def write(path: Path, payload: int, samples: int) -> None:
    """Noise, the same few MB again and again."""
    noise = np.random.default_rng(0).integers(0, 256, 8 << 20, dtype=np.uint8)
    starts = np.random.default_rng(1).integers(0, len(noise) - payload, samples).tolist()
    with fl.DatasetWriter(path, {"x": fl.NDArrayField("uint8", (payload,))}) as writer:
        for start in starts:
            writer.write_sample({"x": noise[start : start + payload]})


def forget(path: Path) -> None:
    """Have the kernel drop the file, then bring back all but the payloads."""
    with fl.open(path) as reader:
        data = reader.dataset.file(0).data
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        end = (data.offset + data.size) // mmap.PAGESIZE * mmap.PAGESIZE
        for at in range(end, os.fstat(fd).st_size, 1 << 20):
            os.pread(fd, 1 << 20, at)
    finally:
        os.close(fd)


def io_modes(path: Path) -> dict[str, dict[str, Any]]:
    """The ways of reading that this loader knows and this machine has, as options by name."""
    modes: dict[str, dict[str, Any]] = {}
    with fl.open(path) as reader:
        for mode in ("uring", "pread", "mmap", "auto"):
            try:
                fl.DataLoader(reader, io=mode).close()  # type: ignore[call-arg, unused-ignore]
            except TypeError:
                return {"mmap": {}}
            except (ValueError, OSError) as error:
                print(f"io={mode!r} is left out: {error}")
            else:
                modes[mode] = {"io": mode}
    return modes


def load(path: Path, batch: int, chosen: NDArray[np.int64], options: dict[str, Any]) -> float:
    """Seconds a sample to load these with one worker, from a file the kernel has forgotten."""
    forget(path)
    with fl.open(path) as reader:
        loader = fl.DataLoader(
            reader, batch, indices=chosen, order="sequential", num_workers=1, prefetch_factor=8, **options
        )
        began = time.perf_counter()
        for _ in loader:
            pass
        took = time.perf_counter() - began
        loader.close()
    return took / len(chosen)


def measure(path: Path, name: str, program: Path | None) -> list[Result]:
    """One payload size: every way of reading, interleaved."""
    payload, batch, samples, read = CASES[name]
    rng = np.random.default_rng(2)
    modes = io_modes(path)
    pieces = path.stat().st_size // payload

    def loaded(mode: str) -> float:
        # "auto" brings files that fit into memory there in large pieces, which is meant for whole epochs.
        count = {"mmap": max(batch, read // MAPPED_SHARE), "auto": samples}.get(mode, read)
        return load(path, batch, rng.permutation(samples)[:count], modes[mode])

    actions: dict[str, Callable[[], float]] = {mode: partial(loaded, mode) for mode in modes}
    if program is not None:
        whole = np.arange(path.stat().st_size // SEQUENTIAL) * SEQUENTIAL
        actions["bare"] = lambda: bare(program, path, payload, rng.permutation(pieces)[:read] * payload, DEPTH)
        actions["sequential"] = lambda: bare(program, path, SEQUENTIAL, whole, 8) * payload / SEQUENTIAL
    times = interleave(3, **actions)
    speed = {action: payload / seconds / 1e6 for action, seconds in times.items()}
    others = {"bare": (f"a bare io_uring loop, depth {DEPTH}", "<= 1.18"), "sequential": ("sequential O_DIRECT", "-")}
    if program is None:
        others = {"mmap": ("io=mmap", "-")}
    return [
        Result(f"cold {name}, io={mode}{', a whole epoch' if mode == 'auto' else ''}", against,
               times[mode] / times[other], goal if mode == "uring" else "-",
               f"MB/s: {speed[other]:.0f}, loader {speed[mode]:.0f}")
        for mode in modes
        for other, (against, goal) in others.items()
        if mode != other
    ]  # fmt: skip


def main() -> list[Result]:
    """Both payload sizes, one file at a time."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder))
        for name, (payload, _, samples, _) in CASES.items():
            path = Path(folder) / "cold.fld"
            write(path, payload, samples)
            forget(path)
            if resident(path) > 0.1:
                print(f"The kernel keeps {path} in memory; set TMPDIR to a folder on a disk. Cold reads are left out.")
                return []
            results += measure(path, name, program)
            path.unlink()
    return results
