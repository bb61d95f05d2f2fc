"""JPEG -> RandomResizedCrop(224) -> flip by one and two threads of the engine, and by Pillow; consumers only wait."""

from __future__ import annotations

import io
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from common import Result, interleave
from PIL import Image

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


def pillow(files: list[bytes]) -> float:
    """Seconds an image by Pillow: decoded whole, a part of the same law cut out, resized, mirrored."""
    rng = np.random.default_rng(2)
    began = time.perf_counter()
    for file in files:
        image = Image.open(io.BytesIO(file)).convert("RGB")
        share, aspect = rng.uniform(0.08, 1), np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        area = image.width * image.height * share
        width, height = (
            min(image.width, round((area * aspect) ** 0.5)),
            min(image.height, round((area / aspect) ** 0.5)),
        )
        x, y = rng.integers(image.width - width + 1), rng.integers(image.height - height + 1)
        small = image.crop((x, y, x + width, y + height)).resize((224, 224), Image.Resampling.BILINEAR)
        np.asarray(small.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else small)
    return (time.perf_counter() - began) / len(files)


def main() -> list[Result]:
    """All, interleaved."""
    files, source = jpegs(COUNT, long_side=486)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "photos.fld"
        with fl.DatasetWriter(path, {"image": fl.JPEGImageField()}) as writer:
            for file in files:
                writer.write_sample({"image": file})
        with fl.open(path) as reader:
            times = interleave(
                ROUNDS, one=partial(load, reader, 1), two=partial(load, reader, 2), pillow=partial(pillow, files)
            )
    size = sum(map(len, files)) / len(files) / 1e3
    details = f"images/s: {1 / times['one']:.0f} and {1 / times['two']:.0f}; {source}, {size:.0f} KB"
    alone = f"images/s: {1 / times['pillow']:.0f}, here {1 / times['one']:.0f}"
    return [
        Result("two threads", "one thread", times["two"] / times["one"], "<= 0.53", details),
        Result("one thread", "Pillow, one thread", times["one"] / times["pillow"], "<= 0.36", alone),
    ]
