"""Steps that call a function for each element: ``map``, ``filter`` as elements come, ``flat_map``, ``enumerate``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.dataset.base import (
    Cursor,
    IterNode,
    MapNode,
    Node,
    Over,
    Parallel,
    Place,
    Run,
    Skipped,
    blamed,
    name_of,
    parted,
    position,
)
from fastloader.dataset.sources import Gone
from fastloader.dataset.threads import InOrder, width_of
from fastloader.samplers.hashing import Stream, fold


@dataclass(frozen=True)
class Call:
    """A function of one element. With ``seed`` it also gets a generator keyed by seed, epoch and element number."""

    function: Callable[..., Any]
    seed: int | None
    calls: Parallel

    @property
    def step(self) -> str:
        """What errors call it."""
        return f"map({name_of(self.function)})"

    def __call__(self, run: Run, epoch: int, number: int, element: Any) -> Any:
        """What the function makes of an element."""
        if self.seed is None:
            return run.call(self.step, number, self.function, element)
        key = fold(self.seed, Stream.CALL, epoch) | number << 64
        return run.call(self.step, number, self.function, element, np.random.Generator(np.random.Philox(key=key)))

    def label(self) -> str:
        """The seed alone: functions have no name that lasts."""
        return "map()" if self.seed is None else f"map(seed={self.seed})"

    def where(self, settings_threads: int | None) -> str:
        """Which threads."""
        if self.calls is None:
            return "the thread that asks"
        if self.calls == "auto":
            return f"up to {width_of('auto', settings_threads).most} Python threads, as many as help"  # type: ignore[union-attr]
        return f"{self.calls} Python thread{'s' if self.calls > 1 else ''}"


@dataclass(frozen=True, eq=False)
class MapMap(MapNode):
    """A function of each element, called when the element is asked for."""

    parent: MapNode
    call: Call

    @property
    def calls(self) -> Parallel:  # type: ignore[override]
        """As many as were asked for."""
        return self.call.calls

    def label(self) -> str:
        """Without the function."""
        return self.call.label()

    def where(self, run: Run) -> str:
        """The threads, and the function's name."""
        return f"{name_of(self.call.function)}, in {self.call.where(run.settings.threads)}"

    def epochal(self) -> bool:
        """With a seed, each pass draws anew."""
        return self.call.seed is not None or super().epochal()

    def length(self, run: Run) -> int | None:
        """As many as before."""
        return self.parent.length(run)

    def get(self, run: Run, epoch: int, index: int) -> Any:
        """The function of one element."""
        return self.call(run, epoch, index, self.parent.get(run, epoch, index))

    def lazily(self, run: Run, epoch: int, positions: NDArray[np.int64]) -> list[Callable[[], Any]]:
        """The function of each."""
        return [
            partial(self._of, run, epoch, index, make)
            for index, make in zip(positions.tolist(), self.parent.lazily(run, epoch, positions), strict=True)
        ]

    def expect(self, run: Run, epoch: int, positions: NDArray[np.int64]) -> None:
        """Tell the step beneath."""
        self.parent.expect(run, epoch, positions)

    def _of(self, run: Run, epoch: int, index: int, make: Callable[[], Any]) -> Any:
        return self.call(run, epoch, index, make())

    def flows(self, run: Run) -> bool:
        """Where elements are made ahead."""
        return run.works_ahead(self.parent)

    def flow(self, run: Run, epoch: int, start: int) -> Cursor:
        """A function of what was made ahead; elements are counted by their position."""
        return Mapped(run, run.start(self.parent, epoch, start), self.call, epoch, None)


@dataclass(frozen=True, eq=False)
class IterMap(IterNode):
    """A function of each element as it comes."""

    parent: Node
    call: Call

    @property
    def in_step(self) -> bool:
        """One for one."""
        return True

    def label(self) -> str:
        """Without the function."""
        return self.call.label()

    def where(self, run: Run) -> str:
        """The threads, and the function's name."""
        return f"{name_of(self.call.function)}, in {self.call.where(run.settings.threads)}"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """Counts the elements, for errors and seeds."""
        number, up = parted(place, (0, None))
        return Mapped(run, run.start(self.parent, epoch, up), self.call, epoch, number)


