"""Chooses how a step is run, and says so."""

from __future__ import annotations

from dataclasses import dataclass

from fastloader.dataset.ahead import MapPrefetch
from fastloader.dataset.base import Cursor, IterNode, MapNode, Node, Place, Run, position
from fastloader.dataset.choosing import MapOptions
from fastloader.dataset.indexing import IndexNode, OneByOne
from fastloader.dataset.native import NativeCursor, native_plan
from fastloader.dataset.room import check_room
from fastloader.dataset.sources import FromReader
from fastloader.dataset.streaming import IterOptions
from fastloader.samplers import StateError


class Chooser:
    """The one engine: natively where it can, through what works ahead, else by random access or as elements come."""

    def begin(self, node: Node, run: Run, epoch: int, place: Place) -> Cursor:
        """A pass that goes on from ``place``."""
        check_room(node, run)
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


def may_be_native(node: Node) -> bool:
    """Whether there are samples of readers that a native engine could read, or may come to be."""
    return isinstance(node, FromReader) or node.opens or any(map(may_be_native, node.parts()))


def explained(node: Node, run: Run) -> str:
    """What runs where, a line for each step, the last step first."""
    lines = [(f"{'  ' * told.depth}{told.node.label()}", told.where) for told in _told(node, run)]
    width = max(len(left) for left, _ in lines)
    return "\n".join(f"{left:{width}}  {right}".rstrip() for left, right in lines)


def without_effect(node: Node) -> list[str]:
    """Settings of native engines where none runs."""
    return [told.node.label() for told in _told(node, new_run()) if told.idle] if _sets_native(node) else []


def _sets_native(node: Node) -> bool:
    return bool(isinstance(node, MapOptions | IterOptions) and node.settings.native()) or any(
        map(_sets_native, node.parts())
    )


@dataclass
class _Told:
    """A line of ``explain``, and whether the step only sets what nobody heeds."""

    node: Node
    depth: int
    where: str
    native: bool
    idle: bool = False


def _told(node: Node, run: Run, depth: int = 0, how: str = "stream") -> list[_Told]:
    plan = native_plan(node, run) if how == "stream" else None
    where = node.where(run)
    below = how
    if plan is not None:
        where = f"native engine, {plan.threads} threads"
        below = "native"
    elif how != "native" and isinstance(node, MapNode) and not node.flows(run):
        below = "stream" if node.streams else "random"
    if isinstance(node, MapPrefetch) and how != "stream":
        where = "no effect: what stands above asks by random access"
    elif plan is None and isinstance(node, IndexNode) and not node.transparent:
        where = where or "index arithmetic"
    mine = _Told(node, depth, where, how == "native" or plan is not None or node.opens)
    beneath = node.under(run) if isinstance(node, IndexNode | IterOptions) else run
    found = [told for part in node.parts() for told in _told(part, beneath, depth + 1, below)]
    if isinstance(node, MapOptions | IterOptions) and (unheard := node.settings.native()):
        mine.idle = not mine.native and not any(told.native for told in found)
        if mine.idle:
            mine.where = f"{', '.join(unheard)}: no effect, as no native engine runs here"
    return [mine, *found]
