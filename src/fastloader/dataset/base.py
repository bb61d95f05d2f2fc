"""What every step of an expression is: a frozen description that can begin a pass, and the pass itself.

A description that has a length and random access is a ``MapNode``: its element ``i`` of pass ``epoch`` depends on
nothing else. Any other is an ``IterNode``. Functions of the user's are called through ``Run.call`` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastloader.dataset.settings import Settings
from fastloader.dataset.stats import Stats
from fastloader.errors import ElementError, NotFoundError, StoreError, UnreadableError
from fastloader.samplers import StateError

Place: TypeAlias = Any
"""Where a pass stands: ``None`` at the start, else whole numbers and places of the passes beneath, as tuples."""

Parallel: TypeAlias = int | Literal["auto"] | None


class Skipped(Exception):
    """An element to be left out, because of ``error``."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Halted(Exception):
    """The pass was given up, so a function of the user's is not called any more."""


class Halt:
    """Whether a pass was given up. All its threads see it."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = False


class Engine(Protocol):
    """Chooses how a step is run, so that steps need not know each other."""

    def begin(self, node: Node, run: Run, epoch: int, place: Place) -> Cursor:
        """A pass that goes on from ``place``."""

    def works_ahead(self, node: Node, run: Run) -> bool:
        """Whether a pass over the step makes elements ahead, so that random access to it would be a loss."""

    def is_native(self, node: Node, run: Run) -> bool:
        """Whether the native engine makes the step's elements."""


