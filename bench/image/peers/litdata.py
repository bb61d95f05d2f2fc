"""LitData: optimized chunks, its JPEG serializer (torchvision's decoder), torchvision's transforms on tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import litdata
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from task import BATCH, WORKERS, Box, Task

from peers import torchvision

VERSION = f"litdata {litdata.__version__}, {torchvision.VERSION}"


class Photos(litdata.StreamingDataset):
    """Transforms where the documentation has them: as a sample is taken."""

    def __getitem__(self, index: Any) -> torch.Tensor:
        return torchvision.train_transform(super().__getitem__(index)["image"])


def opened(path: str) -> dict[str, Any]:
    """A sample; its serializer takes the file's bytes as they are."""
    return {"image": Image.open(path)}


def prepare(task: Task) -> None:
    """Chunks of 64 MB. A StreamingDataset cannot repeat itself within an epoch, so the passes are written out."""
    output = str(task.packed / "chunks")
    litdata.optimize(opened, task.paths * task.passes, output, chunk_bytes="64MB", num_workers=1, verbose=False)


def batches(task: Task) -> Iterator[Any]:
    """(64, 3, 224, 224) of uint8."""
    dataset = Photos(str(task.packed / "chunks"), shuffle=True, drop_last=True)
    yield from litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, shuffle=True)


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """By the tensor path."""
    return torchvision.crops(task, wanted)
