"""Vectors of 256 floats with id and label, random order, batches of 256: against numpy and torch on a memmap.

Loaders, torch's too, are made once, and each round is an epoch of theirs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Result, interleave
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, RandomSampler

import fastloader as fl

SAMPLES, WIDTH, BATCH = 200_000, 256, 256
TORCH_SAMPLES = 16_384  # drawn a round: torch's loader would take seconds for all


class Vectors(Dataset[Any]):
    """The records as torch's loader takes them, one at a time."""

    def __init__(self, vectors: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        self.vectors, self.labels = vectors, labels

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        return torch.from_numpy(self.vectors[index].copy()), index, int(self.labels[index])


def write(folder: Path) -> None:
    """The same vectors as .npy and as .fld."""
    vectors = np.random.default_rng(0).standard_normal((SAMPLES, WIDTH), dtype=np.float32)
    np.save(folder / "vectors.npy", vectors)
    fields = {"vector": fl.NDArrayField("float32", (WIDTH,)), "id": fl.IntField(), "label": fl.IntField()}
    with fl.DatasetWriter(folder / "vectors.fld", fields) as writer:
        for i, vector in enumerate(vectors):
            writer.write_sample({"vector": vector, "id": i, "label": i % 10})


def main() -> list[Result]:
    """Seconds of an epoch: fancy indexing in the caller's thread, torch's loader and this one with 1 and 2 workers."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        mapped = np.load(Path(folder) / "vectors.npy", mmap_mode="r")
        ids = np.arange(SAMPLES)
        labels = ids % 10
        rng = np.random.default_rng(1)
        reader = fl.open(Path(folder) / "vectors.fld")

        def memmap() -> float:
            began = time.perf_counter()
            order = rng.permutation(SAMPLES)
            for first in range(0, SAMPLES - BATCH + 1, BATCH):
                chosen = order[first : first + BATCH]
                _ = mapped[chosen], ids[chosen], labels[chosen]
            return time.perf_counter() - began

        ours = {
            workers: fl.DataLoader(reader, BATCH, num_workers=workers, prefetch_factor=4, drop_last=True)
            for workers in (1, 2)
        }

        def load(workers: int) -> float:
            loader = ours[workers]
            began = time.perf_counter()
            for _ in loader:
                pass
            return time.perf_counter() - began

        dataset = Vectors(mapped, labels)

        def torchs(workers: int) -> DataLoader[Any]:
            drawn = RandomSampler(dataset, num_samples=TORCH_SAMPLES)
            return DataLoader(
                dataset,
                BATCH,
                sampler=drawn,
                num_workers=workers,
                persistent_workers=True,
                multiprocessing_context="fork",
            )

        def torch_load(loader: DataLoader[Any]) -> float:
            began = time.perf_counter()
            for _ in loader:
                pass
            return (time.perf_counter() - began) * SAMPLES / TORCH_SAMPLES

        theirs = {workers: torchs(workers) for workers in (1, 2)}
        times = interleave(
            10,
            memmap=memmap,
            one=lambda: load(1),
            two=lambda: load(2),
            torch_one=lambda: torch_load(theirs[1]),
            torch_two=lambda: torch_load(theirs[2]),
        )
    rate = {name: SAMPLES / seconds / 1e6 for name, seconds in times.items()}

    def result(name: str, workers: str, other: str, against: str, goal: str) -> Result:
        details = f"million records a second: {rate[other]:.2f}, loader {rate[name]:.2f}"
        return Result(f"vectors, {workers}", against, times[name] / times[other], goal, details)

    return [
        result("one", "one worker", "memmap", "numpy memmap, fancy indexing", "<= 1"),
        result("two", "two workers", "memmap", "numpy memmap, fancy indexing", "<= 1"),
        result("one", "one worker", "torch_one", "torch's DataLoader on the memmap, one worker", "<= 0.1"),
        result("two", "two workers", "torch_two", "torch's DataLoader on the memmap, two workers", "<= 0.1"),
    ]
