"""torch's DataLoader with torchvision's own JPEG decoder and its transforms on tensors, antialiased."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import vision
from numpy.typing import NDArray
from task import BATCH, SIZE, WORKERS, Box, Task
from torch.utils.data import DataLoader, Dataset
from vision import ImageReadMode, decode_jpeg, functional, v2

VERSION = f"torchvision {vision.torchvision.__version__}"

train_transform = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()])


def decode(path: str) -> torch.Tensor:
    """(3, height, width) of uint8."""
    return decode_jpeg(vision.torchvision.io.read_file(path), mode=ImageReadMode.RGB)


class Photos(Dataset[torch.Tensor]):
    """A file a sample."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return train_transform(decode(self.paths[index]))


def batches(task: Task) -> Iterator[Any]:
    """(64, 3, 224, 224) of uint8."""
    yield from DataLoader(Photos(task.paths * task.passes), BATCH, shuffle=True, num_workers=WORKERS, drop_last=True)


def tensor_crop(image: torch.Tensor, box: Box) -> NDArray[np.uint8]:
    """(224, 224, 3)."""
    left, top, width, height = box
    cropped = functional.resized_crop(image, top, left, height, width, [SIZE, SIZE], antialias=True)
    return cropped.permute(1, 2, 0).numpy()


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """By the tensor path."""
    paths = task.paths
    return np.stack([tensor_crop(decode(paths[number]), box) for number, box in wanted])
