"""Things made when first needed and then kept with a description, which itself stays frozen."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """One thing for each key. It is made once, whichever threads ask, and goes along when pickled."""

    __slots__ = ("_locks", "_made")

    def __init__(self, made: dict[Hashable, T] | None = None) -> None:
        self._made: dict[Hashable, T] = made or {}
        # One lock a process: the parent's may be held by a thread that does not exist in a forked child.
        self._locks: dict[int, Any] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives; it runs once."""
        if key not in self._made:
            with self._locks.setdefault(os.getpid(), RLock()):
                if key not in self._made:
                    self._made[key] = make()
        return self._made[key]

    def known(self) -> T | None:
        """Something that was made already."""
        return next(iter(self._made.values()), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self._made),)


class Again(Once[T]):
    """The same, but a pickled copy makes its own."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()
