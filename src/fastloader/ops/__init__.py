"""Operations on images and labels, for ``DataLoader(pipelines={field: [...]}, batch_ops=[...])``.

Each is a frozen description. What an operation draws is a function of the loader's seed, the epoch, the sample and its
place in the pipeline alone, or the name that ``Op.shared`` gave it.
"""

from fastloader.ops.affine import Affine, RandomAffine, RandomRotation, RandomTranslate, Rotate
from fastloader.ops.auto import RandAugment, TrivialAugment
from fastloader.ops.base import Named, Op, Pixels, Step
from fastloader.ops.batches import BatchOp, CutMix, Mixup
from fastloader.ops.colour import (
    ColorJitter,
    Grayscale,
    RandomBrightness,
    RandomContrast,
    RandomGrayscale,
    RandomHue,
    RandomSaturation,
)
from fastloader.ops.custom import CustomOp, custom
from fastloader.ops.drawn import Drawn
from fastloader.ops.erase import Cutout, RandomErasing
from fastloader.ops.follow import Follow
from fastloader.ops.geometry import (
    CenterCrop,
    Geometry,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Size,
    VerticalFlip,
)
from fastloader.ops.labels import LabelOp, LabelSmoothing, Numbers, OneHot, Poison, ReplaceLabel
from fastloader.ops.orient import Orient
from fastloader.ops.random import Random
from fastloader.ops.smooth import GaussianBlur, Sharpness
from fastloader.ops.tones import AutoContrast, Equalize, Invert, Posterize, Solarize
from fastloader.ops.values import Cast, Layout, Normalize
from fastloader.ops.views import Views

__all__ = [
    "Affine", "AutoContrast", "BatchOp", "Cast", "CenterCrop", "ColorJitter", "CustomOp", "CutMix", "Cutout", "Drawn",
    "Equalize", "Follow", "GaussianBlur", "Geometry", "Grayscale", "HorizontalFlip", "Invert", "LabelOp",
    "LabelSmoothing", "Layout", "Mixup", "Named", "Normalize", "Numbers", "OneHot", "Op", "Orient", "Pad", "Pixels",
    "Poison", "Posterize", "RandAugment", "Random", "RandomAffine", "RandomBrightness", "RandomContrast", "RandomCrop",
    "RandomErasing", "RandomGrayscale", "RandomHue", "RandomResizedCrop", "RandomRotation", "RandomSaturation",
    "RandomTranslate", "ReplaceLabel", "Resize", "Rotate", "Sharpness", "Size", "Solarize", "Step", "TrivialAugment",
    "VerticalFlip", "Views", "custom",
]  # fmt: skip
