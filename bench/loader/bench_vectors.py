"""Vectors of 256 floats with id and label, random order, batches of 256: records a second against numpy on a memmap."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from common import Result, interleave

import fastloader as fl

SAMPLES, WIDTH, BATCH = 200_000, 256, 256


def main() -> list[Result]:
    """The loader with one and two workers against fancy indexing of a memmap and two arrays in the caller's thread."""
    with tempfile.TemporaryDirectory() as folder:
        vectors = np.random.default_rng(0).standard_normal((SAMPLES, WIDTH), dtype=np.float32)
        np.save(Path(folder) / "vectors.npy", vectors)
        fields = {"vector": fl.NDArrayField("float32", (WIDTH,)), "id": fl.IntField(), "label": fl.IntField()}
        with fl.DatasetWriter(Path(folder) / "vectors.fld", fields) as writer:
            for i, vector in enumerate(vectors):
                writer.write_sample({"vector": vector, "id": i, "label": i % 10})
        del vectors
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

        def load(workers: int) -> float:
            loader = fl.DataLoader(reader, BATCH, num_workers=workers, prefetch_factor=4, drop_last=True)
            began = time.perf_counter()
            for _ in loader:
                pass
            return time.perf_counter() - began

        times = interleave(10, memmap=memmap, one=lambda: load(1), two=lambda: load(2))
    rate = {name: SAMPLES / seconds / 1e6 for name, seconds in times.items()}
    against = "numpy memmap, fancy indexing"
    details = f"million records a second: memmap {rate['memmap']:.2f}"
    return [
        Result("one worker", against, times["one"] / times["memmap"], "<= 1", f"{details}, loader {rate['one']:.2f}"),
        Result("two workers", against, times["two"] / times["memmap"], "<= 1", f"{details}, loader {rate['two']:.2f}"),
    ]