class Mapped(Over):
    """A function of each element of a pass. Without ``number`` the pass beneath has positions, and these count."""

    def __init__(self, run: Run, up: Cursor, call: Call, epoch: int, number: int | None) -> None:
        super().__init__(up)
        self.place = up.place if number is None else (number, up.place)
        self._run = run
        self._number = number
        width = width_of(call.calls, run.settings.threads)
        self._calls = InOrder(self._pull, lambda one: call(run, epoch, *one), width)

    def _pull(self) -> tuple[tuple[int, Any], Place]:
        element = next(self.up)
        if self._number is None:
            return (self.up.place - 1, element), self.up.place
        self._number += 1
        return (self._number - 1, element), (self._number, self.up.place)

    def __next__(self) -> Any:
        value, self.place = self._calls.next_good(self._run)
        return value

    def close(self, wait: bool = True) -> None:
        """End the threads, then what is beneath."""
        self._calls.close(wait)
        super().close(wait)


@dataclass(frozen=True, eq=False)
class IterFilter(IterNode):
    """The elements a function says yes to, as they come."""

    parent: Node
    function: Callable[[Any], Any]

    def label(self) -> str:
        """Without the function."""
        return "filter()"

    def where(self, run: Run) -> str:
        """The function's name."""
        return f"{name_of(self.function)}, as elements come, in the thread that asks"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """Counts what comes in, for errors."""
        number, up = parted(place, (0, None))
        return Filtered(run, run.start(self.parent, epoch, up), self.function, number)


class Filtered(Over):
    """What a function says yes to."""

    def __init__(self, run: Run, up: Cursor, function: Callable[[Any], Any], number: int) -> None:
        super().__init__(up)
        self._run, self._function, self._number = run, function, number
        self.place = (number, up.place)

    def __next__(self) -> Any:
        while True:
            element = next(self.up)
            self._number += 1
            try:
                wanted = self._run.call(f"filter({name_of(self._function)})", self._number - 1, self._wanted, element)
            except Skipped as skipped:
                self._run.stats.skip(skipped.error)
                continue
            if wanted:
                self.place = (self._number, self.up.place)
                return element

    def _wanted(self, element: Any) -> bool:
        return bool(self._function(element))  # within the call: an array of several truth values has none


@dataclass(frozen=True, eq=False)
class FlatMap(IterNode):
    """All elements of what a function makes of each: a dataset, or anything that can be iterated over."""

    parent: Node
    function: Callable[[Any], Any]
    name: str = "flat_map"

    @property
    def opens(self) -> bool:  # type: ignore[override]
        """What the function makes may be datasets."""
        return self.name != "unbatch"

    def label(self) -> str:
        """Without the function."""
        return f"{self.name}()"

    def where(self, run: Run) -> str:
        """The function's name."""
        return (
            "the thread that asks" if self.name == "unbatch" else f"{name_of(self.function)}, in the thread that asks"
        )

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """The place holds where the element began that is being gone through, and the place in it."""
        number, before, inner = parted(place, (0, None, None))
        return Flattened(self, run, run.start(self.parent, epoch, before), epoch, number, inner)


