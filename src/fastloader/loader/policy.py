"""What a bad sample does to its batch: ends the epoch, gives its place to a neighbour, or comes as missing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.fields import BatchParts
from fastloader.loader.columns import Column
from fastloader.loader.parts import Fault
from fastloader.types import Batch, mask_missing, stack

POLICIES = ("raise", "skip", "replace")


def settle(
    values: dict[str, tuple[Any, NDArray[np.bool_] | None]],
    samples: int,
    faults: list[Fault],
    policy: str,
    columns: Sequence[Column],
) -> tuple[Batch, NDArray[np.int64] | None]:
    """The batch as the policy wants it, and which of the rows it has, if not all in order.

    ``values`` holds each field's part and which of its rows are there, if not all.

    ``raise``: the first fault is raised. ``skip``: the sample's row, in all fields, becomes that of the next good
    sample of the batch, so batches stay full. ``replace``: only the bad value becomes a missing one.
    """
    rows = None
    if faults and policy == "raise":
        raise first_error(faults)
    if faults and policy == "skip":
        rows = good_rows(samples, {fault.row for fault in faults})
        if rows is None:
            raise first_error(faults)
        known = {column.name: column for column in columns}
        values = {name: _take(known.get(name), *value, rows) for name, value in values.items()}
    batch: Batch = {}
    for name, (value, valid) in values.items():
        # A protocol is slow to ask for, and most parts are plain arrays.
        if type(value) is np.ndarray or not isinstance(value, BatchParts):
            batch[name] = value if valid is None else mask_missing(value, valid)
        else:
            batch |= value.entries(name, valid)
    return batch, rows


def good_rows(count: int, bad: Collection[int]) -> NDArray[np.int64] | None:
    """For each row itself, or the next good one in place of a bad one; ``None`` where all are bad."""
    good = np.setdiff1d(np.arange(count), list(bad))
    if not len(good):
        return None
    rows = np.arange(count)
    for row in bad:
        rows[row] = good[np.searchsorted(good, row) % len(good)]
    return rows


def first_error(faults: Sequence[Fault]) -> Exception:
    """That of the first row."""
    return min(faults, key=lambda fault: fault.row).error


def _take(
    column: Column | None, value: Any, valid: NDArray[np.bool_] | None, rows: NDArray[np.int64]
) -> tuple[Any, NDArray[np.bool_] | None]:
    """A field's part with its rows chosen anew."""
    there = None if valid is None or valid[rows].all() else valid[rows]
    if isinstance(value, np.ndarray):
        return value[rows], there
    if isinstance(value, BatchParts):
        return value.take(rows), there
    chosen = [value[row] for row in rows.tolist()]
    collate = stack if column is None else column.collate  # what a pipeline returns is of no field
    together = there is None or (column is not None and column.field.collates_missing)
    return (collate(chosen) if together else chosen), there
