"""Random windows of 2,048 tokens, batches of 64, from a flat file: tokens a second against a memmap and a memcpy.

Windows begin at any token. The memmap ways draw starts, then slice and stack, or index a view of all windows there are,
the fastest that numpy has. A memcpy of as many bytes into memory used before is the floor. LitData's TokensLoader takes
part where it is installed; its windows begin at multiples of their length, and fewer are timed. CPU time is that of all
threads, and tells more where others use the machine, too.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import Result, interleave_counting
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import fastloader as fl

SEQ, BATCH, STEPS = 2048, 64, 750
LITDATA_STEPS = 64
TOKENS = SEQ * BATCH * STEPS


def write(folder: Path) -> None:
    """The same tokens raw, as GPT-style programs have them, and as a stream of our own."""
    tokens = np.random.default_rng(0).integers(0, 50_257, TOKENS + 1, dtype=np.uint16)
    tokens.tofile(folder / "train.bin")
    with fl.TokenStreamWriter(folder / "train.fld", vocab_size=50_257) as writer:
        for part in np.array_split(tokens, 100):
            writer.write(part)


def litdata(folder: Path) -> dict[str, Callable[[], float]]:
    """An epoch of LitData's TokensLoader in batches, without workers and with two that stay."""
    if importlib.util.find_spec("litdata") is None or importlib.util.find_spec("torch") is None:
        return {}
    import litdata
    import torch

    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(folder / "cache")
    tokens = np.fromfile(folder / "train.bin", np.uint16)[: SEQ * BATCH * LITDATA_STEPS]

    def pieces(index: int) -> torch.Tensor:
        return torch.from_numpy(tokens[index * SEQ * BATCH : (index + 1) * SEQ * BATCH].astype(np.int32))

    litdata.optimize(
        pieces, list(range(LITDATA_STEPS)), str(folder / "litdata"), chunk_size=SEQ * 1024, num_workers=1,
        item_loader=litdata.TokensLoader(), start_method="fork", verbose=False,
    )  # fmt: skip

    def epochs(workers: int) -> Callable[[], float]:
        dataset = litdata.StreamingDataset(
            str(folder / "litdata"), item_loader=litdata.TokensLoader(block_size=SEQ), shuffle=True
        )
        loader = litdata.StreamingDataLoader(
            dataset, batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0
        )

        def epoch() -> float:
            began = time.perf_counter()
            steps = sum(1 for _ in loader)
            assert abs(steps - LITDATA_STEPS) <= 2
            return (time.perf_counter() - began) * STEPS / steps

        return epoch

    return {"litdata": epochs(0), "litdata_workers": epochs(2)}


def main() -> list[Result]:
    """Seconds of as many windows as lie side by side in the file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        mapped = np.memmap(folder / "train.bin", np.uint16, "r")
        windows = sliding_window_view(mapped, SEQ + 1)
        rng = np.random.default_rng(1)
        target = np.zeros((BATCH, SEQ + 1), np.uint16)
        source = np.zeros((BATCH, SEQ + 1), np.uint16)

        def draw(take: Callable[[NDArray[np.int64]], NDArray[np.uint16]]) -> None:
            for _ in range(STEPS):
                take(rng.integers(0, TOKENS - SEQ, BATCH))

        def stacked(starts: NDArray[np.int64]) -> NDArray[np.uint16]:
            return np.stack([mapped[start : start + SEQ + 1] for start in starts.tolist()])

        def copies() -> None:
            for _ in range(STEPS):
                np.copyto(target, source)

        def sweep() -> None:
            view = mapped[: TOKENS // (BATCH * SEQ) * BATCH * SEQ].reshape(STEPS, BATCH, SEQ)
            for part in view:
                np.copyto(target[:, :SEQ], part)

        def load(path: str, workers: int, windows: str = "random") -> Callable[[], float]:
            dtype = "uint16" if path.endswith(".bin") else None
            stream = fl.TokenStream(folder / path, SEQ, windows=windows, dtype=dtype)  # type: ignore[arg-type]
            loader = fl.DataLoader(stream, BATCH, num_workers=workers, prefetch_factor=4, drop_last=True)

            def epoch() -> float:
                began = time.perf_counter()
                steps = sum(1 for _ in loader)
                assert steps == STEPS
                return time.perf_counter() - began

            return epoch

        actions: dict[str, Callable[[], object]] = {
            "stacked": lambda: draw(stacked),
            "memmap": lambda: draw(windows.__getitem__),
            "copies": copies,
            "sweep": sweep,
            "one": load("train.bin", 1),
            "two": load("train.bin", 2),
            "own": load("train.fld", 1),
            "cut": load("train.bin", 1, "sequential"),
        }
        times, cpu = interleave_counting(10, **actions)
        # LitData's processes disturb whoever comes next: it has rounds of its own, behind the others.
        peer = litdata(folder)
        if peer:
            ours = {"one with peer": actions["one"], "two with peer": actions["two"]}
            more_times, more_cpu = interleave_counting(5, **ours, **peer)
            times, cpu = times | more_times, cpu | more_cpu
    rate = {name: TOKENS / seconds / 1e9 for name, seconds in times.items()}

    def result(name: str, what: str, other: str, against: str, goal: str = "<= 1") -> Result:
        details = f"billion tokens a second: {rate[other]:.2f}, here {rate[name]:.2f}"
        if not other.endswith("workers"):  # whose processes are not counted
            share = STEPS / LITDATA_STEPS if other == "litdata" else 1  # it makes fewer windows
            details += f"; CPU time {cpu[name] / (cpu[other] * share):.2f}"
        return Result(f"token windows, {what}", against, times[name] / times[other], goal, details)

    view = "numpy memmap: a view of all windows, indexed"
    found = [
        result("one", "raw file, one worker", "stacked", "numpy memmap: slices, stacked"),
        result("one", "raw file, one worker", "memmap", view),
        result("two", "raw file, two workers", "memmap", view),
        result("own", "file of our own, one worker", "memmap", view),
        result("cut", "cut side by side and shuffled, one worker", "memmap", view),
        result("one", "raw file, one worker", "sweep", "memcpys of the file from front to back", "<= 1.5"),
        result("two", "raw file, two workers", "sweep", "memcpys of the file from front to back", "<= 1.5"),
        result("one", "raw file, one worker", "copies", "memcpys within the cache", ""),
    ]
    if "litdata" in times:
        found.append(result("one with peer", "raw file, one worker", "litdata", "LitData's TokensLoader, no workers"))
        found.append(
            result("two with peer", "raw file, two workers", "litdata_workers", "LitData's TokensLoader, two workers")
        )
    return found
