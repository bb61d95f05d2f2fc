"""Samples drawn by weight, with and without replacement."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastloader.samplers.cache import EpochCache
from fastloader.samplers.checks import checksum, frozen, one_dimension, positions, refuse_first, seed_of, whole
from fastloader.samplers.hashing import Stream, fold, hashes
from fastloader.samplers.order import Description


@dataclass(frozen=True, slots=True, eq=False)
class Weighted:
    """``num_samples`` draws an epoch, sample ``i`` with a chance proportional to ``weights[i]``.

    With replacement, each position is a draw of its own: a hash of (seed, epoch, position) looked up in the sums of the
    weights, in O(log n); 16 bytes a sample are kept. Without, no sample comes twice in an epoch, and the order is that
    of drawing one after the other from what is left; it is made by sorting once an epoch. 8 bytes a sample are kept,
    and as much for each of the last two epochs. A sample of weight 0 never comes.

    ``num_samples`` defaults to the number of weights, without replacement to that of the positive ones.
    """

    weights: NDArray[np.float64]
    num_samples: int | None = None
    replacement: bool = True
    seed: int = 0
    _sums: NDArray[np.float64] = field(init=False, repr=False)
    _checksum: str = field(init=False, repr=False)
    _orders: EpochCache[NDArray[np.int64]] = field(default_factory=EpochCache, init=False, repr=False)

    def __post_init__(self) -> None:
        weights = frozen(np.array(one_dimension("weights", self.weights), np.float64))
        refuse_first("weights", weights, ~(np.isfinite(weights) & (weights >= 0)), "finite, and not below 0")
        positive = np.flatnonzero(weights)
        if not len(positive):
            raise ValueError("no weight is above 0, so nothing can be drawn")
        # Scaled by a power of two, which is exact, so that sums neither overflow nor lose bits; and added one after the
        # other, not pairwise as np.sum does, so that they are the same on every machine.
        sums = np.cumsum(np.ldexp(weights, -np.frexp(weights.max())[1]) if self.replacement else weights[:1])
        default = len(weights) if self.replacement else len(positive)
        count = default if self.num_samples is None else whole("num_samples", self.num_samples)
        if not self.replacement and count > len(positive):
            raise ValueError(
                f"num_samples={count} without replacement, but only {len(positive)} of {len(weights)} weights are "
                "above 0"
            )
        for name, value in (
            ("weights", weights), ("num_samples", count), ("seed", seed_of(self.seed)), ("_sums", frozen(sums)),
            ("_checksum", checksum(weights)),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        assert self.num_samples is not None
        return self.num_samples

    def samples(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """The draws at these positions."""
        places = positions(len(self), first, count)
        if not self.replacement:
            return self._orders.get(epoch, self._sorted)[places]
        key = fold(self.seed, Stream.WEIGHTED_DRAW, epoch)
        chances = (hashes(key, places) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        # To the right of equal sums: a sample of weight 0 has the sum of the one before it and is passed over. The
        # product with a chance of at most 1 - 2**-53 never rounds up to the whole sum.
        drawn: NDArray[np.int64] = np.searchsorted(self._sums, chances * self._sums[-1], "right")
        return drawn

    def hold(self, epoch: int) -> object:
        """The epoch's order, where it is made by sorting."""
        return None if self.replacement else self._orders.hold(epoch, self._sorted)

    def _sorted(self, epoch: int) -> NDArray[np.int64]:
        """Efraimidis and Spirakis: sort by u ** (1 / weight), largest first, which is by -log(u) / weight, upwards."""
        key = fold(self.seed, Stream.WEIGHTED_KEY, epoch)
        positive = np.flatnonzero(self.weights)
        uniform = ((hashes(key, positive) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        with np.errstate(over="ignore"):
            keys = -logarithm(uniform) / self.weights[positive]
        return frozen(positive[np.argsort(keys, kind="stable")[: len(self)]])

    def describe(self, epoch: int | None = None) -> Description:
        """All options; the weights by their checksum."""
        return {
            "kind": "weighted", "dataset": len(self.weights), "seed": self.seed, "num_samples": len(self),
            "replacement": int(self.replacement), "weights": self._checksum,
        }  # fmt: skip


def logarithm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The natural logarithm by additions, multiplications and divisions alone, which IEEE 754 rounds everywhere alike.

    ``np.log`` differs in the last bit between instruction sets, and one such bit can swap two samples of an order.
    """
    mantissa, exponent = np.frexp(values)  # the mantissa is from 1/2 to 1
    small = mantissa < 0.7071067811865476
    mantissa[small] *= 2
    exponent[small] -= 1
    s = (mantissa - 1) / (mantissa + 1)  # at most 0.172, so that terms shrink by 0.03
    square = s * s
    series = np.full_like(s, 1 / 21)
    for odd in range(19, 0, -2):
        series = series * square + 1 / odd
    result: NDArray[np.float64] = exponent * 0.6931471805599453 + 2 * s * series
    return result
