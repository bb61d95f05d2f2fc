"""Time to the first batch and cost of resuming in mid-epoch: 100 million samples against 10 thousand.

In random order, each sample of a first batch lies in a block of a table that nobody touched before, and in no cache of
the processor: the block is read and checked. A dataset of 10 thousand has a block or two. What the machine itself
charges for that is shown by a bare memmap of the same numbers, from which as many are taken, and by a loop that reads
as many blocks by two threads and does nothing else (bare_rows.cc): the time of the small dataset with that added is
the least there can be on two cores. Flat is what takes at most half again as long for 10,000 times the samples;
whoever reads an index, lists or shuffles numbers of samples takes 10,000 times as long.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bare_reads import built
from common import Result, interleave

import fastloader as fl
from fastloader.formats.fld import Chunk, Column, FieldSpec, FldBuilder

SMALL, MIDDLE, LARGE, BATCH = 10_000, 10_000_000, 100_000_000, 256
BLOCK = 2048
FLAT = "flat: <= 1.5"
HERE = Path(__file__).parent


def build(path: Path, samples: int) -> None:
    """A dataset of a number a sample, through the builder itself to save time."""
    spec = FieldSpec("number", fl.IntField())
    builder = FldBuilder(path, [spec], 2 << 20, keys=False)
    step = min(samples, 500_000)
    numbers = np.zeros(step, spec.field.metadata_type)
    column = Column(numbers, np.ones(step, np.bool_), [], np.zeros(step, np.uint64), np.zeros(step, np.uint8))
    for first in range(0, samples, step):
        numbers["value"] = np.arange(first, first + step)
        builder.append(Chunk(step, [column], None))
    builder.finish()


def first_batch(path: Path, order: Any, state: dict[str, Any] | None = None) -> float:
    """Seconds to open, make a loader, perhaps load a state, and wait for one batch."""
    began = time.perf_counter()
    with fl.open(path) as reader, fl.DataLoader(reader, BATCH, num_workers=1, order=order) as loader:
        if state is not None:
            loader.load_state_dict(state)
        batches = iter(loader)
        next(batches)
        took = time.perf_counter() - began
        del batches  # the threads end with it, which is no part of the first batch
    return took


def bare(path: Path, samples: int, random: np.random.Generator) -> float:
    """Seconds to map the numbers of the file with numpy and take as many in random order."""
    began = time.perf_counter()
    numbers = np.memmap(path, "<i8", "r", offset=4096, shape=(samples - 512,))
    numbers[random.integers(0, samples - 512, BATCH)].sum()
    return time.perf_counter() - began


def reads(bare_rows: Callable[..., float], path: Path, samples: int, random: np.random.Generator) -> float:
    """Seconds to read as many blocks of the file in random order, by two threads."""
    offsets = random.integers(2, samples * 8 // BLOCK, BATCH).astype(np.uint64) * BLOCK
    return bare_rows(str(path).encode(), offsets.ctypes.data_as(ctypes.c_void_p), BATCH, BLOCK)


def middle(path: Path, order: Any) -> dict[str, Any]:
    """A state in the middle of a later epoch."""
    with fl.open(path) as reader, fl.DataLoader(reader, BATCH, order=order) as loader:
        return loader.state_dict() | {"epoch": 3, "done": len(reader) // 2}


def loop_of(folder: Path) -> Callable[..., float] | None:
    """The bare loop, or nothing where this machine can't build it."""
    library = built(HERE / "bare_rows.cc", folder / "bare_rows.so", "-shared", "-fPIC", "-pthread")
    if library is None:
        return None
    loop = ctypes.CDLL(str(library)).bare_rows
    loop.restype = ctypes.c_double
    loop.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    return loop


def measure(paths: dict[int, Path], order: str, bare_rows: Callable[..., float] | None = None) -> list[Result]:
    """All sizes, from the start and resumed, interleaved."""
    states = {size: middle(path, order) for size, path in paths.items()}
    actions: dict[str, Callable[[], float]] = {}
    for size, path in paths.items():
        actions[f"start {size}"] = partial(first_batch, path, order)
        actions[f"resume {size}"] = partial(first_batch, path, order, states[size])
        if order == "random":
            actions[f"bare {size}"] = partial(bare, path, size, np.random.default_rng(0))
    if bare_rows is not None:
        actions["reads"] = partial(reads, bare_rows, paths[LARGE], LARGE, np.random.default_rng(0))
    times = interleave(100, **actions)

    def result(what: str, against: str, ours: str, other: str, goal: str = FLAT) -> Result:
        details = f"{times[ours] * 1e3:.2f} ms against {times[other] * 1e3:.2f} ms"
        return Result(f"{what}, {order}", against, times[ours] / times[other], goal, details)

    large = f"of {LARGE:,} samples"
    control = [
        result(f"no loader: a bare memmap {large}", f"{size:,} samples", f"bare {LARGE}", f"bare {size}", "")
        for size in (SMALL, MIDDLE) if f"bare {size}" in times
    ]  # fmt: skip
    if bare_rows is not None:
        least, small = times[f"start {SMALL}"] + times["reads"], times[f"start {SMALL}"]
        details = f"{least * 1e3:.2f} ms against {small * 1e3:.2f} ms"
        what = f"the least: {SMALL:,} samples and {BATCH} bare reads {large}, {order}"
        control.append(Result(what, f"{SMALL:,} samples", least / small, "", details))
    return [
        *control,
        *(result(f"open to first batch {large}", f"{size:,} samples", f"start {LARGE}", f"start {size}")
          for size in (SMALL, MIDDLE)),
        *(result(f"the same, resumed in mid-epoch {large}", f"{size:,} samples", f"resume {LARGE}", f"resume {size}")
          for size in (SMALL, MIDDLE)),
        result(f"resumed in mid-epoch {large}", "from the start", f"resume {LARGE}", f"start {LARGE}"),
    ]  # fmt: skip


def main() -> list[Result]:
    """In random and in sequential order."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {size: Path(folder) / f"{size}.fld" for size in (SMALL, MIDDLE, LARGE)}
        for size, path in paths.items():
            build(path, size)
        return measure(paths, "random", loop_of(Path(folder))) + measure(paths, "sequential")
