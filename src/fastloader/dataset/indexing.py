"""Steps that only choose which element comes where: arithmetic from a position to one of the step beneath."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader.dataset.base import Cursor, MapNode, Node, Reach, Run
from fastloader.dataset.threads import InOrder, width_of

Positions = NDArray[np.int64]
BLOCK = 64
"""Positions that are looked up at once."""


class Group(NamedTuple):
    """Some of the positions asked for, and what they are in a step beneath."""

    asked: Positions
    node: MapNode
    run: Run
    epoch: int
    positions: Positions


class Segment(NamedTuple):
    """A run of neighbours in a step beneath, from ``start`` up to ``stop``; ``shift`` leads from there to here."""

    node: MapNode
    epoch: int
    start: int
    stop: int | None
    shift: int


class IndexNode(MapNode):
    """A step that chooses positions."""

    @abstractmethod
    def down(self, run: Run, epoch: int, positions: Positions) -> Iterator[Group]:
        """The positions in the steps beneath."""

    def stretches(self) -> bool:
        """Whether neighbours here are neighbours beneath, but for a few seams."""
        return False

    def segments(self, run: Run, epoch: int, start: int) -> Iterator[Segment]:
        """The elements from ``start`` on as such stretches."""
        raise NotImplementedError(f"{type(self).__name__} has no stretches")

    def reach(self, run: Run) -> Reach:
        """That of what is beneath."""
        return widest(part.reach(self.under(run)) for part in self.parts() if isinstance(part, MapNode))

    def get(self, run: Run, epoch: int, index: int) -> Any:
        """The element of the step beneath."""
        return addresses(self, run, epoch, np.array([index], np.int64))[0].get()

    def lazily(self, run: Run, epoch: int, positions: Positions) -> list[Callable[[], Any]]:
        """Those of the steps beneath."""
        found: list[Any] = [None] * len(positions)
        for group in groups(self, run, epoch, positions):
            for where, make in zip(
                group.asked.tolist(), group.node.lazily(group.run, group.epoch, group.positions), strict=True
            ):
                found[where] = make
        return found

    def expect(self, run: Run, epoch: int, positions: Positions) -> None:
        """Tell the steps beneath."""
        for group in groups(self, run, epoch, positions):
            group.node.expect(group.run, group.epoch, group.positions)

    def under(self, run: Run) -> Run:
        """The run as it is for the steps beneath."""
        return run

    def flows(self, run: Run) -> bool:
        """Where whole stretches come from a pass that works ahead."""
        run = self.under(run)
        return self.stretches() and any(run.works_ahead(part) for part in self.parts())

    def flow(self, run: Run, epoch: int, start: int) -> Cursor:
        """One stretch after the other."""
        run = self.under(run)
        return Stretches(run, self.segments(run, epoch, start), start)


class SameNode(IndexNode):
    """A step that leaves all positions as they are."""

    parent: MapNode
    transparent = True

    def down(self, run: Run, epoch: int, positions: Positions) -> Iterator[Group]:
        """The same positions."""
        yield Group(np.arange(len(positions)), self.parent, self.under(run), epoch, positions)

    def stretches(self) -> bool:
        """All is as it was."""
        return True

    def segments(self, run: Run, epoch: int, start: int) -> Iterator[Segment]:
        """One."""
        yield Segment(self.parent, epoch, start, None, 0)


def widest(found: Iterable[Reach]) -> Reach:
    """Of several passes, what holds for all."""
    spreads, strides = zip(*found, strict=True)
    return Reach(max(spreads), max(strides))


class Address(NamedTuple):
    """Where an element really comes from."""

    node: MapNode
    run: Run
    epoch: int
    number: int

    def get(self) -> Any:
        """The element."""
        return self.node.get(self.run, self.epoch, self.number)


def groups(node: MapNode, run: Run, epoch: int, positions: Positions) -> list[Group]:
    """Through all steps that only choose positions, down to those that make elements."""
    if not isinstance(node, IndexNode):
        return [Group(np.arange(len(positions)), node, run, epoch, positions)]
    found = []
    for near in node.down(run, epoch, positions):
        for far in groups(near.node, near.run, near.epoch, near.positions):
            found.append(far._replace(asked=near.asked[far.asked]))
    return found


def addresses(node: MapNode, run: Run, epoch: int, positions: Positions) -> list[Address]:
    """The same, element by element."""
    found: list[Address | None] = [None] * len(positions)
    for group in groups(node, run, epoch, positions):
        for where, index in zip(group.asked.tolist(), group.positions.tolist(), strict=True):
            found[where] = Address(group.node, group.run, group.epoch, index)
    return found  # type: ignore[return-value]


def leaves(node: Node, run: Run) -> list[tuple[Node, Run]]:
    """The steps that make the elements of a step which may only choose among them."""
    if not isinstance(node, IndexNode):
        return [(node, run)]
    run = node.under(run)
    return [leaf for part in node.parts() for leaf in leaves(part, run)]


class OneByOne(Cursor):
    """A pass by random access, in as many threads as the steps beneath ask for."""

    def __init__(self, node: MapNode, run: Run, epoch: int, start: int) -> None:
        self.place = start
        self._node, self._run, self._epoch = node, run, epoch
        self._length = node.length(run)
        self._next = start
        self._known: list[Callable[[], Any]] = []
        self._lazy = False
        self._width = width_of(calls_of(node), run.settings.threads)
        self._calls = InOrder(self._pull, _called, self._width)

    def _pull(self) -> tuple[Callable[[], Any], int]:
        if self._lazy and self._width.calls:  # those must come in order
            self._known = []
        if not self._known:
            stop = self._next + BLOCK if self._length is None else min(self._next + BLOCK, self._length)
            if stop <= self._next:
                raise StopIteration
            positions = np.arange(self._next, stop, dtype=np.int64)
            self._lazy = not self._width.calls
            if not self._lazy:  # each is made on its own, in any thread
                each = addresses(self._node, self._run, self._epoch, positions)
                self._known = [address.get for address in reversed(each)]
            else:
                self._known = self._node.lazily(self._run, self._epoch, positions)[::-1]
        make = self._known.pop()
        self._next += 1
        if self._length is None or self._next < self._length:
            self._node.expect_next(self._run, self._epoch, self._next)
        return make, self._next

    def __next__(self) -> Any:
        value, self.place = self._calls.next_good(self._run)
        return value

    def close(self, wait: bool = True) -> None:
        """End the threads."""
        self._calls.close(wait)


def _called(make: Callable[[], Any]) -> Any:
    return make()


def calls_of(node: Node) -> Any:
    """How many calls at once the steps of a pass by random access ask for: the most that any of them does."""
    asked = [calls_of(part) for part in node.parts() if isinstance(part, MapNode)]
    asked.append(getattr(node, "calls", None))
    return "auto" if "auto" in asked else max((calls for calls in asked if calls is not None), default=None)


class Stretches(Cursor):
    """A pass that goes through passes beneath, one stretch after the other."""

    def __init__(self, run: Run, segments: Iterator[Segment], start: int) -> None:
        self.place = start
        self._run = run
        self._segments = segments
        self._now: tuple[Segment, Cursor] | None = None

    def __next__(self) -> Any:
        while True:
            if self._now is None:
                segment = next(self._segments)
                self._now = segment, self._run.start(segment.node, segment.epoch, segment.start)
            segment, cursor = self._now
            if segment.stop is None or cursor.place < segment.stop:
                try:
                    value = next(cursor)
                except StopIteration:
                    pass
                else:
                    if segment.stop is None or cursor.place <= segment.stop:  # else all before it were left out
                        self.place = cursor.place + segment.shift
                        return value
            self.close()

    def close(self, wait: bool = True) -> None:
        """Close the pass beneath."""
        now, self._now = self._now, None
        if now is not None:
            now[1].close(wait)
