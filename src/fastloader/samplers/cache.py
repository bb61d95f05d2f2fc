"""What an epoch needs once: made on first use, kept for the last two epochs, safe from threads and across fork."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class EpochCache(Generic[T]):
    """Something made from an epoch's number. Two are kept, as the next epoch begins while the last one is read out."""

    __slots__ = ("_kept", "_locks")

    def __init__(self) -> None:
        self._kept: dict[int, T] = {}
        # One lock a process: the parent's may be held by a thread that does not exist in a forked child.
        self._locks: dict[int, Lock] = {}

    def get(self, epoch: int, make: Callable[[int], T]) -> T:
        """What ``make`` gives for this epoch; it runs once, whichever threads ask."""
        kept = self._kept
        if epoch not in kept:
            with self._locks.setdefault(os.getpid(), Lock()):
                kept = self._kept
                if epoch not in kept:
                    made = make(epoch)
                    # A new dictionary, never a changed one: readers need no lock.
                    kept = self._kept = dict([*list(kept.items())[-1:], (epoch, made)])
        return kept[epoch]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()
