"""``prefetch``: elements made ahead in a thread of its own, or by the native engine where that makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastloader.dataset.base import Cursor, IterNode, MapNode, Node, Place, Run
from fastloader.dataset.indexing import SameNode
from fastloader.dataset.settings import Settings
from fastloader.dataset.threads import AUTO_AHEAD, Ahead

Depth = int | Literal["auto"]


def _where(depth: Depth) -> str:
    return f"a Python thread of its own, up to {AUTO_AHEAD[1] if depth == 'auto' else depth} elements ahead"


@dataclass(frozen=True, eq=False)
class MapPrefetch(SameNode):
    """The same elements at the same positions; a pass over them is run ahead."""

    parent: MapNode
    depth: Depth

    def label(self) -> str:
        """How far ahead."""
        return f"prefetch({self.depth})"

    def where(self, run: Run) -> str:
        """In a thread, or natively."""
        if run.engine.is_native(self.parent, run):
            return "the native engine's own read-ahead" + ("" if self.depth == "auto" else f": {self.depth} batches")
        return _where(self.depth)

    def length(self, run: Run) -> int | None:
        """As many as before."""
        return self.parent.length(run)

    def under(self, run: Run) -> Run:
        """The native engine is told how far to go ahead."""
        return run if self.depth == "auto" else run.under(Settings(ahead=self.depth))

    def flows(self, run: Run) -> bool:
        """Always."""
        return True

    def flow(self, run: Run, epoch: int, start: int) -> Cursor:
        """In a thread."""
        return Ahead(run.start(self.parent, epoch, start), self.depth)


@dataclass(frozen=True, eq=False)
class IterPrefetch(IterNode):
    """The same elements, made ahead."""

    transparent = True
    parent: Node
    depth: Depth

    @property
    def in_step(self) -> bool:
        """One for one."""
        return True

    def label(self) -> str:
        """How far ahead."""
        return f"prefetch({self.depth})"

    def where(self, run: Run) -> str:
        """In a thread."""
        return _where(self.depth)

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """The places are those beneath: what counts is what was given."""
        return Ahead(run.start(self.parent, epoch, place), self.depth)
