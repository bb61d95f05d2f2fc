"""Who gets what at which step: an order cut into batches and dealt to ranks, from wherever the epoch was left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from fastloader.samplers.buckets import BatchOrder
from fastloader.samplers.checks import whole
from fastloader.samplers.given import sample_numbers
from fastloader.samplers.order import Description, Order, Sequential, Shuffled, describe, hold, pages_at_once
from fastloader.samplers.world import checked

Remainder = Literal["drop", "pad", "uneven"]
"""What becomes of the end of an epoch, where not every rank gets a whole batch."""


_OWN = (Sequential, Shuffled)
"""Orders whose arithmetic is known to be right: a look at each batch would take a tenth of a small one's time."""


class Plan(Protocol):
    """What a rank is to load at each step. ``done`` counts what all ranks together had consumed of the epoch before.

    It counts samples, or whole batches where the order is one of batches.
    """

    def steps(self, done: int = 0, epoch: int = 0) -> int:
        """Batches this rank gets in the rest of the epoch."""

    def batch(self, epoch: int, step: int, done: int = 0) -> NDArray[np.int64]:
        """The samples of this rank's batch at this step after ``done``."""

    def instead(self, epoch: int, step: int, done: int, further: int) -> NDArray[np.int64]:
        """Samples of the epoch, at most as many as in the batch at this step, so many batches behind it in the order.

        It does not matter where the pass began. Behind the end comes the beginning.
        """

    def done_after(self, step: int, done: int = 0, epoch: int = 0) -> int:
        """What ``done`` is when all ranks have finished this step."""

    def holding(self, epoch: int) -> Self:
        """The same plan, which keeps the order of this epoch while it lives: not every source gives it twice."""

    def pages_at_once(self) -> int:
        """How this rank goes through the files: so many pages at a time and all of each, or (0) here and there."""

    def describe(self, epoch: int | None = None) -> Description:
        """The order's description, to be saved with a position."""


