"""Orders from any iterable: lists, your own classes, the samplers and batch samplers of torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader.samplers.cache import EpochCache, Held
from fastloader.samplers.checks import checksum, frozen, gathered, inside, positions, whole
from fastloader.samplers.order import Description


def _parts(source: Any) -> tuple[Any, Any]:
    """The iterable, and the sampler that a batch sampler wraps."""
    return source, getattr(source, "sampler", None)


@contextmanager
def _started(source: Iterable[Any], epoch: int) -> Iterator[Iterable[Any]]:
    """The iterable, set to an epoch: by its ``set_epoch``, or by its ``generator`` where it has that alone.

    A torch generator moves on with every pass, and then an epoch's order would be a matter of how many passes there
    were before. So it is seeded with its seed plus the epoch, as torch's DistributedSampler does, and is put back
    afterwards: others may draw from it too.
    """
    with ExitStack() as afterwards:
        for one in _parts(source):
            generator: Any = getattr(one, "generator", None)
            if hasattr(one, "set_epoch"):
                one.set_epoch(epoch)
            elif hasattr(generator, "initial_seed") and hasattr(generator, "get_state"):
                afterwards.callback(generator.set_state, generator.get_state())
                generator.manual_seed((generator.initial_seed() + epoch) % 2**64)
        yield source


def gives_batches(source: Any) -> bool:
    """Whether this is a batch sampler in the manner of torch's, which gives lists of sample numbers."""
    return all(hasattr(source, name) for name in ("sampler", "batch_size", "drop_last"))


def deals(source: Any) -> bool:
    """Whether a sampler gives each rank its own samples, in the manner of torch's DistributedSampler."""
    return any(hasattr(one, "num_replicas") and hasattr(one, "rank") for one in _parts(source))


def _refuse_one_shot(source: Iterable[Any]) -> None:
    if not hasattr(source, "__iter__"):
        raise TypeError(f"{type(source).__name__} can't be iterated over")
    if hasattr(source, "__next__"):  # an iterator; calling iter() to see would already start a sampler
        raise TypeError(
            f"a {type(source).__name__} can be gone through once, and every epoch does so anew; give a list, or an "
            "object whose __iter__ begins again"
        )


@dataclass(frozen=True, slots=True, eq=False)
class FromIterable:
    """The sample numbers an iterable gives, for instance one of torch's samplers.

    It is gone through once an epoch, after a call of its ``set_epoch(epoch)`` where it has one, and the numbers are
    kept (8 bytes each, for the last two epochs and those that a pass runs over). So it must end, and give as many each
    time. A sampler of torch's that was given a ``generator`` draws from it as if seeded with the generator's seed plus
    the epoch.

    An epoch is resumed by going through it again: that needs an iterable that gives the same for the same epoch, on
    all ranks. A saved position knows a checksum of its epoch, and refuses another order.

    ``dataset_length`` bounds the numbers.
    """

    source: Iterable[int]
    dataset_length: int
    _orders: EpochCache[NDArray[np.int64]] = field(default_factory=EpochCache, init=False, repr=False)
    _lengths: EpochCache[int] = field(default_factory=EpochCache, init=False, repr=False)

    def __post_init__(self) -> None:
        _refuse_one_shot(self.source)
        object.__setattr__(self, "dataset_length", whole("dataset_length", self.dataset_length))

    def __len__(self) -> int:
        if isinstance(self.source, Sized):
            return len(self.source)
        return self._lengths.get(0, lambda _: len(self._orders.get(0, self._gathered)))

    def samples(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """A copy of this part of the epoch."""
        return self._order(epoch)[positions(len(self), first, count)]

    def hold(self, epoch: int) -> Held[NDArray[np.int64]]:
        """The epoch's numbers, which another time through might not give again."""
        length = len(self)  # first, as it may have to go through an epoch of its own
        return self._orders.hold(epoch, lambda _: self._checked(epoch, length))

    def _order(self, epoch: int) -> NDArray[np.int64]:
        return self.hold(epoch).made

    def _checked(self, epoch: int, length: int) -> NDArray[np.int64]:
        # One more than there should be is enough to see that there are too many, even if they never end.
        found = self._gathered(epoch, length + 1)
        if len(found) != length:
            some = f"more than {length}" if len(found) > length else str(len(found))
            raise ValueError(
                f"{type(self.source).__name__} gave {some} sample numbers in epoch {epoch}, and {length} were announced"
            )
        return found

    def _gathered(self, epoch: int, at_most: int | None = None) -> NDArray[np.int64]:
        name = type(self.source).__name__
        with _started(self.source, epoch) as source:
            try:
                found = gathered(name, islice(source, at_most))
            except TypeError as error:
                raise TypeError(
                    f"{error}; where it gives batches, give it as fastloader.samplers.FromBatches"
                ) from error
        inside(f"{name}, number ", found, self.dataset_length)
        return frozen(found)

    def describe(self, epoch: int | None = None) -> Description:
        """Class and length of the iterable; of an epoch also the checksum."""
        own: Description = {
            "kind": "iterable", "dataset": self.dataset_length, "source": type(self.source).__name__,
            "length": len(self),
        }  # fmt: skip
        return own if epoch is None else own | {"order": checksum(self._order(epoch))}


class _Batches(NamedTuple):
    samples: NDArray[np.int64]
    edges: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class FromBatches:
    """The batches an iterable of lists of sample numbers gives, for instance torch's ``BatchSampler``.

    What ``FromIterable`` says holds here too, but the number of batches may differ from epoch to epoch.
    """

    source: Iterable[Iterable[int]]
    dataset_length: int
    _epochs: EpochCache[_Batches] = field(default_factory=EpochCache, init=False, repr=False)

    def __post_init__(self) -> None:
        _refuse_one_shot(self.source)
        object.__setattr__(self, "dataset_length", whole("dataset_length", self.dataset_length))

    def hold(self, epoch: int) -> Held[_Batches]:
        """The epoch's batches, which another time through might not give again."""
        return self._epochs.hold(epoch, self._gathered)

    def num_batches(self, epoch: int) -> int:
        """As many as the iterable gave."""
        return len(self._epochs.get(epoch, self._gathered).edges) - 1

    def batch(self, epoch: int, number: int) -> NDArray[np.int64]:
        """A copy of one batch."""
        samples, edges = self._epochs.get(epoch, self._gathered)
        positions(len(edges) - 1, number, 1)
        return samples[edges[number] : edges[number + 1]].copy()

    def _gathered(self, epoch: int) -> _Batches:
        name = type(self.source).__name__
        batches = [np.zeros(0, np.int64)]
        with _started(self.source, epoch) as source:
            for number, batch in enumerate(source):
                batches.append(gathered(f"{name}, batch {number}", batch))
                inside(f"{name}, batch {number}, number ", batches[-1], self.dataset_length)
        edges = np.cumsum([len(batch) for batch in batches])
        return _Batches(frozen(np.concatenate(batches)), frozen(edges))

    def describe(self, epoch: int | None = None) -> Description:
        """Class of the iterable; of an epoch also the checksum."""
        own: Description = {
            "kind": "batches", "dataset": self.dataset_length, "source": type(self.source).__name__
        }  # fmt: skip
        return own if epoch is None else own | {"order": checksum(*self._epochs.get(epoch, self._gathered))}
