"""Batches from elements, and elements from batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastloader.dataset.base import Cursor, IterNode, MapNode, Node, Over, Place, Run, Settings, Skipped, parted
from fastloader.dataset.indexing import addresses
from fastloader.dataset.rows import Rows, rows_of
from fastloader.errors import FastLoaderError
from fastloader.types import stack

Collate = Callable[[list[Any]], Any]


def collate(elements: list[Any]) -> Any:
    """A batch of elements: dictionaries and tuples by their parts, numbers and equal shapes as arrays, else a list."""
    first = elements[0]
    if isinstance(first, Mapping):
        for number, element in enumerate(elements):
            if not isinstance(element, Mapping) or element.keys() != first.keys():
                keys = list(element) if isinstance(element, Mapping) else f"a {type(element).__name__}"
                raise ValueError(f"row {number} of the batch has {keys} where row 0 has {list(first)}")
        return {key: collate([element[key] for element in elements]) for key in first}
    if isinstance(first, tuple):
        for number, element in enumerate(elements):
            if not isinstance(element, tuple) or len(element) != len(first):
                parts = f"{len(element)} parts" if isinstance(element, tuple) else f"a {type(element).__name__}"
                raise ValueError(f"row {number} of the batch has {parts} where row 0 has {len(first)} parts")
        columns = [collate(list(column)) for column in zip(*elements, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
    return stack(elements)


@dataclass(frozen=True, eq=False)
class MapBatch(MapNode):
    """Runs of ``size`` elements. Over samples of readers that nothing has changed, batches are read natively."""

    parent: MapNode
    size: int
    drop_last: bool
    collate: Collate | None
    _known: dict[Settings, Rows | None] = field(default_factory=dict, init=False, repr=False)

    def label(self) -> str:
        """The size, and whether the last may be short."""
        return batch_label(self.size, self.drop_last)

    def where(self, run: Run) -> str:
        """Natively, if it can be."""
        return "native reads" if self.rows(run) else ""

    def length(self, run: Run) -> int | None:
        """Batches."""
        length = self.parent.length(run)
        if length is None:
            return None
        return length // self.size if self.drop_last else -(-length // self.size)

    def rows(self, run: Run) -> Rows | None:
        """The readers whose samples these are batches of; ``None`` where batches are made by Python."""
        if self.collate is not None:
            return None
        if run.settings not in self._known:
            self._known[run.settings] = rows_of([(self.parent, run)])
        return self._known[run.settings]

    def positions(self, run: Run, index: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The positions of a batch's elements in the step beneath."""
        length = self.parent.length(run)
        stop = (index + 1) * self.size
        return np.arange(index * self.size, stop if length is None else min(stop, length), dtype=np.int64)

    def get(self, run: Run, epoch: int, index: int) -> Any:
        """One batch."""
        positions = self.positions(run, index)
        rows = self.rows(run)
        if rows is not None and rows.settings.on_error != "skip":
            try:
                return rows.reader.read_batch(rows.of(self.parent, run, epoch, positions), rows.fields)
            except FastLoaderError as error:
                raise rows.localise(error) from None
        elements: list[Any] = []
        bad: dict[int, Exception] = {}
        for row, address in enumerate(addresses(self.parent, run, epoch, positions)):
            try:
                elements.append(address.get())
            except Skipped as skipped:
                bad[row] = skipped.error
                elements.append(None)
        filling = filled(len(elements), bad)
        for reason in bad.values():
            run.stats.skip(reason)
        if rows is not None:
            samples = rows.of(self.parent, run, epoch, positions)
            return rows.reader.read_batch(samples[filling], rows.fields)
        return run.call("batch", index, self.collate or collate, [elements[row] for row in filling])


def filled(count: int, bad: dict[int, Exception]) -> list[int]:
    """Rows where each bad one has become the next good one, so that batches stay full and ranks in step."""
    good = [row for row in range(count) if row not in bad]
    if not good:
        raise bad[0]
    where = np.searchsorted(good, np.arange(count)) % len(good)
    return [good[i] for i in where.tolist()]


def batch_label(size: int, drop_last: bool) -> str:
    """As it was written."""
    return f"batch({size}{', drop_last' if drop_last else ''})"


@dataclass(frozen=True, eq=False)
class IterBatch(IterNode):
    """Runs of ``size`` elements as they come."""

    parent: Node
    size: int
    drop_last: bool
    collate: Collate | None

    def label(self) -> str:
        """The size, and whether the last may be short."""
        return batch_label(self.size, self.drop_last)

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """A place is behind the last element of a batch."""
        number, up = parted(place, (0, None))
        return Batched(self, run, run.start(self.parent, epoch, up), number)


class Batched(Over):
    """Gathers elements into batches."""

    def __init__(self, node: IterBatch, run: Run, up: Cursor, number: int) -> None:
        super().__init__(up)
        self._node, self._run, self._number = node, run, number
        self.place = (number, up.place)

    def __next__(self) -> Any:
        node = self._node
        while True:
            elements: list[Any] = []
            while len(elements) < node.size:
                try:
                    elements.append(next(self.up))
                except StopIteration:
                    break
            if not elements or (node.drop_last and len(elements) < node.size):
                raise StopIteration
            self._number += 1
            try:
                batch = self._run.call("batch", self._number - 1, node.collate or collate, elements)
            except Skipped as skipped:
                self._run.stats.skip(skipped.error)
                continue
            self.place = (self._number, self.up.place)
            return batch


def split(batch: Any) -> Iterator[Any]:
    """The rows of a batch: what ``collate`` was given."""
    count = _rows(batch)
    return (_row(batch, i) for i in range(count))


def _rows(batch: Any) -> int:
    if isinstance(batch, Mapping | tuple):
        columns = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
        counts = {_rows(column) for column in columns}
        if len(counts) != 1:
            raise ValueError(f"columns of {sorted(counts) or 'no'} rows: a batch has as many in each")
        return counts.pop()
    if isinstance(batch, str | bytes) or not hasattr(batch, "__len__") or not hasattr(batch, "__getitem__"):
        raise TypeError(
            f"a {type(batch).__name__} is no batch: a dictionary or tuple of columns, an array or a list is"
        )
    return len(batch)


def _row(batch: Any, i: int) -> Any:
    if isinstance(batch, Mapping):
        return {key: _row(column, i) for key, column in batch.items()}
    if isinstance(batch, tuple):
        rows = [_row(column, i) for column in batch]
        return type(batch)(*rows) if hasattr(batch, "_fields") else tuple(rows)
    if isinstance(batch, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(batch)[i]
        if missing.size and missing.all():
            return None
        return batch[i] if missing.any() else batch.data[i]
    return batch[i]
