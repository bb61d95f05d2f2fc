"""Several datasets as one: ``zip``, ``concat``, ``interleave``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastloader.dataset.base import Cursor, IterNode, MapNode, Node, Over, Place, Run, Skipped, name_of, parted
from fastloader.dataset.mapping import opened
from fastloader.samplers import StateError


@dataclass(frozen=True, eq=False)
class MapZip(MapNode):
    """Tuples of the elements at the same position, as many as the shortest has."""

    nodes: tuple[MapNode, ...]
    strict: bool

    def parts(self) -> tuple[MapNode, ...]:
        """All of them."""
        return self.nodes

    def label(self) -> str:
        """The name."""
        return "zip()"

    def endless(self) -> bool:
        """If all are."""
        return all(node.endless() for node in self.nodes)

    def length(self, run: Run) -> int | None:
        """That of the shortest."""
        lengths = [node.length(run) for node in self.nodes]
        if self.strict and len(set(lengths)) > 1:
            given = ", ".join("endless" if length is None else str(length) for length in lengths)
            raise ValueError(f"zip(strict=True): the lengths differ: {given}")
        return min((length for length in lengths if length is not None), default=None)

    def get(self, run: Run, epoch: int, index: int) -> Any:
        """One of each."""
        return tuple(node.get(run, epoch, index) for node in self.nodes)


class Several(Cursor):
    """A pass over several others."""

    def __init__(self, ups: list[Cursor]) -> None:
        self.ups = ups

    def close(self, wait: bool = True) -> None:
        """All of them."""
        for up in self.ups:
            up.close(wait)


@dataclass(frozen=True, eq=False)
class IterZip(IterNode):
    """Tuples of the elements that come together."""

    nodes: tuple[Node, ...]
    strict: bool

    def parts(self) -> tuple[Node, ...]:
        """All of them."""
        return self.nodes

    def label(self) -> str:
        """The name."""
        return "zip()"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """A place for each."""
        places = parted(place, (None,) * len(self.nodes))
        ups = [run.start(node, epoch, up) for node, up in zip(self.nodes, places, strict=True)]
        return Zipped(ups, place, self.strict)


class Zipped(Several):
    """Ends with the shortest."""

    def __init__(self, ups: list[Cursor], place: Place, strict: bool) -> None:
        super().__init__(ups)
        self.place = place
        self._strict = strict

    def __next__(self) -> Any:
        values = []
        for number, up in enumerate(self.ups):
            try:
                values.append(next(up))
            except StopIteration:
                if self._strict:
                    self._refuse(number)
                raise
        self.place = tuple(up.place for up in self.ups)
        return tuple(values)

    def _refuse(self, ended: int) -> None:
        """Raise unless all end here."""
        nothing = object()
        longer = [i for i, up in enumerate(self.ups) if i < ended or (i > ended and next(up, nothing) is not nothing)]
        if longer:
            raise ValueError(f"zip(strict=True): dataset {ended} has ended and dataset {longer[0]} has not")


@dataclass(frozen=True, eq=False)
class IterConcat(IterNode):
    """One behind the other."""

    nodes: tuple[Node, ...]

    def parts(self) -> tuple[Node, ...]:
        """All of them."""
        return self.nodes

    def label(self) -> str:
        """The name."""
        return "concat()"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """Which of them, and the place in it."""
        number, up = parted(place, (0, None))
        return Chained(self, run, epoch, number, up)


class Chained(Cursor):
    """One pass after the other."""

    def __init__(self, node: IterConcat, run: Run, epoch: int, number: int, up: Place) -> None:
        self._node, self._run, self._epoch = node, run, epoch
        self._number, self._resume = number, up
        self._up: Cursor | None = None
        self.place = (number, up)

    def __next__(self) -> Any:
        while self._number < len(self._node.nodes):
            if self._up is None:
                self._up = self._run.start(self._node.nodes[self._number], self._epoch, self._resume)
            try:
                value = next(self._up)
            except StopIteration:
                self._up.close()
                self._up = self._resume = None
                self._number += 1
            else:
                self.place = (self._number, self._up.place)
                return value
        raise StopIteration

    def close(self, wait: bool = True) -> None:
        """The pass under way."""
        if self._up is not None:
            self._up.close(wait)


def itself(node: Node) -> Node:
    """Datasets as they are."""
    return node


@dataclass(frozen=True, eq=False)
class Datasets(MapNode):
    """Datasets as elements."""

    nodes: tuple[Node, ...]

    def parts(self) -> tuple[Node, ...]:
        """All of them."""
        return self.nodes

    def label(self) -> str:
        """The name."""
        return "each()"

    def endless(self) -> bool:
        """There are so many."""
        return False

    def length(self, run: Run) -> int:
        """How many."""
        return len(self.nodes)

    def get(self, run: Run, epoch: int, index: int) -> Node:
        """One of them."""
        return self.nodes[index]


@dataclass(frozen=True, eq=False)
class Interleave(IterNode):
    """``cycle`` inner datasets open at a time, ``block`` elements of each in turn; the next follows one that ends."""

    parent: Node
    function: Callable[[Any], Any]
    cycle: int
    block: int

    def label(self) -> str:
        """Cycle and block."""
        return f"interleave({self.cycle}, {self.block})"

    @property
    def opens(self) -> bool:  # type: ignore[override]
        """With a function of the user's."""
        return self.function is not itself

    def where(self, run: Run) -> str:
        """What is called, and how many are open."""
        called = "" if self.function is itself else f"{name_of(self.function)}, "
        return f"{called}{self.cycle} open at a time, in the thread that asks"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """A place in the source, the turn, and for each inner dataset where its element began and the place in it."""
        return Interleaved(self, run, epoch, place)


