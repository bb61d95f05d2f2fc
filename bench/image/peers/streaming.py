"""MosaicML Streaming: local MDS shards with its ``jpeg`` column, which Pillow decodes, in torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image
from streaming import MDSWriter, StreamingDataset, base
from streaming import __version__ as streaming_version
from task import BATCH, WORKERS, Box, Task
from torch.utils.data import DataLoader

from peers.torch_pil import pil_crops, train_transform

VERSION = f"mosaicml-streaming {streaming_version}, Pillow {PIL.__version__}"


class Photos(StreamingDataset):
    """Transforms where the documentation has them: as a sample is taken."""

    def __getitem__(self, at: int) -> torch.Tensor:
        return train_transform(super().__getitem__(at)["image"].convert("RGB"))


def prepare(task: Task) -> None:
    """MDS shards, the files' bytes as they are."""
    with MDSWriter(out=str(task.packed / "mds"), columns={"image": "jpeg"}) as writer:
        for path in task.paths:
            writer.write({"image": Image.open(path)})


def batches(task: Task) -> Iterator[Any]:
    """(64, 3, 224, 224) of uint8."""
    base.util.clean_stale_shared_memory()
    local = str(task.packed / "mds")
    dataset = Photos(local=local, shuffle=True, batch_size=BATCH, epoch_size=task.passes * len(task))
    yield from DataLoader(dataset, BATCH, num_workers=WORKERS, drop_last=True)


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """By Pillow."""
    return pil_crops(task.paths, wanted)
