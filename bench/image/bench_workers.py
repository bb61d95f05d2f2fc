"""JPEG -> RandomResizedCrop(224) -> flip by two threads of the engine, against one. Consumers do not work along."""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from common import Result, interleave

import fastloader as fl

sys.path.insert(0, str(Path(__file__).parent))

from crops import jpegs

COUNT, PASSES, ROUNDS, BATCH = 256, 6, 4, 64


def load(reader: fl.DatasetReader, threads: int) -> float:
    """Seconds an image."""
    order = np.random.default_rng(1).permutation(np.tile(np.arange(COUNT), PASSES))
    pool = fl.ThreadingOptions(private_threadpool_size=threads)
    pipeline = [fl.ops.RandomResizedCrop(224), fl.ops.HorizontalFlip()]
    with fl.DataLoader(
        reader, BATCH, num_workers=threads, sampler=order.tolist(), threading=pool, pipelines={"image": pipeline}
    ) as loader:
        began = time.perf_counter()
        images = sum(len(batch["image"]) for batch in loader)
        return (time.perf_counter() - began) / images


def main() -> list[Result]:
    """Both, interleaved."""
    files, source = jpegs(COUNT, long_side=486)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "photos.fld"
        with fl.DatasetWriter(path, {"image": fl.JPEGImageField()}) as writer:
            for file in files:
                writer.write_sample({"image": file})
        with fl.open(path) as reader:
            times = interleave(ROUNDS, one=partial(load, reader, 1), two=partial(load, reader, 2))
    size = sum(map(len, files)) / len(files) / 1e3
    details = f"images/s: {1 / times['one']:.0f} and {1 / times['two']:.0f}; {source}, {size:.0f} KB"
    return [Result("two threads", "one thread", times["two"] / times["one"], "<= 0.53", details)]