class Flattened(Over):
    """One inner pass after the other."""

    def __init__(self, node: FlatMap, run: Run, up: Cursor, epoch: int, number: int, inner: Place) -> None:
        super().__init__(up)
        self._node, self._run, self._epoch = node, run, epoch
        self._number = number
        self._before = up.place
        self._resume = inner
        self._inner: Cursor | None = None
        self.place = (number, up.place, inner)

    def __next__(self) -> Any:
        while True:
            if self._inner is None:
                element = next(self.up)
                try:
                    self._inner = opened(
                        self._run,
                        self._node.name,
                        self._node.function,
                        self._epoch,
                        self._number,
                        element,
                        self._resume,
                    )
                except Skipped as skipped:
                    self._advance(skipped)
                    continue
            try:
                value = next(self._inner)
            except StopIteration:
                self._advance()
            except Skipped as skipped:
                self._advance(skipped)
            else:
                self.place = (self._number, self._before, self._inner.place)
                return value

    def _advance(self, skipped: Skipped | None = None) -> None:
        if skipped is not None:
            self._run.stats.skip(skipped.error)
        if self._inner is not None:
            self._inner.close()
        self._inner = self._resume = None
        self._number += 1
        self._before = self.up.place

    def close(self, wait: bool = True) -> None:
        """The inner one first."""
        if self._inner is not None:
            self._inner.close(wait)
        super().close(wait)


def opened(
    run: Run, name: str, function: Callable[[Any], Any], epoch: int, number: int, element: Any, place: Place
) -> Cursor:
    """A pass over what a function makes of an element."""
    step = f"{name}({name_of(function)})"
    found = run.call(step, number, function, element)
    node = node_within(found)
    if node is not None:
        return run.start(node, epoch, place)
    if not hasattr(found, "__iter__"):
        wrong = TypeError(f"gave a {type(found).__name__}; a dataset or something to iterate over is needed")
        raise run.bad(blamed(step, number, wrong))
    return Gone(lambda: found, position(place), lambda _, error: run.bad(blamed(step, number, error)))


def node_within(value: Any) -> Node | None:
    """The expression of a dataset; ``None`` for anything else."""
    if isinstance(value, Node):
        return value
    found = getattr(value, "node", None)
    return found if isinstance(found, Node) else None


@dataclass(frozen=True, eq=False)
class MapEnumerate(MapNode):
    """Each element with its position."""

    parent: MapNode
    start: int

    def label(self) -> str:
        """From where."""
        return f"enumerate({self.start})"

    def length(self, run: Run) -> int | None:
        """As many as before."""
        return self.parent.length(run)

    def get(self, run: Run, epoch: int, index: int) -> Any:
        """Number and element."""
        return self.start + index, self.parent.get(run, epoch, index)

    def lazily(self, run: Run, epoch: int, positions: NDArray[np.int64]) -> list[Callable[[], Any]]:
        """The number with each."""
        return [
            partial(self._with, index, make)
            for index, make in zip(positions.tolist(), self.parent.lazily(run, epoch, positions), strict=True)
        ]

    def expect(self, run: Run, epoch: int, positions: NDArray[np.int64]) -> None:
        """Tell the step beneath."""
        self.parent.expect(run, epoch, positions)

    def _with(self, index: int, make: Callable[[], Any]) -> Any:
        return self.start + index, make()

    def flows(self, run: Run) -> bool:
        """Where elements are made ahead."""
        return run.works_ahead(self.parent)

    def flow(self, run: Run, epoch: int, start: int) -> Cursor:
        """Numbers for what was made ahead."""
        return Numbered(run.start(self.parent, epoch, start), self.start, None)


@dataclass(frozen=True, eq=False)
class IterEnumerate(IterNode):
    """Each element with the number of elements before it."""

    parent: Node
    start: int

    @property
    def in_step(self) -> bool:
        """One for one."""
        return True

    def label(self) -> str:
        """From where."""
        return f"enumerate({self.start})"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """The place holds the number."""
        number, up = parted(place, (0, None))
        return Numbered(run.start(self.parent, epoch, up), self.start, number)


class Numbered(Over):
    """Elements with numbers. Without ``number`` the pass beneath has positions, and these count."""

    def __init__(self, up: Cursor, start: int, number: int | None) -> None:
        super().__init__(up)
        self._start, self._number = start, number
        self.place = up.place if number is None else (number, up.place)

    def __next__(self) -> Any:
        element = next(self.up)
        if self._number is None:
            self.place = self.up.place
            return self._start + self.place - 1, element
        number = self._number
        self._number += 1
        self.place = (self._number, self.up.place)
        return self._start + number, element