@dataclass(frozen=True, slots=True)
class Dealing:
    """Places ``0 .. left`` dealt in steps: each rank takes ``size`` in turn, and ``remainder`` says how it ends."""

    size: int
    rank: int
    world_size: int
    remainder: Remainder
    drop_last: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole("batch_size", self.size, 1, 2**32))
        checked(self.rank, self.world_size)
        if self.remainder not in get_args(Remainder):
            raise ValueError(f"remainder={self.remainder!r}: one of {', '.join(get_args(Remainder))}")

    def steps(self, left: int) -> int:
        """Steps in which this rank gets something."""
        full, tail = divmod(left, self.size * self.world_size)
        return full + (self._last(tail)[1] > 0)

    def run(self, left: int, step: int) -> tuple[int, int]:
        """First place and number of places of this rank at a step; under "pad" they may lie past ``left``."""
        full, tail = divmod(left, self.size * self.world_size)
        if 0 <= step < full:
            return (step * self.world_size + self.rank) * self.size, self.size
        first, count = self._last(tail)
        if step != full or not count:
            raise IndexError(f"step {step}: rank {self.rank} has {self.steps(left)} from here to the epoch's end")
        return full * self.size * self.world_size + first, count

    def consumed(self, left: int, step: int) -> int:
        """Places that all ranks together have taken when a step is over."""
        span = self.size * self.world_size
        full, tail = divmod(left, span)
        if 0 <= step < full:
            return (step + 1) * span
        if self.remainder == "pad":
            taken = tail
        elif self.remainder == "drop":
            taken = self._equal(tail) * self.world_size
        else:
            taken = tail // self.size * self.size if self.drop_last else tail
        if step != full or not taken:
            raise IndexError(f"step {step}: there are {full + (taken > 0)} from here to the epoch's end")
        return full * span + taken

    def _last(self, tail: int) -> tuple[int, int]:
        """First place and number of places of this rank in a step that is not whole."""
        if self.remainder != "uneven":
            return self.rank * self._equal(tail), self._equal(tail)
        first = self.rank * self.size
        count = min(max(tail - first, 0), self.size)
        return first, 0 if self.drop_last and count < self.size else count

    def _equal(self, tail: int) -> int:
        """Places of every rank in a step that is not whole, under "drop" and "pad"."""
        if self.remainder == "drop":
            return 0 if self.drop_last else tail // self.world_size
        if self.drop_last and tail:
            return self.size
        return -(-tail // self.world_size)


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order of samples, cut into batches and dealt to ranks.

    Step ``s`` covers the positions from ``done + s * batch_size * world_size``, and rank ``r`` takes the ``r``-th run
    of ``batch_size`` of them. At the end of the epoch, ``remainder`` decides: "uneven" deals every sample exactly once,
    so some ranks may get a short batch or none; "drop" leaves out what can't be dealt equally; "pad" fills up with
    samples from the start of the epoch's order. ``drop_last`` allows no short batches. What the order gives is checked,
    and with ``dataset_length`` against that.
    """

    order: Order
    batch_size: int
    drop_last: bool = False
    rank: int = 0
    world_size: int = 1
    remainder: Remainder = "uneven"
    dataset_length: int | None = None
    _dealing: Dealing = field(init=False, repr=False, compare=False)
    _held: object = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.order, Order):
            raise TypeError(f"{type(self.order).__name__} is no order of samples: it lacks __len__ or samples()")
        dealing = Dealing(self.batch_size, self.rank, self.world_size, self.remainder, self.drop_last)
        object.__setattr__(self, "_dealing", dealing)

    def steps(self, done: int = 0, epoch: int = 0) -> int:
        """Batches this rank gets in the rest of an epoch, the same in each."""
        return self._dealing.steps(_left(len(self.order), done))

    def batch(self, epoch: int, step: int, done: int = 0) -> NDArray[np.int64]:
        """The samples of this rank's batch at this step after ``done``."""
        epoch, total = whole("epoch", epoch), len(self.order)
        first, count = self._dealing.run(_left(total, done), step)
        if done + first + count <= total:
            return self._samples(epoch, step, done + first, count)
        parts = []
        at = done + first
        while count:
            part = min(count, total - at % total)
            parts.append(self._samples(epoch, step, at % total, part))
            at, count = at + part, count - part
        return np.concatenate(parts)

    def instead(self, epoch: int, step: int, done: int, further: int) -> NDArray[np.int64]:
        """Samples ``further`` batches of this size behind that of this step."""
        total = len(self.order)
        first, count = self._dealing.run(_left(total, done), step)
        at = (done + first + further * count) % total
        return self._samples(epoch, step, at, min(count, total - at))

    def _samples(self, epoch: int, step: int, first: int, count: int) -> NDArray[np.int64]:
        given = self.order.samples(epoch, first, count)
        if type(self.order) in _OWN and len(self.order) == self.dataset_length:
            return given
        return sample_numbers(self.order, epoch, step, given, count, self.dataset_length)

    def done_after(self, step: int, done: int = 0, epoch: int = 0) -> int:
        """Samples of the epoch consumed when all ranks have finished this step; repeated ones don't count."""
        return done + self._dealing.consumed(_left(len(self.order), done), step)

    def holding(self, epoch: int) -> Self:
        """The same plan, which keeps the order of this epoch while it lives."""
        return _holding(self, hold(self.order, whole("epoch", epoch)))

    def pages_at_once(self) -> int:
        """What the order says."""
        return pages_at_once(self.order, self.world_size)

    def describe(self, epoch: int | None = None) -> Description:
        """The order's description; batch size and world may change between saving and restoring."""
        return describe(self.order, epoch)


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    """An order of whole batches dealt to ranks: at step ``s``, rank ``r`` takes batch ``done + s * world_size + r``.

    ``remainder`` decides what becomes of the last few batches when there are fewer than ranks: "uneven" deals them,
    "drop" leaves them out, "pad" fills up with batches from the start of the epoch. What the order gives is checked,
    and with ``dataset_length`` against that.
    """

    order: BatchOrder
    rank: int = 0
    world_size: int = 1
    remainder: Remainder = "uneven"
    dataset_length: int | None = None
    _dealing: Dealing = field(init=False, repr=False, compare=False)
    _held: object = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.order, BatchOrder):
            raise TypeError(f"{type(self.order).__name__} is no order of batches: it lacks num_batches() or batch()")
        object.__setattr__(self, "_dealing", Dealing(1, self.rank, self.world_size, self.remainder, False))

    def steps(self, done: int = 0, epoch: int = 0) -> int:
        """Batches this rank gets in the rest of this epoch."""
        return self._dealing.steps(_left(self.order.num_batches(epoch), done))

    def batch(self, epoch: int, step: int, done: int = 0) -> NDArray[np.int64]:
        """The batch of this rank at this step after ``done`` batches."""
        total = self.order.num_batches(whole("epoch", epoch))
        first, _ = self._dealing.run(_left(total, done), step)
        given = self.order.batch(epoch, (done + first) % total)
        return sample_numbers(self.order, epoch, step, given, None, self.dataset_length)

    def instead(self, epoch: int, step: int, done: int, further: int) -> NDArray[np.int64]:
        """The batch ``further`` behind that of this step."""
        total = self.order.num_batches(epoch)
        first, _ = self._dealing.run(_left(total, done), step)
        given = self.order.batch(epoch, (done + first + further) % total)
        return sample_numbers(self.order, epoch, step, given, None, self.dataset_length)

    def done_after(self, step: int, done: int = 0, epoch: int = 0) -> int:
        """Batches of the epoch consumed when all ranks have finished this step."""
        return done + self._dealing.consumed(_left(self.order.num_batches(epoch), done), step)

    def holding(self, epoch: int) -> Self:
        """The same plan, which keeps the order of this epoch while it lives."""
        return _holding(self, hold(self.order, whole("epoch", epoch)))

    def pages_at_once(self) -> int:
        """What the order says."""
        return pages_at_once(self.order, self.world_size)

    def describe(self, epoch: int | None = None) -> Description:
        """The order's description."""
        return describe(self.order, epoch)


_P = TypeVar("_P", bound=Schedule | BatchSchedule)


def _holding(plan: _P, held: object) -> _P:
    same = replace(plan)
    object.__setattr__(same, "_held", held)
    return same


def _left(total: int, done: int) -> int:
    if not 0 <= done <= total:
        raise ValueError(f"done={done} of an epoch that has {total}")
    return total - done
