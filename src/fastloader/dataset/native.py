"""Batches of samples that nothing has changed: the loader's engine makes them, and no Python runs for a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
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
from fastloader.samplers import DENSE, Description, Position

ENDLESS = 2**62
AHEAD = 2
"""Batches that are made ahead for each thread, unless ``prefetch`` says otherwise."""
SAMPLES_AT_ONCE = 4096
"""Samples that are looked up at once."""
MOST_PAGES = 64
"""A window of more pages is not kept in memory: its samples are read one by one."""


@dataclass(frozen=True, eq=False)
class NativePlan:
    """Which samples make up which element of a step: an order of batches, as the loader takes it."""

    node: MapNode
    run: Run
    rows: Rows
    batches: tuple[MapBatch, ...]
    ahead: int | None
    _known: dict[tuple[int, int], list[NDArray[np.int64]]] = field(default_factory=dict, init=False, repr=False)

    @property
    def threads(self) -> int:
        """Threads of the engine; with ``auto_tune``, the most."""
        settings = self.rows.settings
        own = None if settings.threading is None else settings.threading.private_threadpool_size
        return own or settings.threads or cores()

    @cached_property
    def batch_size(self) -> int:
        """Samples of the largest batches."""
        return max(batch.size for batch in self.batches)

    def num_batches(self, epoch: int) -> int:
        """Elements of a pass."""
        length = self.node.length(self.run)
        return ENDLESS if length is None else length

    def batch(self, epoch: int, number: int) -> NDArray[np.int64]:
        """The samples of one element. Those of its neighbours are looked up with them."""
        at_once = max(1, SAMPLES_AT_ONCE // self.batch_size)
        block, within = divmod(number, at_once)
        if (epoch, block) not in self._known:
            first = block * at_once
            stop = min(first + at_once, self.num_batches(epoch))
            found = self._batches(epoch, np.arange(first, stop, dtype=np.int64))
            self._known.clear()
            self._known[epoch, block] = found
        return self._known[epoch, block][within]

    def _batches(self, epoch: int, numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        found = [numbers] * len(numbers)
        for group in groups(self.node, self.run, epoch, numbers):
            node = group.node
            assert isinstance(node, MapBatch)
            positions = [node.positions(group.run, index) for index in group.positions.tolist()]
            samples = self.rows.of(node.parent, group.run, group.epoch, np.concatenate(positions))
            at = 0
            for where, part in zip(group.asked.tolist(), positions, strict=True):
                found[where] = samples[at : at + len(part)]
                at += len(part)
        return found

    def pages_at_once(self, ranks: int) -> int:
        """Those over which the samples are spread that come next, if these are few and most of what is on them."""
        spread, stride = self.node.reach(self.run)
        if ranks > 1 or stride > DENSE * self.batch_size:
            return 0
        if spread == 1:
            return 1
        dataset = self.rows.reader.dataset
        pages = sum(one.size for one in dataset.objects) / dataset.page_size
        found = spread * pages / max(1, dataset.num_samples) + 1  # it may begin within a page
        return ceil(found) if found <= MOST_PAGES else 0

    def describe(self, epoch: int | None = None) -> Description:
        """The state of the expression is checked, not the loader's."""
        return {"kind": "expression"}

    def loader(self) -> DataLoader:
        """A loader that makes the elements."""
        settings, padding = self.rows.settings, self.batches[0].padding
        ahead = AHEAD if self.ahead is None else -(-self.ahead // self.threads)
        loader = DataLoader(
            self.rows.reader, self.batch_size, num_workers=self.threads, sampler=self, fields=self.rows.fields,
            pad=None if padding is None else padding.spec, on_error=settings.on_error or "raise", rank=0, world_size=1,
            prefetch_factor=ahead, **settings.native(),
        )  # fmt: skip
        loader.stands_in = False  # as in batches made by Python
        return loader


def native_plan(node: Node, run: Run) -> NativePlan | None:
    """How the engine makes a step's elements; ``None`` where it can't.

    It can where they are batches, whole and padded alike, chosen by arithmetic, of samples of readers, chosen by
    arithmetic.
    """
    found = leaves(node, run)
    batches = tuple(one for one, _ in found if isinstance(one, MapBatch) and one.collate is None)
    if not isinstance(node, MapNode) or len(batches) < len(found):
        return None
    if not all(batches[0].padded_as(other) for other in batches):
        return None
    rows = rows_of([(batch.parent, under) for batch, (_, under) in zip(batches, found, strict=True)])
    ahead = max((under.settings.ahead or 0 for _, under in found), default=0)
    return None if rows is None else NativePlan(node, run, rows, batches, ahead or None)


class NativeCursor(Cursor):
    """A pass made by a loader of its own, which may have made an earlier pass over the step."""

    def __init__(self, plan: NativePlan, epoch: int, start: int) -> None:
        self.place = start
        self._plan, self._epoch = plan, epoch
        self._step = plan.node, plan.run.settings
        self._passing: tuple[DataLoader, Iterator[Any]] | None = None

    def __next__(self) -> Any:
        if self._passing is None:
            loader = self._plan.run.stats.loaders.take(self._step, self._plan.loader)
            loader.load_state_dict(Position.of(loader.plan, self._epoch, self.place).to_dict())
            self._passing = loader, iter(loader)
        try:
            batch = next(self._passing[1])
        except FastLoaderError as error:
            raise self._plan.rows.localise(error) from None
        self.place += 1
        return batch

    def close(self, wait: bool = True) -> None:
        """End the pass. Batches already given stay valid."""
        passing, self._passing = self._passing, None
        if passing is not None:
            loader, batches = passing
            batches.close()  # type: ignore[attr-defined]
            self._plan.run.stats.loaders.give_back(self._step, loader)
