"""Elements of different lengths put together by Python, with the result that the native engine has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastloader.errors import ShapeError
from fastloader.loader import laying
from fastloader.loader.laying import as_arrays, laid_out, told_by
from fastloader.loader.padding import Layout, PadSpec, Way, check_names, layouts, way_of
from fastloader.reader import DatasetReader
from fastloader.types import Batch


@dataclass(frozen=True, slots=True, eq=False)
class Padding:
    """What ``batch(pad=...)`` says: one way for every field that varies in length, or one for each name."""

    spec: PadSpec | Mapping[str, PadSpec]

    def __post_init__(self) -> None:
        if isinstance(self.spec, Mapping):
            object.__setattr__(self, "spec", dict(self.spec))
            self.ways()
        else:
            way_of("pad", self.spec)

    def ways(self) -> dict[str, Way]:
        """By name; only for a mapping, as a bare value leaves it to the fields of a reader."""
        if not isinstance(self.spec, Mapping):
            raise ValueError(
                f"batch(pad={self.spec!r}): elements come through Python, and nothing tells which of their parts vary "
                f"in length; name them: pad={{'tokens': {self.spec!r}}}"
            )
        return {name: way for name, one in self.spec.items() if (way := way_of(f"pad for {name!r}", one))}

    def layouts(self, reader: DatasetReader, fields: Sequence[str] | None) -> dict[str, Layout]:
        """By name, for samples of a reader."""
        known = reader.fields
        return layouts(self.spec, {name: known[name] for name in fields or known})

    def same(self, other: Padding | None) -> bool:
        """Whether another says the same. By their text: a pad's value may be an array."""
        return other is not None and repr(self.spec) == repr(other.spec)


def find_misfits(elements: Sequence[Any], ways: Mapping[str, Way | Layout], bad: dict[int, Exception]) -> None:
    """Add to ``bad``, by row, what can't be padded: too long, of another shape or kind than the first that can."""
    for name, way in ways.items():
        for row, element in enumerate(elements):
            if row not in bad and not (isinstance(element, Mapping) and name in element):
                has = ", ".join(map(str, element)) if isinstance(element, Mapping) else f"a {type(element).__name__}"
                bad[row] = ShapeError(
                    f"row {row} is not there, but {has}", field=name, hint="pad names parts of dictionaries"
                )
        values = [None if row in bad else element[name] for row, element in enumerate(elements)]
        _, misfits = laying.find_misfits(values, way)
        for number, error in misfits.items():
            error.field = name
            bad[number] = error


def padded(elements: Sequence[Any], ways: Mapping[str, Way | Layout], collate: Callable[[list[Any]], Any]) -> Batch:
    """A batch of dictionaries without misfits, of which some parts are padded and ``collate`` makes the rest."""
    rest = collate([{key: value for key, value in element.items() if key not in ways} for element in elements])
    batch: Batch = {}
    for key in elements[0]:
        if key in ways:
            batch |= column(key, [element[key] for element in elements], ways[key], elements[0])
        else:
            batch[key] = rest[key]
    return batch


def column(name: str, values: Sequence[Any], way: Way | Layout, others: Collection[str]) -> Batch:
    """One part of a batch and what comes beside it; ``None`` is a missing value."""
    rows = as_arrays(values)
    layout = way if isinstance(way, Layout) else told_by(name, rows, way)
    check_names(name, layout, others)
    there = np.array([row is not None for row in rows])
    return laid_out(rows, layout).entries(name, None if there.all() else there)
