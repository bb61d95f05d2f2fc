"""Operations on images and labels, for ``DataLoader(pipelines={field: [...]}, batch_ops=[...])``.

Each is a frozen description. What an operation draws is a function of the loader's seed, the epoch, the sample and its
place in the pipeline alone.
"""

from fastloader.ops.base import Op, Pixels, Step
from fastloader.ops.batches import BatchOp, CutMix, Mixup
from fastloader.ops.custom import CustomOp, custom
from fastloader.ops.geometry import (
    CenterCrop,
    HorizontalFlip,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)
from fastloader.ops.labels import LabelOp, LabelSmoothing, Numbers, OneHot, Poison, ReplaceLabel
from fastloader.ops.random import Random
from fastloader.ops.values import Cast, Grayscale, Layout, Normalize

__all__ = [
    "BatchOp", "Cast", "CenterCrop", "CustomOp", "CutMix", "Grayscale", "HorizontalFlip", "LabelOp", "LabelSmoothing",
    "Layout", "Mixup", "Normalize", "Numbers", "OneHot", "Op", "Pixels", "Poison", "Random", "RandomCrop",
    "RandomResizedCrop", "ReplaceLabel", "Resize", "Step", "VerticalFlip", "custom",
]  # fmt: skip
