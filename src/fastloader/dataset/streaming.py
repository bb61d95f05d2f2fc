"""Steps over elements that come one after the other: ``take``, ``skip``, ``shard``, ``shuffle``, ``repeat``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastloader.dataset.base import Cursor, IterNode, Node, Over, Place, Run, parted
from fastloader.dataset.choosing import block_seed, permuted, shuffle_label
from fastloader.dataset.settings import Settings


@dataclass(frozen=True, eq=False)
class IterTake(IterNode):
    """The first few."""

    parent: Node
    count: int

    def label(self) -> str:
        """How many."""
        return f"take({self.count})"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """The place holds how many were given."""
        number, up = parted(place, (0, None))
        return Taken(run.start(self.parent, epoch, up), number, self.count)


class Taken(Over):
    """Ends without asking for one more."""

    def __init__(self, up: Cursor, number: int, count: int) -> None:
        super().__init__(up)
        self._number, self._count = number, count
        self.place = (number, up.place)

    def __next__(self) -> Any:
        if self._number >= self._count:
            raise StopIteration
        value = next(self.up)
        self._number += 1
        self.place = (self._number, self.up.place)
        return value


@dataclass(frozen=True, eq=False)
class IterSkip(IterNode):
    """All but the first few."""

    parent: Node
    count: int

    def label(self) -> str:
        """How many."""
        return f"skip({self.count})"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """A place is behind what is skipped."""
        first = self.count if place is None else 0
        (up,) = parted(place, (None,))
        return Skipping(run.start(self.parent, epoch, up), place, first)


@dataclass(frozen=True, eq=False)
class IterShard(IterNode):
    """Every ``count``-th, from ``index`` on; with ``even``, only of rounds that give one to each shard."""

    parent: Node
    count: int
    index: int
    even: bool

    def label(self) -> str:
        """Which of how many."""
        return f"shard({self.count}, {self.index}{', drop' if self.even else ''})"

    def signature(self, run: Run) -> str:
        """Without the numbers where they may be others: a place is one in the elements that are dealt."""
        if not run.any_world:
            return super().signature(run)
        return f"{self.parent.signature(replace(run, any_world=False))}.shard({'drop' if self.even else ''})"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """Where the round began of which an element was given, and how many it dealt: the same in all shards."""
        begun, dealt = parted(place, (None, 0))
        return Dealt(self, run.start(self.parent, epoch, begun), place, dealt)


class Skipping(Over):
    """Passes over the first few."""

    def __init__(self, up: Cursor, place: Place, first: int) -> None:
        super().__init__(up)
        self.place = place
        self._over = first

    def __next__(self) -> Any:
        while self._over:
            next(self.up)
            self._over -= 1
        value = next(self.up)
        self.place = (self.up.place,)
        return value


class Dealt(Over):
    """One element of each round, behind those that were ``dealt`` already."""

    def __init__(self, node: IterShard, up: Cursor, place: Place, dealt: int) -> None:
        super().__init__(up)
        self.place = place
        self._node = node
        self._over = dealt

    def __next__(self) -> Any:
        node = self._node
        self._pass_over()
        begun = self.up.place
        self._over = node.index
        self._pass_over()
        value = next(self.up)
        self._over = node.count - 1 - node.index
        if node.even:  # it counts only if there is one for each
            self._pass_over()
        self.place = (begun, node.count)
        return value

    def _pass_over(self) -> None:
        while self._over:
            next(self.up)
            self._over -= 1


@dataclass(frozen=True, eq=False)
class IterShuffle(IterNode):
    """Shuffled within blocks of ``window`` elements, each in an order keyed by seed, epoch and block."""

    parent: Node
    window: int
    seed: int

    def label(self) -> str:
        """Window and seed."""
        return shuffle_label(self.window, self.seed)

    def where(self, run: Run) -> str:
        """What is kept."""
        return f"keeps a block of {self.window} elements"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """The place holds where the block began, so at most one block is read again."""
        number, before, given = parted(place, (0, None, 0))
        return Shuffled(self, run.start(self.parent, epoch, before), epoch, number, given)


class Shuffled(Over):
    """One block after the other."""

    def __init__(self, node: IterShuffle, up: Cursor, epoch: int, number: int, given: int) -> None:
        super().__init__(up)
        self._node, self._epoch = node, epoch
        self._number, self._given = number, given
        self._before = up.place
        self._block: list[Any] = []
        self._order: list[int] = []
        self.place = (number, up.place, given)

    def __next__(self) -> Any:
        while not self._order or self._given >= len(self._order):
            if self._order:
                self._block, self._order = [], []
                self._number, self._given, self._before = self._number + 1, 0, self.up.place
            self._fill()
            if not self._order:
                raise StopIteration
        where = self._order[self._given]
        value, self._block[where] = self._block[where], None
        self._given += 1
        self.place = (self._number, self._before, self._given)
        return value

    def _fill(self) -> None:
        while len(self._block) < self._node.window:
            try:
                self._block.append(next(self.up))
            except StopIteration:
                break
        seed = block_seed(self._node.seed, self._number)
        size = len(self._block)
        self._order = permuted(size, seed, self._epoch, np.arange(size, dtype=np.int64)).tolist() if size else []


@dataclass(frozen=True, eq=False)
class IterRepeat(IterNode):
    """Pass after pass, each the next epoch for what is beneath."""

    parent: Node
    count: int | None

    def label(self) -> str:
        """How often."""
        return f"repeat({'' if self.count is None else self.count})"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """The place holds the pass and the place in it."""
        number, up = parted(place, (0, None))
        first = epoch if self.count is None else epoch * self.count
        return Repeated(self, run, first, number, up)


class Repeated(Cursor):
    """One pass after the other."""

    def __init__(self, node: IterRepeat, run: Run, first: int, number: int, up: Place) -> None:
        self._node, self._run, self._first = node, run, first
        self._number = number
        self._up: Cursor | None = None
        self._resume = up
        self._gave = up is not None
        self.place = (number, up)

    def __next__(self) -> Any:
        while self._node.count is None or self._number < self._node.count:
            if self._up is None:
                self._up = self._run.start(self._node.parent, self._first + self._number, self._resume)
            try:
                value = next(self._up)
            except StopIteration:
                if self._node.count is None and not self._gave:
                    raise ValueError("repeat() without a count, and there is nothing to repeat") from None
                self._up.close()
                self._up = self._resume = None
                self._number += 1
                self._gave = False
            else:
                self._gave = True
                self.place = (self._number, self._up.place)
                return value
        raise StopIteration

    def close(self, wait: bool = True) -> None:
        """Close the pass."""
        if self._up is not None:
            self._up.close(wait)


@dataclass(frozen=True, eq=False)
class IterOptions(IterNode):
    """Settings for everything beneath."""

    transparent = True
    parent: Node
    settings: Settings

    @property
    def in_step(self) -> bool:
        """Unless elements may be left out."""
        return self.settings.on_error != "skip"

    def label(self) -> str:
        """The settings that were made."""
        return self.settings.label()

    def signature(self, run: Run) -> str:
        """That of what is beneath, under the settings."""
        return super().signature(self.under(run))

    def origin(self, run: Run) -> str:
        """The same."""
        return super().origin(self.under(run))

    def under(self, run: Run) -> Run:
        """With the settings."""
        return run.under(self.settings)

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """The pass beneath."""
        return self.under(run).start(self.parent, epoch, place)