@dataclass(frozen=True)
class Run:
    """What all steps of a pass share."""

    engine: Engine
    settings: Settings = field(default_factory=Settings)
    stats: Stats = field(default_factory=Stats)
    halt: Halt = field(default_factory=Halt)
    any_world: bool = False
    """Whether signatures leave open into how many shards the last ``shard`` deals, and which of them this is."""

    def under(self, settings: Settings) -> Run:
        """The same, with settings that hold for what lies beneath."""
        return replace(self, settings=self.settings.over(settings))

    def halted(self) -> Run:
        """Give up what is under way: its threads begin no more calls. What comes back is for another pass."""
        self.halt.now = True
        return replace(self, halt=Halt())

    def start(self, node: Node, epoch: int, place: Place = None) -> Cursor:
        """Begin a pass over a step beneath."""
        return self.engine.begin(node, self, epoch, place)

    def works_ahead(self, node: Node) -> bool:
        """Whether a pass over a step beneath makes elements ahead."""
        return self.engine.works_ahead(node, self)

    def bad(self, error: Exception) -> Exception:
        """What to raise for an element that can't be had: the error, or that it is to be left out.

        What a store or a file has and does not give is never left out: the next time it might be there.
        """
        refused = isinstance(error, StoreError | UnreadableError) and not isinstance(error, NotFoundError)
        return Skipped(error) if self.settings.on_error == "skip" and not refused else error

    def call(self, step: str, number: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the user's for the ``number``-th element of a step."""
        if self.halt.now:
            raise Halted(step)
        try:
            return function(*arguments)
        except MemoryError:
            raise
        except Exception as error:  # StopIteration too: it would end the pass as if nothing were missing
            raise self.bad(blamed(step, number, error)) from error


def blamed(step: str, number: int, error: BaseException) -> ElementError:
    """The error of a step's function or source, with the element it came with."""
    wrapped = ElementError(f"{type(error).__name__}: {error}", step=step, element=number)
    wrapped.__cause__ = error
    return wrapped


class Reach(NamedTuple):
    """How a pass goes through the elements of the steps beneath.

    ``spread`` neighbours there are what comes next at any time: 1 where they come one after the other, infinity where
    each may be anywhere. One in ``stride`` of them comes at all.
    """

    spread: float = 1
    stride: float = 1


class Cursor(ABC):
    """A pass being run. ``place`` is where it stands: behind the element that was given last.

    It is set in one step, when an element is ready, so an interrupted pass still knows its place.
    """

    place: Place = None

    def __iter__(self) -> Cursor:
        return self

    @abstractmethod
    def __next__(self) -> Any:
        """The next element."""

    def close(self, wait: bool = True) -> None:  # noqa: B027  most have nothing to let go of
        """End threads and let go of files; with ``wait``, be sure of it."""


class Over(Cursor):
    """A pass over one other."""

    def __init__(self, up: Cursor) -> None:
        self.up = up

    def close(self, wait: bool = True) -> None:
        """Close the one beneath."""
        self.up.close(wait)


class Node(ABC):
    """A step of an expression. Subclasses are frozen dataclasses."""

    transparent: ClassVar[bool] = False
    """Whether positions are those of the step beneath, so that the step may come and go between two runs."""
    opens: ClassVar[bool] = False
    """Whether it may bring in datasets that are not known beforehand."""

    @property
    def in_step(self) -> bool:
        """Whether elements given tell how many came in: so passes over different shards keep in step."""
        return False

    def parts(self) -> tuple[Node, ...]:
        """The steps it draws from."""
        parent = getattr(self, "parent", None)
        return () if parent is None else (parent,)

    @abstractmethod
    def label(self) -> str:
        """The step as it was written, without functions and what may change between two runs."""

    def where(self, run: Run) -> str:
        """In which thread it runs, for ``explain``."""
        return ""

    def signature(self, run: Run) -> str:
        """What must agree for a place to mean the same."""
        beneath = [part.signature(run) for part in self.parts()]
        if self.transparent:
            return beneath[0]
        source = beneath[0] if len(beneath) == 1 else f"[{', '.join(beneath)}]" if beneath else ""
        return f"{source}.{self.label()}" if source else self.label()

    def origin(self, run: Run) -> str:
        """What tells the bytes behind it from others that may be there another day, though the signature is the same.

        Nothing is known of what objects and functions of the user's give.
        """
        return " ".join(filter(None, (part.origin(run) for part in self.parts())))


class IterNode(Node):
    """A step whose elements come one after the other."""

    @abstractmethod
    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """A pass that goes on from ``place``."""


class MapNode(Node):
    """A step with random access. Its place is the number of the next element."""

    calls: ClassVar[Parallel] = None
    """How many threads its own work should be spread over."""
    streams: ClassVar[bool] = False
    """Whether it makes passes over what is beneath, though others ask it by random access."""

    @abstractmethod
    def length(self, run: Run) -> int | None:
        """Elements of a pass, the same in each; ``None``: endless."""

    @abstractmethod
    def get(self, run: Run, epoch: int, index: int) -> Any:
        """One element, or ``Skipped``."""

    def lazily(self, run: Run, epoch: int, positions: NDArray[np.int64]) -> list[Callable[[], Any]]:
        """Functions that make these elements, to be called in order and once: one may work for those behind it too."""
        return [partial(self.get, run, epoch, index) for index in positions.tolist()]

    def expect(self, run: Run, epoch: int, positions: NDArray[np.int64]) -> None:
        """These come after those that are asked for next: what takes long to come may be asked for."""

    def expect_next(self, run: Run, epoch: int, index: int) -> None:
        """The same of one element, where it is made of many."""

    def endless(self) -> bool:
        """Whether there is no length, told without running anything."""
        return any(part.endless() for part in self.parts() if isinstance(part, MapNode))

    def epochal(self) -> bool:
        """Whether passes differ."""
        return any(part.epochal() for part in self.parts() if isinstance(part, MapNode))

    def reach(self, run: Run) -> Reach:
        """How a pass goes through what this is made of: here, the step's own elements."""
        return Reach()

    def flows(self, run: Run) -> bool:
        """Whether a pass goes through the pass of the step beneath, rather than getting elements one by one."""
        return False

    def flow(self, run: Run, epoch: int, start: int) -> Cursor:
        """Such a pass."""
        raise NotImplementedError(f"{type(self).__name__} does not flow")


def parted(place: Place, start: tuple[Any, ...]) -> tuple[Any, ...]:
    """The parts of a place, or ``start`` where there is none. Where ``start`` has a number, so must the place."""
    if place is None:
        return start
    if (
        not isinstance(place, tuple)
        or len(place) != len(start)
        or not all(is_number(part) for part, first in zip(place, start, strict=True) if isinstance(first, int))
    ):
        raise StateError(f"the state is damaged: {place!r} where {len(start)} parts like {start!r} are needed")
    return place


def position(place: Place) -> int:
    """A place in something with random access."""
    if place is None:
        return 0
    if not is_number(place):
        raise StateError(f"the state is damaged: {place!r} where a position is needed")
    return int(place)


def is_number(value: object) -> bool:
    """Whether this is a whole number from 0 up."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def name_of(function: object) -> str:
    """What people call a function."""
    return getattr(function, "__name__", None) or type(function).__name__


def parallel(name: str, value: Any) -> Parallel:
    """A number of threads, checked."""
    if value is None or value == "auto":
        return value  # type: ignore[no-any-return]
    if not is_number(value) or value < 1:
        raise ValueError(f"{name}={value!r}: a whole number from 1 up, 'auto' or None")
    return int(value)


def callable_of(step: str, function: Any) -> Any:
    """A function, checked."""
    if not callable(function):
        raise TypeError(f"{step}({function!r}): a function is needed, not a {type(function).__name__}")
    return function
