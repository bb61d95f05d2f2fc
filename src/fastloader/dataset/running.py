"""Chooses how a step is run, and says so."""

from __future__ import annotations

from collections.abc import Iterator

from fastloader.dataset.ahead import MapPrefetch
from fastloader.dataset.base import Cursor, IterNode, MapNode, Node, Place, Run, position
from fastloader.dataset.indexing import IndexNode, OneByOne
from fastloader.dataset.native import NativeCursor, native_plan
from fastloader.samplers import StateError


class Chooser:
    """The one engine: natively where it can, through what works ahead, else by random access or as elements come."""

    def begin(self, node: Node, run: Run, epoch: int, place: Place) -> Cursor:
        """A pass that goes on from ``place``."""
        if isinstance(node, IterNode):
            return node.cursor(run, epoch, place)
        assert isinstance(node, MapNode)
        start, length = position(place), node.length(run)
        if length is not None and start > length:
            raise StateError(f"the state is at element {start} of {node.label()}, which has {length}")
        plan = native_plan(node, run)
        if plan is not None:
            return NativeCursor(plan, epoch, start)
        return node.flow(run, epoch, start) if node.flows(run) else OneByOne(node, run, epoch, start)

    def works_ahead(self, node: Node, run: Run) -> bool:
        """Native passes do, and what goes through one."""
        return isinstance(node, MapNode) and (self.is_native(node, run) or node.flows(run))

    def is_native(self, node: Node, run: Run) -> bool:
        """Batches of samples that nothing has changed."""
        return native_plan(node, run) is not None


def new_run() -> Run:
    """A run of its own, with nothing set."""
    return Run(Chooser())


def explained(node: Node, run: Run) -> str:
    """What runs where, a line for each step, the last step first."""
    lines = list(_lines(node, run, 0, "stream"))
    width = max(len(left) for left, _ in lines)
    return "\n".join(f"{left:{width}}  {right}".rstrip() for left, right in lines)


def _lines(node: Node, run: Run, depth: int, how: str) -> Iterator[tuple[str, str]]:
    plan = native_plan(node, run) if how == "stream" else None
    where = node.where(run)
    below = how
    if plan is not None:
        where = f"native engine, {plan.threads} threads"
        below = "native"
    elif isinstance(node, MapPrefetch):
        where = where if how == "stream" else "no effect: what stands above asks by random access"
    elif isinstance(node, IndexNode) and not node.transparent:
        where = where or "index arithmetic"
    if plan is None and isinstance(node, MapNode) and not node.flows(run):
        below = "random"
    yield f"{'  ' * depth}{node.label()}", where
    beneath = node.under(run) if isinstance(node, IndexNode) else run
    for part in node.parts():
        yield from _lines(part, beneath, depth + 1, below)
