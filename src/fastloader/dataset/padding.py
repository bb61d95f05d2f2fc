"""Elements of different lengths put together by Python, with the result that the native engine has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import ShapeError
from fastloader.fields import Elements
from fastloader.loader.padding import (
    Layout,
    Pad,
    Padded,
    PadSpec,
    Ragged,
    Way,
    check_names,
    layout_of,
    layouts,
    way_of,
)
from fastloader.reader import DatasetReader
from fastloader.types import Batch

Rows = list[NDArray[Any] | None]


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
        first: NDArray[Any] | None = None
        for number, array in enumerate(_arrays(values)):
            if array is None:
                continue
            wrong, hint = _wrong(array, first, way.pad if isinstance(way, Layout) else None if way == "ragged" else way)
            if wrong:
                bad[number] = ShapeError(f"row {number} {wrong}", field=name, hint=hint)
            elif first is None:
                first = array


def _wrong(row: NDArray[Any], first: NDArray[Any] | None, pad: Pad | None) -> tuple[str, str]:
    """What is wrong with an array, and what to do about it."""
    hint = "leave it out of pad=, or on_error='skip' leaves out the element"
    if row.ndim == 0 or row.dtype.hasobject:
        return f"is {row.dtype} of the shape {row.shape}: numbers with a length are needed", hint
    if not row.dtype.itemsize * prod(row.shape[1:]):
        return f"has the shape {row.shape}, whose elements have no bytes", hint
    if pad is not None and pad.length is not None and not pad.truncate and len(row) > pad.length:
        longer = f"has the length {len(row)}, and the batch is padded to {pad.length}"
        return longer, "give pad a greater length, or Pad(..., truncate=True)"
    if first is not None and (row.dtype, row.shape[1:]) != (first.dtype, first.shape[1:]):
        both = f"is {row.dtype} of the shape {row.shape}, and the first of its batch {first.dtype} of {first.shape}"
        return f"{both}: they may differ in their length alone", hint
    return "", ""


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
    rows = _arrays(values)
    layout = way if isinstance(way, Layout) else _told_by(name, rows, way)
    check_names(name, layout, others)
    there = np.array([row is not None for row in rows])
    return laid_out(rows, layout).entries(name, None if there.all() else there)


def laid_out(rows: Rows, layout: Layout) -> Padded | Ragged:
    """Arrays of one kind in one array."""
    pad, dtype = layout.pad, layout.elements.dtype
    first = next((row for row in rows if row is not None), None)
    inner = (layout.elements.inner or ()) if first is None else first.shape[1:]
    lengths = np.array([0 if row is None else len(row) for row in rows], np.int64)
    if pad is None:
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        values = np.empty((int(offsets[-1]), *inner), dtype)
        for row, start in zip(rows, offsets.tolist(), strict=False):
            if row is not None:
                values[start : start + len(row)] = row
        return Ragged(values, offsets)
    if pad.length is not None:
        lengths = np.minimum(lengths, pad.length)
    width = pad.length or -(-int(lengths.max(initial=0)) // pad.multiple_of) * pad.multiple_of
    values = np.empty((len(rows), width, *inner), dtype)
    values[...] = np.frombuffer(layout.fill, dtype).reshape(())
    for target, row, length in zip(values, rows, lengths.tolist(), strict=True):
        if row is not None:
            target[:length] = row[:length]
    return Padded(values, lengths, pad)


def _told_by(name: str, rows: Rows, way: Way) -> Layout:
    """The layout of arrays, which tell what they hold. Where all are missing, the pad value is all there is."""
    first = next((row for row in rows if row is not None), None)
    if first is None:
        elements = Elements(np.asarray(0 if way == "ragged" else way.value).dtype)
    else:
        elements = Elements(first.dtype, first.shape[1:])
    return layout_of(name, elements, way)


def _arrays(values: Sequence[Any]) -> Rows:
    """Arrays of what can be padded: arrays, bytes, and lists, which have one dtype together."""
    lists = [np.asarray(value) for value in values if isinstance(value, list | tuple) and len(value)]
    same = np.result_type(*lists) if lists else None
    inner = lists[0].shape[1:] if lists else ()
    rows: Rows = []
    for value in values:
        if value is None:
            rows.append(None)
        elif isinstance(value, bytes | bytearray | memoryview):
            rows.append(np.frombuffer(value, np.uint8))
        elif isinstance(value, list | tuple):
            rows.append(np.asarray(value, same) if len(value) else np.zeros((0, *inner), same))
        else:
            rows.append(np.asarray(value))
    return rows
