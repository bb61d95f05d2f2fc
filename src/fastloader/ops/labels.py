"""Operations on labels: numbers of a field that holds one a sample. They work on a whole batch at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.ops.base import Op, Pixels, check_pixels

MAX_CLASSES = 1 << 24


@dataclass(frozen=True, slots=True)
class Numbers:
    """A label between two operations: the shape of one sample's, and its type."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}" if self.shape else self.dtype


class LabelOp(ABC):
    """One operation on labels. Subclasses are frozen dataclasses whose attributes are their options."""

    @abstractmethod
    def output(self, given: Numbers) -> Numbers:
        """What comes out of it; raises ``ValueError`` where it can't take what is given."""

    @abstractmethod
    def apply(self, values: NDArray[Any], samples: NDArray[np.int64]) -> NDArray[Any]:
        """The labels of these samples, changed; ``values`` is left as it is."""

    def refused(self, values: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Which values it can't take; ``None`` where it takes all."""
        return None


def sample_numbers(samples: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    """Numbers of samples, in order, each once."""
    given = np.asarray(samples)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise TypeError(f"samples={samples!r}: a list of sample numbers")
    if given.size and (given.min() < 0 or given.max() >= 2**63):
        raise ValueError(f"samples={samples!r}: sample numbers start at 0")
    return np.unique(given.astype(np.int64))


@dataclass(frozen=True)
class OneHot(LabelOp):
    """A whole number as a row of ``classes`` floats: 1 at its place, 0 elsewhere. Another number is an error."""

    classes: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if isinstance(self.classes, bool) or not 1 <= self.classes <= MAX_CLASSES:
            raise ValueError(f"classes={self.classes!r}: from 1 to {MAX_CLASSES}")
        if self.dtype not in ("float16", "float32"):
            raise ValueError(f"dtype={self.dtype!r}: 'float16' or 'float32'")

    def output(self, given: Numbers) -> Numbers:
        """A row of floats."""
        if given != Numbers((), "int64"):
            raise ValueError(f"takes a whole number, and gets {given}")
        return Numbers((self.classes,), self.dtype)

    def refused(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """What is no class."""
        return np.asarray((values < 0) | (values >= self.classes))

    def apply(self, values: NDArray[Any], samples: NDArray[np.int64]) -> NDArray[Any]:
        """Rows of zeros with a one each."""
        made = np.zeros((len(values), self.classes), self.dtype)
        made[np.arange(len(values)), values] = 1
        return made


@dataclass(frozen=True)
class LabelSmoothing(LabelOp):
    """A share of each label dealt to all classes alike: ``label * (1 - amount) + amount / classes``, in float32."""

    amount: float

    def __post_init__(self) -> None:
        if not 0 <= self.amount <= 1:
            raise ValueError(f"amount={self.amount!r}: from 0 to 1")

    def output(self, given: Numbers) -> Numbers:
        """Unchanged in shape."""
        if len(given.shape) != 1:
            raise ValueError(f"takes a row of floats, and gets {given}: put OneHot before it")
        return given

    def apply(self, values: NDArray[Any], samples: NDArray[np.int64]) -> NDArray[Any]:
        """Product and sum, each rounded to float32."""
        keep, add = np.float32(1 - self.amount), np.float32(self.amount / values.shape[1])
        return (values.astype(np.float32) * keep + add).astype(values.dtype)


@dataclass(frozen=True)
class ReplaceLabel(LabelOp):
    """Another label for some samples, named by their numbers in the dataset."""

    samples: Sequence[int] | NDArray[Any] = field(repr=False)
    label: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", sample_numbers(self.samples))

    def __str__(self) -> str:
        return f"ReplaceLabel({len(self.samples)} samples, label={self.label})"

    def output(self, given: Numbers) -> Numbers:
        """Unchanged."""
        if given.shape:
            raise ValueError(f"takes a number, and gets {given}: put it before OneHot")
        return given

    def apply(self, values: NDArray[Any], samples: NDArray[np.int64]) -> NDArray[Any]:
        """The label where the sample is one of those named."""
        return np.where(np.isin(samples, self.samples), np.asarray(self.label, values.dtype), values)


@dataclass(frozen=True, eq=False)
class Poison(Op):
    """A picture laid over the images of some samples: ``image * (1 - alpha) + mask * alpha``, rounded to the nearest.

    ``mask`` is a uint8 array of the image's shape; ``samples`` are numbers in the dataset. The labels of the same
    samples are changed by ``ReplaceLabel``.
    """

    mask: NDArray[np.uint8] = field(repr=False)
    alpha: float
    samples: Sequence[int] | NDArray[Any] = field(repr=False)

    def __post_init__(self) -> None:
        mask = np.array(self.mask)
        if mask.dtype != np.uint8 or mask.ndim != 3:
            raise TypeError("mask: a uint8 array (height, width, channels)")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha={self.alpha!r}: from 0 to 1")
        mask.flags.writeable = False
        object.__setattr__(self, "mask", mask)
        object.__setattr__(self, "samples", sample_numbers(self.samples))

    def __str__(self) -> str:
        return f"Poison(alpha={self.alpha}, {len(self.samples)} samples)"

    @property
    def share(self) -> int:
        """The mask's weight in 65536ths."""
        return round(self.alpha * 65536)

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        check_pixels(given)
        if given.shape != self.mask.shape:
            raise ValueError(f"has a mask of {self.mask.shape}, and gets {given}")
        return replace(given)

    def lay_over(self, image: NDArray[np.uint8], sample: int) -> NDArray[np.uint8]:
        """What becomes of the sample's image; the slow twin of ``native/kernels/chain``."""
        if sample not in self.samples:
            return image
        mixed = image.astype(np.uint32) * (65536 - self.share) + self.mask.astype(np.uint32) * self.share
        return ((mixed + 32768) >> 16).astype(np.uint8)
