"""What an epoch needs once: made on first use, kept for two epochs and while held, safe from threads and forks."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Held(Generic[T]):
    """What was made for an epoch. Whoever has this finds it in the cache, whatever is made for others meanwhile."""

    __slots__ = ("__weakref__", "made")

    def __init__(self, made: T) -> None:
        self.made = made


class EpochCache(Generic[T]):
    """Something made from an epoch's number. Two are kept, as the next epoch begins while the last one is read out."""

    __slots__ = ("_alive", "_kept", "_locks")

    def __init__(self) -> None:
        self._kept: dict[int, Held[T]] = {}
        self._alive: WeakValueDictionary[int, Held[T]] = WeakValueDictionary()
        # One lock a process: the parent's may be held by a thread that does not exist in a forked child.
        self._locks: dict[int, Lock] = {}

    def get(self, epoch: int, make: Callable[[int], T]) -> T:
        """What ``make`` gives for this epoch; it runs once, whichever threads ask."""
        return self.hold(epoch, make).made

    def hold(self, epoch: int, make: Callable[[int], T]) -> Held[T]:
        """The same, to be kept for as long as what comes back lives: ``make`` may give something else the next time."""
        held = self._kept.get(epoch)
        if held is None:
            with self._locks.setdefault(os.getpid(), Lock()):
                held = self._kept.get(epoch) or self._alive.get(epoch)
                if held is None:
                    held = self._alive[epoch] = Held(make(epoch))
                    # A new dictionary, never a changed one: readers need no lock.
                    self._kept = dict([*list(self._kept.items())[-1:], (epoch, held)])
        return held

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()
