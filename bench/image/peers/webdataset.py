"""WebDataset: tar shards, shuffled by shard and through a buffer, Pillow, batches made in the workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import webdataset
from numpy.typing import NDArray
from task import BATCH, WORKERS, Box, Task

from peers.torch_pil import pil_crops, train_transform

VERSION = f"webdataset {webdataset.__version__}, Pillow {PIL.__version__}"
SHARD, BUFFER = 128, 1000


def prepare(task: Task) -> None:
    """Tar files."""
    with webdataset.ShardWriter(str(task.packed / "%04d.tar"), maxcount=SHARD, verbose=0) as writer:
        for number, path in enumerate(task.paths):
            writer.write({"__key__": f"{number:06d}", "jpg": Path(path).read_bytes()})


def batches(task: Task) -> Iterator[Any]:
    """(64, 3, 224, 224) of uint8."""
    shards = [str(path) for path in sorted(task.packed.glob("*.tar"))] * task.passes
    dataset = (
        webdataset.WebDataset(shards, shardshuffle=len(shards))
        .shuffle(BUFFER)
        .decode("pil")
        .to_tuple("jpg")
        .map_tuple(train_transform)
        .batched(BATCH, partial=False)
    )
    for (images,) in webdataset.WebLoader(dataset, batch_size=None, num_workers=WORKERS):
        yield images


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """By Pillow."""
    return pil_crops(task.paths, wanted)
