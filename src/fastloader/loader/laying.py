"""Arrays of different lengths put together by Python, with the result that the native engine has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import ShapeError
from fastloader.fields import Elements
from fastloader.loader.padding import Layout, Pad, Padded, Ragged, Way, layout_of

Rows = list[NDArray[Any] | None]


def find_misfits(values: Sequence[Any], way: Way | Layout) -> tuple[Rows, Mapping[int, ShapeError]]:
    """Values as arrays, ``None`` for what is missing; and by row what can't be laid out in this way.

    That is too long, or of another shape or kind than the first that can.
    """
    rows = as_arrays(values)
    pad = way.pad if isinstance(way, Layout) else None if way == "ragged" else way
    first: NDArray[Any] | None = None
    bad = {}
    for number, array in enumerate(rows):
        if array is None:
            continue
        wrong, hint = _wrong(array, first, pad)
        if wrong:
            bad[number] = ShapeError(f"row {number} {wrong}", hint=hint)
        elif first is None:
            first = array
    return rows, bad


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


def told_by(name: str, rows: Rows, way: Way) -> Layout:
    """The layout of arrays, which tell what they hold. Where all are missing, the pad value is all there is."""
    first = next((row for row in rows if row is not None), None)
    if first is None:
        elements = Elements(np.asarray(0 if way == "ragged" else way.value).dtype)
    else:
        elements = Elements(first.dtype, first.shape[1:])
    return layout_of(name, elements, way)


def as_arrays(values: Sequence[Any]) -> Rows:
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
