"""Steps that choose among elements with random access: slices, shuffles, passes, one dataset behind another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from fastloader import kernels
from fastloader.dataset.base import MapNode, Reach, Run
from fastloader.dataset.indexing import Group, IndexNode, Positions, SameNode, Segment
from fastloader.dataset.settings import Settings
from fastloader.samplers.hashing import Stream, fold
from fastloader.types import distinct


@dataclass(frozen=True, eq=False)
class Slice(IndexNode):
    """Every ``step``-th element from ``start`` up to ``stop``: ``take``, ``skip``, ``shard`` and ``ds[a:b]``."""

    parent: MapNode
    start: int | None
    stop: int | None
    step: int | None
    name: str
    even: bool = False

    def label(self) -> str:
        """As it was written."""
        return self.name

    def _range(self, run: Run) -> range | None:
        """The positions beneath; ``None``: without end."""
        length = self.parent.length(run)
        if length is not None:
            length -= length % (self.step or 1) if self.even else 0
            return range(length)[self.start : self.stop : self.step]
        if any(bound is not None and bound < 0 for bound in (self.start, self.stop, self.step)):
            raise ValueError(f"{self.name}: the dataset is endless, so there is no counting from its end")
        return None if self.stop is None else range(self.start or 0, self.stop, self.step or 1)

    def endless(self) -> bool:
        """Unless it is bounded here."""
        return self.stop is None and self.parent.endless()

    def length(self, run: Run) -> int | None:
        """Elements left."""
        found = self._range(run)
        return None if found is None else len(found)

    def down(self, run: Run, epoch: int, positions: Positions) -> Iterator[Group]:
        """A straight line."""
        found = self._range(run)
        start, step = (self.start or 0, self.step or 1) if found is None else (found.start, found.step)
        yield Group(np.arange(len(positions)), self.parent, run, epoch, start + positions * step)

    def reach(self, run: Run) -> Reach:
        """Fewer of those beneath."""
        spread, stride = self.parent.reach(run)
        return Reach(spread, stride * abs(self.step or 1))

    def stretches(self) -> bool:
        """If no element is left out in between."""
        return self.step in (None, 1)

    def segments(self, run: Run, epoch: int, start: int) -> Iterator[Segment]:
        """One."""
        found = self._range(run)
        first, stop = (self.start or 0, None) if found is None else (found.start, found.stop)
        yield Segment(self.parent, epoch, first + start, stop, -first)


@dataclass(frozen=True, eq=False)
class Shuffle(IndexNode):
    """All elements in an order keyed by seed and epoch; with ``window``, shuffled within blocks of that many."""

    parent: MapNode
    window: int | None
    seed: int

    def label(self) -> str:
        """Window and seed."""
        return shuffle_label(self.window, self.seed)

    def length(self, run: Run) -> int | None:
        """As many as before."""
        return self.parent.length(run)

    def epochal(self) -> bool:
        """Each pass has an order of its own."""
        return True

    def reach(self, run: Run) -> Reach:
        """A block, or everything."""
        spread, stride = self.parent.reach(run)
        return Reach(inf if self.window is None else spread + self.window * stride, stride)

    def down(self, run: Run, epoch: int, positions: Positions) -> Iterator[Group]:
        """The keyed permutation, of everything or block by block."""
        length = self.parent.length(run)
        asked = np.arange(len(positions))
        if self.window is None:
            assert length is not None
            yield Group(asked, self.parent, run, epoch, permuted(length, self.seed, epoch, positions))
            return
        out = np.empty_like(positions)
        numbers = positions // self.window
        for number in distinct(numbers).tolist():
            mine = numbers == number
            first = number * self.window
            size = self.window if length is None else min(self.window, length - first)
            out[mine] = first + permuted(size, block_seed(self.seed, number), epoch, positions[mine] - first)
        yield Group(asked, self.parent, run, epoch, out)


def shuffle_label(window: int | None, seed: int) -> str:
    """As it was written."""
    return f"shuffle({'' if window is None else f'{window}, '}seed={seed})"


def permuted(length: int, seed: int, epoch: int, positions: Positions) -> Positions:
    """The keyed permutation of ``length`` things at these positions."""
    out = np.ascontiguousarray(positions).copy()
    kernels.permute(length, seed, epoch, out, out)
    return out


def block_seed(seed: int, number: int) -> int:
    """The key of one block of a shuffle in windows."""
    return fold(seed, Stream.BLOCK, number)


@dataclass(frozen=True, eq=False)
class Repeat(IndexNode):
    """Pass after pass: pass ``k`` of ``count`` in epoch ``e`` is epoch ``e * count + k`` beneath, or ``e + k``."""

    parent: MapNode
    count: int | None

    def label(self) -> str:
        """How often."""
        return f"repeat({'' if self.count is None else self.count})"

    def endless(self) -> bool:
        """Without a count."""
        return self.count is None or super().endless()

    def length(self, run: Run) -> int | None:
        """So many times as many."""
        length = self.parent.length(run)
        if length == 0:
            if self.count is None:
                raise ValueError("repeat() without a count, and there is nothing to repeat")
            return 0
        return None if length is None or self.count is None else length * self.count

    def first_epoch(self, epoch: int) -> int:
        """The epoch of the first pass."""
        return epoch if self.count is None else epoch * self.count

    def down(self, run: Run, epoch: int, positions: Positions) -> Iterator[Group]:
        """Pass and position in it."""
        length = self.parent.length(run)
        if length is None:
            yield Group(np.arange(len(positions)), self.parent, run, self.first_epoch(epoch), positions)
            return
        passes = positions // max(length, 1)
        for number in distinct(passes).tolist():
            mine = np.flatnonzero(passes == number)
            inner = positions[mine] - number * length
            yield Group(mine, self.parent, run, self.first_epoch(epoch) + number, inner)

    def stretches(self) -> bool:
        """Each pass is one."""
        return True

    def segments(self, run: Run, epoch: int, start: int) -> Iterator[Segment]:
        """One a pass."""
        length = self.parent.length(run)
        if length is None:
            yield Segment(self.parent, self.first_epoch(epoch), start, None, 0)
            return
        number, inner = divmod(start, max(length, 1))
        while length and (self.count is None or number < self.count):
            yield Segment(self.parent, self.first_epoch(epoch) + number, inner, length, number * length)
            number, inner = number + 1, 0


@dataclass(frozen=True, eq=False)
class Concat(IndexNode):
    """One behind the other."""

    nodes: tuple[MapNode, ...]

    def parts(self) -> tuple[MapNode, ...]:
        """All of them."""
        return self.nodes

    def label(self) -> str:
        """The name."""
        return "concat()"

    def _lengths(self, run: Run) -> list[int | None]:
        lengths = [node.length(run) for node in self.nodes]
        if None in lengths[:-1]:
            raise ValueError(f"concat: dataset {lengths.index(None)} is endless, so those behind it never come")
        return lengths

    def length(self, run: Run) -> int | None:
        """The sum."""
        lengths = self._lengths(run)
        return None if lengths[-1] is None else sum(length or 0 for length in lengths)

    def _starts(self, run: Run) -> Positions:
        return np.cumsum([0, *(length or 0 for length in self._lengths(run)[:-1])])

    def down(self, run: Run, epoch: int, positions: Positions) -> Iterator[Group]:
        """Which of them, and where in it."""
        starts = self._starts(run)
        numbers = np.searchsorted(starts, positions, "right") - 1
        for number in distinct(numbers).tolist():
            mine = np.flatnonzero(numbers == number)
            yield Group(mine, self.nodes[number], run, epoch, positions[mine] - starts[number])

    def stretches(self) -> bool:
        """Each of them is one."""
        return True

    def segments(self, run: Run, epoch: int, start: int) -> Iterator[Segment]:
        """One for each."""
        for node, first, length in zip(self.nodes, self._starts(run).tolist(), self._lengths(run), strict=True):
            if length is None or start < first + length:
                yield Segment(node, epoch, max(start - first, 0), length, first)


@dataclass(frozen=True, eq=False)
class MapOptions(SameNode):
    """Settings for everything beneath."""

    parent: MapNode
    settings: Settings

    def label(self) -> str:
        """The settings that were made."""
        return self.settings.label()

    def under(self, run: Run) -> Run:
        """With the settings."""
        return run.under(self.settings)

    def length(self, run: Run) -> int | None:
        """As many as before."""
        return self.parent.length(self.under(run))

    def signature(self, run: Run) -> str:
        """That of what is beneath, under the settings."""
        return super().signature(self.under(run))

    def origin(self, run: Run) -> str:
        """The same."""
        return super().origin(self.under(run))
