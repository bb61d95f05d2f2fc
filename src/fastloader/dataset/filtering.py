"""``filter``; where it can be resolved ahead, the positions of what it keeps are found once, and there is a length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.dataset.base import MapNode, Node, Reach, Run, Skipped, blamed, name_of
from fastloader.dataset.indexing import Group, IndexNode, Positions
from fastloader.dataset.mapping import IterFilter
from fastloader.dataset.once import Once
from fastloader.dataset.rows import rows_of
from fastloader.samplers.checks import checksum, frozen

ROWS_AT_ONCE = 65_536


def filtered(
    node: Node,
    run: Run,
    function: Callable[[Any], Any],
    ahead: bool | None,
    columns: str | Sequence[str] | None,
) -> Node:
    """The step, checked: resolved ahead where that is asked for, or possible and not refused."""
    if not isinstance(node, MapNode) or node.epochal() or node.endless():
        if ahead or columns is not None:
            why = "is an iterable"
            if isinstance(node, MapNode):
                why = "has another order in each pass" if node.epochal() else "is endless"
            what = "ahead=True" if ahead else f"columns={columns!r}"
            raise ValueError(f"filter({what}): the dataset {why}; filter first, then shuffle or repeat")
        return IterFilter(node, function)
    if columns is None:
        return IterFilter(node, function) if ahead is False else MapFilter(node, function)
    if ahead is False:
        raise ValueError("filter: columns= are gone through ahead; leave out ahead=False")
    columns = (columns,) if isinstance(columns, str) else tuple(columns)
    rows = rows_of([(node, run)])
    if rows is None:
        raise ValueError(
            f"filter(columns={list(columns)}): elements must be samples of a reader, unchanged, and these are "
            f"{node.label()}; filter by columns first, then map"
        )
    unknown = [name for name in columns if name not in rows.reader.field_names]
    if unknown or not columns:
        raise ValueError(
            f"filter(columns={list(columns)}): unknown {', '.join(unknown) or 'nothing'}; there are "
            f"{', '.join(rows.reader.field_names)}"
        )
    return MapFilter(node, function, columns)


@dataclass(frozen=True, eq=False)
class MapFilter(IndexNode):
    """The elements a function says yes to. With ``columns`` it is given stored columns, many rows at once."""

    streams = True
    parent: MapNode
    function: Callable[[Any], Any]
    columns: tuple[str, ...] | None = None
    _found: Once[NDArray[np.int64]] = field(default_factory=Once, init=False, repr=False)

    def label(self) -> str:
        """Without the function."""
        return "filter()"

    def where(self, run: Run) -> str:
        """Whether it has been resolved."""
        kept = self._found.known()
        how = f"columns {', '.join(self.columns)}" if self.columns else "each element once"
        known = "when first needed" if kept is None else f"{len(kept)} kept"
        return f"{name_of(self.function)} of {how}, ahead: {known}"

    def signature(self, run: Run) -> str:
        """What it kept must be the same."""
        found = self.found(run)
        return f"{self.parent.signature(run)}.filter({len(found)} {checksum(found)})"

    def found(self, run: Run) -> NDArray[np.int64]:
        """The positions of what is kept."""
        return self._found.get(run.settings.on_error, lambda: frozen(self._resolve(run)))

    def length(self, run: Run) -> int:
        """How many are kept."""
        return len(self.found(run))

    def reach(self, run: Run) -> Reach:
        """Fewer of those beneath."""
        spread, stride = self.parent.reach(run)
        return Reach(spread, stride * (self.parent.length(run) or 0) / max(1, len(self.found(run))))

    def down(self, run: Run, epoch: int, positions: Positions) -> Iterator[Group]:
        """A look into the list."""
        yield Group(np.arange(len(positions)), self.parent, run, epoch, self.found(run)[positions])

    def _resolve(self, run: Run) -> NDArray[np.int64]:
        if self.parent.length(run) is None:
            raise ValueError("filter: the dataset is endless, so it can't be gone through ahead; give ahead=False")
        return self._by_column(run, self.columns) if self.columns else self._by_element(run)

    def _by_element(self, run: Run) -> NDArray[np.int64]:
        kept = []
        elements, patient = run.start(self.parent, 0), True
        try:
            for element in elements:
                number = elements.place - 1
                try:
                    if run.call(f"filter({name_of(self.function)})", number, self._wanted, element):
                        kept.append(number)
                except Skipped as skipped:
                    run.stats.skip(skipped.error)
        except KeyboardInterrupt:
            patient = False  # a function may be stuck for good
            raise
        finally:
            elements.close(patient)
        return np.array(kept, np.int64)

    def _wanted(self, element: Any) -> bool:
        return bool(self.function(element))  # within the call: an array of several truth values has none

    def _by_column(self, run: Run, columns: tuple[str, ...]) -> NDArray[np.int64]:
        rows, length = rows_of([(self.parent, run)]), self.parent.length(run)
        assert rows is not None
        assert length is not None
        kept = [np.zeros(0, np.int64)]
        for first in range(0, length, ROWS_AT_ONCE):
            positions = np.arange(first, min(first + ROWS_AT_ONCE, length), dtype=np.int64)
            batch = rows.reader.read_batch(rows.of(self.parent, run, 0, positions), columns)
            try:
                kept.append(positions[self._mask(batch, len(positions))])
            except Exception as error:
                raise blamed(f"filter({name_of(self.function)})", first, error) from error
        return np.concatenate(kept)

    def _mask(self, batch: dict[str, Any], count: int) -> NDArray[np.bool_]:
        mask = np.asarray(self.function(batch))
        if mask.dtype != np.bool_ or mask.shape != (count,):
            raise TypeError(
                f"gave {mask.dtype} of shape {mask.shape} for {count} rows; with columns= a filter is given a "
                "dictionary of columns and gives an array of as many truth values"
            )
        return mask