class _Slot:
    """An inner dataset that is open."""

    def __init__(self, number: int, before: Place, inner: Cursor) -> None:
        self.number, self.before, self.inner = number, before, inner


class Interleaved(Over):
    """Inner passes in turn."""

    def __init__(self, node: Interleave, run: Run, epoch: int, place: Place) -> None:
        self._node, self._run, self._epoch = node, run, epoch
        self._number, up, self._turn, self._taken, slots = parted(place, (0, None, 0, 0, (None,) * node.cycle))
        if not isinstance(slots, tuple) or len(slots) != node.cycle or self._turn >= node.cycle:
            raise StateError(f"the state is damaged: {slots!r} where {node.cycle} open datasets are needed")
        super().__init__(run.start(node.parent, epoch, up))
        self.place = place
        self._slots = [None if slot is None else self._reopened(*parted(slot, (0, None, None))) for slot in slots]
        self._ended = False

    def _reopened(self, number: int, before: Place, inner: Place) -> _Slot:
        """An inner dataset as it was: its element is asked for again."""
        source = self._run.start(self._node.parent, self._epoch, before)
        try:
            return _Slot(number, before, self._inner(number, next(source), inner))
        finally:
            source.close()

    def _inner(self, number: int, element: Any, place: Place) -> Cursor:
        return opened(self._run, "interleave", self._node.function, self._epoch, number, element, place)

    def _open(self) -> _Slot | None:
        while not self._ended:
            before = self.up.place
            try:
                element = next(self.up)
            except StopIteration:
                self._ended = True
                break
            self._number += 1
            try:
                return _Slot(self._number - 1, before, self._inner(self._number - 1, element, None))
            except Skipped as skipped:
                self._run.stats.skip(skipped.error)
        return None

    def __next__(self) -> Any:
        idle = 0
        while idle < self._node.cycle:
            slot = self._slots[self._turn] = self._slots[self._turn] or self._open()
            if slot is None:
                idle += 1
                self._pass_on()
                continue
            idle = 0
            try:
                value = next(slot.inner)
            except StopIteration:
                self._end(slot)
            except Skipped as skipped:
                self._run.stats.skip(skipped.error)
                self._end(slot)
            else:
                self._taken += 1
                if self._taken == self._node.block:
                    self._pass_on()
                slots = tuple(s and (s.number, s.before, s.inner.place) for s in self._slots)
                self.place = (self._number, self.up.place, self._turn, self._taken, slots)
                return value
        raise StopIteration

    def _pass_on(self) -> None:
        self._turn = (self._turn + 1) % self._node.cycle
        self._taken = 0

    def _end(self, slot: _Slot) -> None:
        slot.inner.close()
        self._slots[self._turn] = None
        self._taken = 0

    def close(self, wait: bool = True) -> None:
        """The inner ones first."""
        for slot in self._slots:
            if slot is not None:
                slot.inner.close(wait)
        super().close(wait)
