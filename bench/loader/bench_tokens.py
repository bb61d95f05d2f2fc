"""Windows of 2,048 tokens in random order, batches of 64: tokens a second against a memmap.

The memmap way draws a random start for each window, any start, then slices and stacks; or, the fastest that numpy has,
indexes a view of all windows there are. A dataset of windows is cut when it is written, a sample a window, and an epoch
gives each of them once. Windows at any start are drawn by a ``TokenStream`` from the flat file that the memmap has.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from common import Result, interleave
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import fastloader as fl

WINDOW, BATCH, STEPS = 2048, 64, 750
TOKENS = WINDOW * BATCH * STEPS


def write(folder: Path) -> None:
    """The same tokens as one flat file, and as samples of a window each."""
    tokens = np.random.default_rng(0).integers(0, 50_257, TOKENS, dtype=np.uint16)
    tokens.tofile(folder / "tokens.bin")
    with fl.DatasetWriter(folder / "windows.fld", {"tokens": fl.NDArrayField("uint16", (WINDOW,))}) as writer:
        for window in tokens.reshape(-1, WINDOW):
            writer.write_sample({"tokens": window})


def main() -> list[Result]:
    """Seconds of as many windows as there are in an epoch."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        mapped = np.memmap(Path(folder) / "tokens.bin", np.uint16, "r")
        cut = fl.open(Path(folder) / "windows.fld")
        drawn = fl.TokenStream(Path(folder) / "tokens.bin", WINDOW, dtype="uint16", windows="random")
        rng = np.random.default_rng(1)

        def draw(take: Callable[[NDArray[np.int64]], NDArray[np.uint16]]) -> None:
            for _ in range(STEPS):
                take(rng.integers(0, TOKENS - WINDOW, BATCH))

        def stacked(starts: NDArray[np.int64]) -> NDArray[np.uint16]:
            return np.stack([mapped[start : start + WINDOW] for start in starts.tolist()])

        windows = sliding_window_view(mapped, WINDOW)
        ours = {
            f"{name}, {workers}": fl.DataLoader(source, BATCH, num_workers=workers, prefetch_factor=4)
            for name, source in (("cut", cut), ("drawn", drawn)) for workers in (1, 2)
        }  # fmt: skip

        def load(loader: fl.DataLoader) -> float:
            began = time.perf_counter()
            windows = sum(len(batch["tokens"]) for batch in loader)
            took = time.perf_counter() - began
            return took * (TOKENS // WINDOW) / windows

        times = interleave(
            10,
            stacked=lambda: draw(stacked),
            memmap=lambda: draw(windows.__getitem__),
            **{name: partial(load, loader) for name, loader in ours.items()},
        )
    rate = {name: TOKENS / seconds / 1e9 for name, seconds in times.items()}

    def result(name: str, other: str) -> Result:
        what = {"cut": "cut side by side", "drawn": "any start"}[name.partition(",")[0]]
        against = {"stacked": "slices, stacked", "memmap": "a view of all windows, indexed"}[other]
        details = f"billion tokens a second: {rate[other]:.2f}, here {rate[name]:.2f}"
        what = f"token windows, {what}, {name[-1]} worker{'s' * (name[-1] != '1')}"
        return Result(what, f"numpy memmap: {against}", times[name] / times[other], "<= 1", details)

    return [result(name, other) for other in ("stacked", "memmap") for name in ours]
