"""Batches from elements, and elements from batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fastloader.dataset.base import Cursor, IterNode, MapNode, Node, Over, Place, Reach, Run, Skipped, blamed, parted
from fastloader.dataset.indexing import Positions
from fastloader.dataset.padding import Padding, column, find_misfits, padded
from fastloader.dataset.rows import Rows, rows_of
from fastloader.dataset.settings import Settings
from fastloader.errors import FastLoaderError, ShapeError
from fastloader.loader.padding import PadSpec
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
    padding: Padding | None = None
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

    def padded_as(self, other: MapBatch) -> bool:
        """Whether rows are padded in the same way."""
        return self.padding is other.padding or (self.padding is not None and self.padding.same(other.padding))

    def reach(self, run: Run) -> Reach:
        """A batch is as many elements."""
        spread, stride = self.parent.reach(run)
        return Reach(spread, stride * self.size)

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
        if rows is not None and self.padding is None and rows.settings.on_error != "skip":
            try:
                return rows.reader.read_batch(rows.of(self.parent, run, epoch, positions), rows.fields)
            except FastLoaderError as error:
                raise rows.localise(error) from None
        elements: list[Any] = []
        bad: dict[int, Exception] = {}
        for row, make in enumerate(self.parent.lazily(run, epoch, positions)):
            try:
                elements.append(make())
            except Skipped as skipped:
                bad[row] = skipped.error
                elements.append(None)
        if rows is None:
            return put_together(self, run, index, elements, bad)
        return self._of_rows(run, rows, rows.of(self.parent, run, epoch, positions), elements, bad)

    def expect_next(self, run: Run, epoch: int, index: int) -> None:
        """The elements of that batch."""
        self.parent.expect(run, epoch, self.positions(run, index))

    def _of_rows(
        self, run: Run, rows: Rows, samples: Positions, elements: list[Any], bad: dict[int, Exception]
    ) -> dict[str, Any]:
        """A batch of samples that nothing has changed, as the engine makes it."""
        layouts = {} if self.padding is None else self.padding.layouts(rows.reader, rows.fields)
        left_out = set(bad)
        find_misfits(elements, layouts, bad)
        for row, error in bad.items():
            if isinstance(error, ShapeError) and error.sample is None:
                error.path, error.sample = str(rows.reader.path), int(samples[row])
                rows.localise(error)
        allow(bad, left_out, rows.settings)
        filling = without(bad, len(elements), run)
        names = rows.fields or rows.reader.field_names
        plain = rows.reader.read_batch(samples[filling], [name for name in names if name not in layouts])
        batch: dict[str, Any] = {}
        for name in names:
            if name in layouts:
                batch |= column(name, [elements[row][name] for row in filling], layouts[name], ())
            else:
                batch[name] = plain[name]
        return batch


def padding_of(node: Node, run: Run, make: Collate | None, spec: PadSpec | Mapping[str, PadSpec]) -> Padding | None:
    """How a batch over this step is padded, checked: against its fields where it is made natively."""
    if spec is None:
        return None
    if make is not None:
        raise ValueError(f"batch(pad={spec!r}): collate_fn makes the batch by itself; leave one out")
    padding = Padding(spec)
    rows = rows_of([(node, run)])
    if rows is not None:
        padding.layouts(rows.reader, rows.fields)
    else:
        padding.ways()
    return padding


def put_together(
    node: MapBatch | IterBatch, run: Run, number: int, elements: list[Any], bad: dict[int, Exception]
) -> Any:
    """A batch of elements, by Python; those that are ``bad`` give their place to the next good one."""
    make, ways = node.collate or collate, {}
    if node.padding is not None:
        ways = node.padding.ways()
        left_out = set(bad)
        find_misfits(elements, ways, bad)
        bad = {row: error if row in left_out else blamed("batch", number, error) for row, error in bad.items()}
        allow(bad, left_out, run.settings)
        make = partial(padded, ways=ways, collate=collate)
    return run.call("batch", number, make, [elements[row] for row in without(bad, len(elements), run)])


def allow(bad: dict[int, Exception], left_out: set[int], settings: Settings) -> None:
    """Raise the first that is no reason to leave a row out. Of those ``left_out`` beneath, settings there decided."""
    own = bad.keys() - left_out
    if own and settings.on_error != "skip":
        raise bad[min(own)]


def without(bad: dict[int, Exception], count: int, run: Run) -> list[int]:
    """Rows where each bad one has become the next good one, so that batches stay full and ranks in step."""
    good = [row for row in range(count) if row not in bad]
    if not good:
        raise bad[0]
    for reason in bad.values():
        run.stats.skip(reason)
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
    padding: Padding | None = None

    @property
    def in_step(self) -> bool:
        """So many come in for each."""
        return True

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
                batch = put_together(node, self._run, self._number - 1, elements, {})
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
