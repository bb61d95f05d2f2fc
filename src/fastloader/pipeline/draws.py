"""By which numbers the operations of a pipeline draw, and what they return of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastloader import kernels
from fastloader.ops import CustomOp, Drawn, Geometry, Named, Op, Size, Step
from fastloader.ops.drawn import SIZE, drawn_by, draws_by, needs_size

MAX_OPS = 1 << 16
"""Operations of one pipeline. They draw by numbers below, those on whole batches by numbers behind."""
FIRST_SHARED = 1 << 31
"""Names of draws have the numbers from here on."""


def number_of(name: str) -> int:
    """The number that operations of this name draw by."""
    return FIRST_SHARED + kernels.xxh64(name.encode()) % FIRST_SHARED


def first_number_of_view(view: int) -> int:
    """The number of the first operation of a view; the first view draws as a pipeline alone does."""
    return (view + 1) * MAX_OPS if view else 0


@dataclass(frozen=True, slots=True)
class Entry:
    """An operation of a pipeline without its names, the number it draws by, and its names."""

    op: Op
    number: int
    share: str | None = None
    returns: str | None = None

    def steps(self) -> Iterator[tuple[Step, bool]]:
        """Its native steps, and whether each tells numbers. Where sizes must agree, a step before it tells the size."""
        step = self.op.step()
        if step is not None:
            if self.compares_size:
                yield Step("tell_size"), True
            yield step, self.returns is not None

    @property
    def compares_size(self) -> bool:
        """Whether it draws the same as others of its name on images of one size alone."""
        step = self.op.step()
        return self.share is not None and step is not None and needs_size(step)

    @property
    def returned(self) -> str:
        """What it returns, in words."""
        return f"returns {self.returns!r}, {drawn_by(self.op.step())}"


def entry_of(op: Op, first_number: int, before: Sequence[Entry]) -> Entry:
    """An operation of a list; raises ``ValueError`` where it can't have the names it has.

    It draws by its place, counted from ``first_number``. What only looks has no place: others draw alike with it.
    """
    number = first_number + sum(not isinstance(entry.op, Geometry | Size) for entry in before)
    named = Named.of(op)
    inner, returns = named.op, named.returns
    step = inner.step()
    if isinstance(inner, Geometry | Size):
        if returns is not None:
            raise ValueError("has the name of its field already")
        returns = inner.returns
        for entry in before if isinstance(inner, Geometry) else ():
            if isinstance(entry.op, CustomOp):
                raise ValueError(f"can't tell how {entry.op} moves pixels: put it before that operation")
    if named.share is not None and draws_by(step) is None and not isinstance(inner, CustomOp):
        raise ValueError("draws nothing that could be shared")
    if returns is not None and drawn_by(step) is None:
        why = "is a function of yours, whose draws are not known" if isinstance(inner, CustomOp) else "draws nothing"
        raise ValueError(f"{why}: there is nothing to return")
    return Entry(inner, number if named.share is None else number_of(named.share), named.share, returns)


class Told(NamedTuple):
    """Numbers that a pipeline tells of each sample: from where on, and for whom."""

    at: int
    drawn: Drawn
    returns: str | None = None
    share: str | None = None


def told_of(entries: Iterable[Entry]) -> tuple[Told, ...]:
    """All that is told, in order."""
    found: list[Told] = []
    at = 0
    for entry in entries:
        if entry.compares_size:
            found.append(Told(at, SIZE, share=entry.share))
            at += SIZE.numbers
        drawn = drawn_by(entry.op.step()) if entry.returns is not None else None
        if drawn is not None:
            found.append(Told(at, drawn, returns=entry.returns))
            at += drawn.numbers
    return tuple(found)


class Sharer(NamedTuple):
    """An operation that shares its draws: by which name, of which field, and what they depend on."""

    name: str
    field: str
    op: Op
    key: tuple[Any, ...]


def sharers_of(field: str, entries: Iterable[Entry]) -> tuple[Sharer, ...]:
    """The operations of a field that share their draws."""
    return tuple(
        Sharer(entry.share, field, entry.op, draws_by(entry.op.step()) or ("custom",))
        for entry in entries
        if entry.share is not None
    )
