"""Batches of samples that nothing has changed: the loader's engine makes them, and no Python runs for a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.dataset.base import Cursor, MapNode, Node, Run
from fastloader.dataset.batching import MapBatch
from fastloader.dataset.indexing import groups, leaves
from fastloader.dataset.rows import Rows, rows_of
from fastloader.dataset.threads import cores
from fastloader.errors import FastLoaderError
from fastloader.loader import DataLoader
from fastloader.samplers import Description, Position

ENDLESS = 2**62
AHEAD = 2
"""Batches that are made ahead for each thread, unless ``prefetch`` says otherwise."""


@dataclass(frozen=True, eq=False)
class NativePlan:
    """Which samples make up which element of a step: an order of batches, as the loader takes it."""

    node: MapNode
    run: Run
    rows: Rows
    ahead: int | None

    @property
    def threads(self) -> int:
        """Threads of the engine."""
        return self.rows.settings.threads or cores()

    def num_batches(self, epoch: int) -> int:
        """Elements of a pass."""
        length = self.node.length(self.run)
        return ENDLESS if length is None else length

    def batch(self, epoch: int, number: int) -> NDArray[np.int64]:
        """The samples of one element."""
        (group,) = groups(self.node, self.run, epoch, np.array([number], np.int64))
        assert isinstance(group.node, MapBatch)
        positions = group.node.positions(group.run, int(group.positions[0]))
        return self.rows.of(group.node.parent, group.run, group.epoch, positions)

    def describe(self, epoch: int | None = None) -> Description:
        """The state of the expression is checked, not the loader's."""
        return {"kind": "expression"}


def native_plan(node: Node, run: Run) -> NativePlan | None:
    """How the engine makes a step's elements; ``None`` where it can't.

    It can where they are batches, whole, chosen by arithmetic, of samples of readers, chosen by arithmetic.
    """
    batches = leaves(node, run)
    if not isinstance(node, MapNode) or any(not isinstance(one, MapBatch) or one.collate for one, _ in batches):
        return None
    rows = rows_of([(one.parent, under) for one, under in batches])  # type: ignore[attr-defined]
    ahead = max((under.settings.ahead or 0 for _, under in batches), default=0)
    return None if rows is None else NativePlan(node, run, rows, ahead or None)


class NativeCursor(Cursor):
    """A pass made by a loader of its own."""

    def __init__(self, plan: NativePlan, epoch: int, start: int) -> None:
        self.place = start
        self._plan = plan
        settings, threads = plan.rows.settings, plan.threads
        ahead = AHEAD if plan.ahead is None else -(-plan.ahead // threads)
        self._loader = DataLoader(
            plan.rows.reader, num_workers=threads, sampler=plan, fields=plan.rows.fields,
            on_error=settings.on_error or "raise", rank=0, world_size=1, prefetch_factor=ahead,
        )  # fmt: skip
        self._loader.load_state_dict(Position.of(self._loader.plan, epoch, start).to_dict())
        self._batches: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = iter(self._loader)
            self._plan.run.stats.loaders.append(self._loader.stats)
        try:
            batch = next(self._batches)
        except FastLoaderError as error:
            raise self._plan.rows.localise(error) from None
        self.place += 1
        return batch

    def close(self, wait: bool = True) -> None:
        """End the engine. Batches already given stay valid."""
        batches, self._batches = self._batches, None
        if batches is not None:
            self._plan.run.stats.settle(self._loader.stats)
            batches.close()  # type: ignore[attr-defined]
        self._loader.close()
