"""Windows of 2,048 tokens in random order, batches of 64: tokens a second against a memmap.

The memmap way draws a random start for each window, any start, then slices and stacks; or, the fastest that numpy has,
indexes a view of all windows there are. A dataset of windows is cut when it is written, a sample a window, and an epoch
gives each of them once. Windows at any start come from one long sample, which a reader gives as a view of the file: it
is used as a memmap is.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import Result, interleave
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import fastloader as fl

WINDOW, BATCH, STEPS = 2048, 64, 750
TOKENS = WINDOW * BATCH * STEPS


def write(folder: Path) -> None:
    """The same tokens as .npy, as samples of a window each, and as one long sample."""
    tokens = np.random.default_rng(0).integers(0, 50_257, TOKENS, dtype=np.uint16)
    np.save(folder / "tokens.npy", tokens)
    with fl.DatasetWriter(folder / "windows.fld", {"tokens": fl.NDArrayField("uint16", (WINDOW,))}) as writer:
        for window in tokens.reshape(-1, WINDOW):
            writer.write_sample({"tokens": window})
    with fl.DatasetWriter(folder / "long.fld", {"tokens": fl.NDArrayField("uint16", (None,))}) as writer:
        writer.write_sample({"tokens": tokens})


def main() -> list[Result]:
    """Seconds of as many windows as there are in an epoch."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        mapped = np.load(Path(folder) / "tokens.npy", mmap_mode="r")
        view = fl.open(Path(folder) / "long.fld")[0]["tokens"]
        reader = fl.open(Path(folder) / "windows.fld")
        rng = np.random.default_rng(1)

        def draw(take: Callable[[NDArray[np.int64]], NDArray[np.uint16]]) -> None:
            for _ in range(STEPS):
                take(rng.integers(0, TOKENS - WINDOW, BATCH))

        def stacked(starts: NDArray[np.int64]) -> NDArray[np.uint16]:
            return np.stack([mapped[start : start + WINDOW] for start in starts.tolist()])

        windows = {"memmap": sliding_window_view(mapped, WINDOW), "view": sliding_window_view(view, WINDOW)}

        ours = {workers: fl.DataLoader(reader, BATCH, num_workers=workers, prefetch_factor=4) for workers in (1, 2)}

        def load(workers: int) -> float:
            loader = ours[workers]
            began = time.perf_counter()
            for _ in loader:
                pass
            return time.perf_counter() - began

        times = interleave(
            10,
            stacked=lambda: draw(stacked),
            memmap=lambda: draw(windows["memmap"].__getitem__),
            view=lambda: draw(windows["view"].__getitem__),
            one=lambda: load(1),
            two=lambda: load(2),
        )
    rate = {name: TOKENS / seconds / 1e9 for name, seconds in times.items()}

    def result(name: str, what: str, other: str, against: str) -> Result:
        details = f"billion tokens a second: {rate[other]:.2f}, here {rate[name]:.2f}"
        return Result(f"token windows, {what}", against, times[name] / times[other], "<= 1", details)

    return [
        result("one", "one worker", "stacked", "numpy memmap: slices, stacked"),
        result("one", "one worker", "memmap", "numpy memmap: a view of all windows, indexed"),
        result("two", "two workers", "memmap", "numpy memmap: a view of all windows, indexed"),
        result("view", "any start, from one long sample", "memmap", "numpy memmap: a view of all windows, indexed"),
    ]
