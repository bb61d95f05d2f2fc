"""What was delivered in an epoch, in three numbers that ranks can add up and compare with what should have been."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.samplers.buckets import BatchOrder
from fastloader.samplers.checks import Integers, integers, whole
from fastloader.samplers.hashing import MASK, Stream, fold, hashes, number_of
from fastloader.samplers.order import Order

CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a digest is the expected one, and if not, what can be told of the difference.

    ``missing`` and ``extra`` are the least numbers that explain it: samples that did not come, or came again, may
    hide one another in the count, never in the verdict.
    """

    exact: bool
    missing: int
    extra: int
    text: str

    def __bool__(self) -> bool:
        return self.exact

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class EpochDigest:
    """Count, sum and exclusive or of a 64-bit hash of each sample number delivered in an epoch.

    Neither the order of samples nor who delivered them matters. Two different sets of samples agree by chance about
    once in 2**64 times.

    >>> even, odd = (EpochDigest(3).add(range(start, 10, 2)) for start in (0, 1))
    >>> print(EpochDigest.merge([even, odd]).check(EpochDigest(3).add(range(10))))
    complete: 10 samples, each as often as it should
    """

    epoch: int
    count: int = 0
    sum: int = 0
    xor: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epoch", whole("epoch", self.epoch))

    def add(self, samples: Integers) -> EpochDigest:
        """The digest with these samples too; a sample given twice counts twice."""
        values = hashes(self._key(), integers("samples", samples))
        return EpochDigest(
            self.epoch,
            self.count + len(values),
            (self.sum + int(values.sum(dtype=np.uint64))) & MASK,
            self.xor ^ int(np.bitwise_xor.reduce(values)),
        )

    def _key(self) -> int:
        return fold(Stream.DIGEST, self.epoch)

    @classmethod
    def merge(cls, digests: Iterable[EpochDigest]) -> EpochDigest:
        """What several ranks, or several parts of a run, delivered together."""
        together = None
        for one in digests:
            if together is None:
                together = one
            elif one.epoch != together.epoch:
                raise ValueError(f"digests of epochs {together.epoch} and {one.epoch} can't be merged")
            else:
                together = cls(
                    one.epoch, together.count + one.count, (together.sum + one.sum) & MASK, together.xor ^ one.xor
                )
        if together is None:
            raise ValueError("there is no digest to merge")
        return together

    @classmethod
    def expected(cls, order: Order | BatchOrder, epoch: int, done: int | None = None) -> EpochDigest:
        """The digest of the first ``done`` samples of an epoch (batches, for orders of batches), or of all of them."""
        digest = cls(epoch)
        for samples in _parts(order, epoch, done):
            digest = digest.add(samples)
        return digest

    def check(self, expected: EpochDigest) -> Verdict:
        """What this digest says about the samples that were expected."""
        if self.epoch != expected.epoch:
            raise ValueError(f"a digest of epoch {self.epoch} can't be compared with one of epoch {expected.epoch}")
        if self == expected:
            return Verdict(True, 0, 0, f"complete: {self.count} samples, each as often as it should")
        short = expected.count - self.count
        missing, extra = max(short, 0), max(-short, 0)
        if short == 0:
            return Verdict(
                False, 1, 1, f"{self.count} samples, as many as expected, but some came again in place of others"
            )
        if abs(short) == 1:
            apart = (expected.sum - self.sum) * short & MASK
            if apart == expected.xor ^ self.xor:  # the one sample's hash, which tells the sample
                sample = number_of(self._key(), apart)
                which = f"sample {sample} did not come" if short > 0 else f"sample {sample} came once too often"
                return Verdict(False, missing, extra, f"{self.count} of {expected.count} samples: {which}")
        amount = f"at least {abs(short)} {'did not come' if short > 0 else 'came that should not have'}"
        return Verdict(False, missing, extra, f"{self.count} samples, {expected.count} expected: {amount}")

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; 64-bit numbers as strings, which every reader keeps whole."""
        return {"epoch": self.epoch, "count": self.count, "sum": f"{self.sum:016x}", "xor": f"{self.xor:016x}"}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> EpochDigest:
        """What ``to_dict`` gave."""
        return cls(
            whole("epoch", state["epoch"]), whole("count", state["count"]), *(int(state[k], 16) for k in ("sum", "xor"))
        )


def _parts(order: Order | BatchOrder, epoch: int, done: int | None) -> Iterator[NDArray[np.int64]]:
    if isinstance(order, Order):
        total = len(order) if done is None else whole("done", done)
        for first in range(0, total, CHUNK):
            yield order.samples(epoch, first, min(CHUNK, total - first))
    else:
        for number in range(order.num_batches(epoch) if done is None else whole("done", done)):
            yield order.batch(epoch, number)
