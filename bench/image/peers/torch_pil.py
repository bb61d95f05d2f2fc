"""torch's DataLoader over files: Pillow decodes, torchvision's transforms crop and flip. Where most begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image
from task import BATCH, SIZE, WORKERS, Box, Task
from torch.utils.data import DataLoader, Dataset
from vision import functional, v2

VERSION = f"torch {torch.__version__}, Pillow {PIL.__version__}"

train_transform = v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip(), v2.PILToTensor()])


class Photos(Dataset[torch.Tensor]):
    """Files, or rows of one array, a sample each."""

    def __init__(self, task: Task) -> None:
        self.paths = None if task.raw else task.paths
        self.pixels = task.pixels if task.raw else None
        self.passes = task.passes

    def __len__(self) -> int:
        return self.passes * len(self.pixels if self.paths is None else self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.paths is None:
            image = Image.fromarray(self.pixels[index % len(self.pixels)])
        else:
            with Image.open(self.paths[index % len(self.paths)]) as file:
                image = file.convert("RGB")
        return train_transform(image)


def batches(task: Task) -> Iterator[Any]:
    """(64, 3, 224, 224) of uint8."""
    yield from DataLoader(Photos(task), BATCH, shuffle=True, num_workers=WORKERS, drop_last=True)


def pil_crops(paths: list[str], wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """What Pillow gives through torchvision: antialiased, in the crop's own pixels alone."""
    out = []
    for number, (left, top, width, height) in wanted:
        with Image.open(paths[number]) as file:
            out.append(np.asarray(functional.resized_crop(file.convert("RGB"), top, left, height, width, [SIZE, SIZE])))
    return np.stack(out)


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """By Pillow."""
    return pil_crops(task.paths, wanted)
