"""Boxes, keypoints and flow of a batch moved with its images, however the loader laid them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.loader.columns import Column
from fastloader.loader.padding import Pad, Padded, Ragged
from fastloader.loader.parts import Fault, Given, Value
from fastloader.loader.works import through
from fastloader.pipeline.following import HIDDEN, FlowFollowing, Following, hidden_size
from fastloader.types import stack

Rows = NDArray[Any]
Move = Callable[[Rows, NDArray[np.int64]], tuple[Rows, Rows]]
"""Rows and whose they are -> the rows moved, and how much of each is seen."""


def follow(
    values: dict[str, Value],
    columns: Iterable[Column],
    numbers: NDArray[np.int64],
    epoch: int,
    faults: list[Fault],
) -> None:
    """Moves what follows images, and has functions do what they do; then what was told for that alone is gone."""
    for column in columns:
        one = column.following
        if one is None:
            continue
        value, valid = values[one.name]
        maps, there = values[one.geometry]
        if there is not None:
            valid = there if valid is None else valid & there
        if isinstance(one, FlowFollowing):
            moved, seen = _moved_flow(one, value, valid, maps)
        else:
            sizes = values[hidden_size(one.op.image)][0] if one.normalized else None

            def move(
                rows: Rows, samples: NDArray[np.int64], one: Following = one, maps: Any = maps, sizes: Any = sizes
            ) -> Any:
                return one.move(rows, samples, maps, sizes)

            moved, seen = _laid_out(value, valid, move)
        values[one.name] = moved, valid
        if one.behind is not None:
            given = Given(one.name, (None, None, None, None), numbers, epoch, faults)
            there = np.ones(len(numbers), np.bool_) if valid is None else valid.copy()
            values |= through(one.behind, moved.__getitem__, there, given, column.way).values
        for name in one.returned:
            values[name] = seen, valid
    for name in [name for name in values if name.startswith(HIDDEN)]:
        del values[name]


def _moved_flow(one: FlowFollowing, value: Any, valid: NDArray[np.bool_] | None, maps: NDArray[Any]) -> tuple[Any, Any]:
    """Flow of each sample, and where it is known: arrays where shapes agree, else lists."""
    pairs = [
        one.move(flow, maps[i]) if flow is not None and (valid is None or valid[i]) else None
        for i, flow in enumerate(value)
    ]
    blank = next((pair for pair in pairs if pair is not None), None)
    if blank is None:
        return [None] * len(pairs), [None] * len(pairs)
    filled = [blank if pair is None else pair for pair in pairs]
    flows, known = stack([pair[0] for pair in filled]), stack([pair[1] for pair in filled])
    return flows, known


def _laid_out(value: Any, valid: NDArray[np.bool_] | None, move: Move) -> tuple[Any, Any]:
    """The same layout, moved, and the same of what is seen."""
    if isinstance(value, Ragged):
        rows, seen = move(value.values, _whose(np.diff(value.offsets)))
        return Ragged(rows, value.offsets), Ragged(seen, value.offsets)
    if isinstance(value, Padded):
        real = np.arange(value.values.shape[1]) < value.lengths[:, None]
        rows, seen = move(value.values[real], np.nonzero(real)[0])
        moved = value.values.copy()
        moved[real] = rows
        shown = np.zeros((*real.shape, *seen.shape[1:]), seen.dtype)
        shown[real] = seen
        # What is seen is padded with nothing, whatever stands behind boxes.
        return replace(value, values=moved), replace(value, values=shown, pad=_plain(value.pad))
    if isinstance(value, np.ndarray):
        count, each = value.shape[:2]
        rows, seen = move(value.reshape(count * each, *value.shape[2:]), np.repeat(np.arange(count), each))
        return rows.reshape(value.shape), seen.reshape(count, each, *seen.shape[1:])
    good = [i for i, one in enumerate(value) if one is not None and (valid is None or valid[i])]
    moved_list: list[Any] = [None] * len(value)
    seen_list: list[Any] = [None] * len(value)
    for i in good:
        moved_list[i], seen_list[i] = move(value[i], np.full(len(value[i]), i))
    return moved_list, seen_list


def _whose(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(lengths)), lengths)


def _plain(pad: Pad) -> Pad:
    return replace(pad, value=0)
