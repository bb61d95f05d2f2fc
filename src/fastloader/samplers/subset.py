"""Some samples of a dataset, in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastloader.samplers.checks import Integers, checksum, inside, integers, one_dimension
from fastloader.samplers.order import Description, Order, Sequential, describe, hold, pages_at_once

DENSE = 4
"""Where fewer than one sample in so many is wanted, whole pages are too much to read."""


def as_indices(values: Integers, length: int) -> NDArray[np.int64]:
    """Sample numbers from an array of them, or from a mask with one truth value for each sample of the dataset."""
    array = one_dimension("indices", values)
    if array.dtype == np.bool_ and array.size:
        if len(array) != length:
            raise ValueError(f"the mask has {len(array)} values for a dataset of {length} samples")
        array = np.flatnonzero(array)
    found = integers("indices", array)
    inside("indices", found, length)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Subset:
    """The samples ``indices`` of a dataset that has ``length``, in the order that ``order`` gives to them.

    ``indices`` may be a mask, and may name a sample more than once. They are copied: 8 bytes each. ``order`` is one
    over ``len(indices)``; without it they come as they are listed.
    """

    indices: NDArray[np.int64]
    length: int
    order: Order | None = None
    _checksum: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        indices = as_indices(self.indices, self.length)
        order = Sequential(len(indices)) if self.order is None else self.order
        over = describe(order).get("dataset", len(indices))
        if over != len(indices):
            raise ValueError(f"the order is one of {over} samples, and there are {len(indices)} indices")
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "_checksum", checksum(indices))

    def __len__(self) -> int:
        assert self.order is not None
        return len(self.order)

    def samples(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """What the inner order picks among the indices."""
        assert self.order is not None
        return self.indices[self.order.samples(epoch, first, count)]

    def hold(self, epoch: int) -> object:
        """What the inner order keeps."""
        return hold(self.order, epoch)

    def pages_at_once(self, ranks: int) -> int:
        """As the inner order does, unless pages were read for the sake of a few samples, or again and again."""
        if DENSE * len(self) < self.length or np.any(self.indices[1:] < self.indices[:-1]):
            return 0
        return pages_at_once(self.order, ranks)

    def describe(self, epoch: int | None = None) -> Description:
        """The inner order's description, and which samples it is about."""
        inner = describe(self.order, epoch)
        own: Description = {"kind": f"subset, {inner['kind']}", "dataset": self.length, "indices": self._checksum}
        return inner | own
