"""Raw uint8 images of 3 x 224 x 224 in random order, batches of 256: in memcpys of a batch."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from common import Result, interleave

import fastloader as fl

SHAPE, BATCH, STEPS = (3, 224, 224), 256, 12
BATCH_BYTES = BATCH * 3 * 224 * 224


def write(path: Path) -> None:
    """Images of noise."""
    noise = np.random.default_rng(0).integers(0, 256, (BATCH, *SHAPE), dtype=np.uint8)
    with fl.DatasetWriter(path, {"image": fl.NDArrayField("uint8", SHAPE)}) as writer:
        for _ in range(STEPS):
            for image in noise:
                writer.write_sample({"image": image})


def main() -> list[Result]:
    """Seconds of an epoch against a copy of as many bytes of the file, a batch at a time, by one thread."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "images.fld")
        reader = fl.open(Path(folder) / "images.fld")
        file = reader.dataset.file(0)
        source = file.bytes[file.data.offset : file.data.offset + BATCH_BYTES * STEPS]
        out = np.empty(BATCH_BYTES, np.uint8)

        def memcpy() -> None:
            for step in range(STEPS):
                np.copyto(out, source[step * BATCH_BYTES : (step + 1) * BATCH_BYTES])

        # Made once, as a training program would: the memory of its batches is reused from epoch to epoch.
        loaders = {workers: fl.DataLoader(reader, BATCH, num_workers=workers) for workers in (1, 2)}

        def load(workers: int) -> float:
            began = time.perf_counter()
            for _ in loaders[workers]:
                pass
            return time.perf_counter() - began

        times = interleave(10, memcpy=memcpy, one=lambda: load(1), two=lambda: load(2))
        for loader in loaders.values():
            loader.close()
    speed = {name: BATCH_BYTES * STEPS / seconds / 1e9 for name, seconds in times.items()}
    return [
        Result(f"raw images, {what}", "memcpy of the batch, one thread", times[name] / times["memcpy"], "<= 1.5",
               f"GB/s: memcpy {speed['memcpy']:.1f}, loader {speed[name]:.1f}")
        for name, what in (("one", "one worker"), ("two", "two workers"))
    ]  # fmt: skip
