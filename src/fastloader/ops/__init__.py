"""Operations on images, sounds and labels, for ``DataLoader(pipelines={field: [...]}, batch_ops=[...])``.

Each is a frozen description. What an operation draws is a function of the loader's seed, the epoch, the sample and its
place in the pipeline alone, or the name that ``Op.shared`` gave it.
"""

from fastloader.ops.affine import Affine, RandomAffine, RandomRotation, RandomTranslate, Rotate
from fastloader.ops.arrays import ArrayOp
from fastloader.ops.auto import RandAugment, TrivialAugment
from fastloader.ops.base import Named, Op, Pixels, Step
from fastloader.ops.batches import BatchOp, CutMix, Mixup
from fastloader.ops.choose import Choose
from fastloader.ops.clips import ClipOp, ClipSampler, DecodeResize, TemporalSubsample
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
from fastloader.ops.sound import (
    AddNoise,
    Gain,
    MelSpectrogram,
    Mono,
    PadOrTrim,
    RandomSegment,
    Resample,
    Sound,
    SoundOp,
    SpecAugment,
    TimeShift,
)
from fastloader.ops.tones import AutoContrast, Equalize, Invert, Posterize, Solarize
from fastloader.ops.values import Cast, Layout, Normalize
from fastloader.ops.views import Views

__all__ = [
    "AddNoise", "Affine", "ArrayOp", "AutoContrast", "BatchOp", "Cast", "CenterCrop", "Choose", "ClipOp", "ClipSampler",
    "ColorJitter", "CustomOp", "CutMix", "Cutout", "DecodeResize", "Drawn", "Equalize", "Follow", "Gain",
    "GaussianBlur", "Geometry", "Grayscale", "HorizontalFlip", "Invert", "LabelOp", "LabelSmoothing", "Layout",
    "MelSpectrogram", "Mixup", "Mono", "Named", "Normalize", "Numbers", "OneHot", "Op", "Orient", "Pad", "PadOrTrim",
    "Pixels", "Poison", "Posterize", "RandAugment", "Random", "RandomAffine", "RandomBrightness", "RandomContrast",
    "RandomCrop", "RandomErasing", "RandomGrayscale", "RandomHue", "RandomResizedCrop", "RandomRotation",
    "RandomSaturation", "RandomSegment", "RandomTranslate", "ReplaceLabel", "Resample", "Resize", "Rotate", "Sharpness",
    "Size", "Solarize", "Sound", "SoundOp", "SpecAugment", "Step", "TemporalSubsample", "TimeShift", "TrivialAugment",
    "VerticalFlip", "Views", "custom",
]  # fmt: skip
