"""Orders of a whole dataset. Nothing is kept in memory, so any position of any epoch costs the same to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.samplers.checks import positions, seed_of, whole

Description = dict[str, int | str]
"""What must agree for a position in an order to mean the same: its kind, its options, the dataset's length."""


@runtime_checkable
class Order(Protocol):
    """Which sample comes at which position of an epoch.

    More methods are welcome, as the orders here have them: ``describe(epoch)``, against which saved positions are
    checked; ``pages_at_once(ranks)``, which tells a loader what to read; and ``hold(epoch)``, which gives an object
    during whose life the epoch stays what it is now.
    """

    def __len__(self) -> int:
        """Positions in an epoch."""

    def samples(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """The samples at positions ``first`` to ``first + count``."""


@dataclass(frozen=True, slots=True)
class Sequential:
    """As they were written."""

    length: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", whole("length", self.length))

    def __len__(self) -> int:
        return self.length

    def samples(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """The positions themselves."""
        return positions(self.length, first, count)

    def pages_at_once(self, ranks: int) -> int:
        """One page after the other, if neighbours are not dealt to others."""
        return 1 if ranks == 1 else 0

    def describe(self, epoch: int | None = None) -> Description:
        """Kind and length."""
        return {"kind": "sequential", "dataset": self.length}


@dataclass(frozen=True, slots=True)
class Shuffled:
    """A permutation keyed by seed and epoch: each sample once an epoch, another order each epoch."""

    length: int
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", whole("length", self.length, 0, 2**62))
        object.__setattr__(self, "seed", seed_of(self.seed))

    def __len__(self) -> int:
        return self.length

    def samples(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """The samples at these positions, about 15 ns each."""
        places = positions(self.length, first, count)
        kernels.permute(self.length, self.seed, epoch, places, places)
        return places

    def describe(self, epoch: int | None = None) -> Description:
        """Kind, length and seed."""
        return {"kind": "shuffled", "dataset": self.length, "seed": self.seed}


def describe(order: Any, epoch: int | None = None) -> Description:
    """An order's description of itself; of one that has none, its class and length.

    With ``epoch``, the description may also say something of that epoch's order, where it can't be known otherwise.
    """
    if hasattr(order, "describe"):
        description: Description = order.describe(epoch)
        return description
    length = len(order) if hasattr(order, "__len__") else order.num_batches(epoch or 0)
    return {"kind": type(order).__qualname__, "length": length}


def hold(order: Any, epoch: int) -> object:
    """Something that keeps the epoch's order as it is for as long as it lives; most need nothing for that."""
    return order.hold(epoch) if hasattr(order, "hold") else None


def pages_at_once(order: Any, ranks: int = 1) -> int:
    """How each of ``ranks`` goes through the files: so many pages at a time and all of each, or (0) here and there."""
    return int(order.pages_at_once(ranks)) if hasattr(order, "pages_at_once") else 0
