"""Operations on images, for ``DataLoader(pipelines={field: [...]})``.

Each is a frozen description. What an operation draws is a function of the loader's seed, the epoch, the sample and its
place in the pipeline alone.
"""

from fastloader.ops.base import Op, Pixels, Step
from fastloader.ops.custom import CustomOp, custom
from fastloader.ops.geometry import (
    CenterCrop,
    HorizontalFlip,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)
from fastloader.ops.random import Random
from fastloader.ops.values import Cast, Grayscale, Layout, Normalize

__all__ = [
    "Cast", "CenterCrop", "CustomOp", "Grayscale", "HorizontalFlip", "Layout", "Normalize", "Op", "Pixels", "Random",
    "RandomCrop", "RandomResizedCrop", "Resize", "Step", "VerticalFlip", "custom",
]  # fmt: skip
