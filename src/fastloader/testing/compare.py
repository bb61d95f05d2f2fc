"""When two values are the same to the last bit."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np


def identical(one: Any, other: Any) -> bool:
    """Same types, shapes and bits, all the way down. A NaN is identical to itself, and 0.0 is not -0.0.

    >>> identical([1, float("nan")], [1, float("nan")]), identical(1, 1.0)
    (True, False)
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(identical(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(identical, one, other))
    return bool(one == other)


def row(values: Any, i: int) -> Any:
    """Value ``i`` of a field's part of a batch; ``None`` where it is missing."""
    if isinstance(values, np.ma.MaskedArray):
        flags = np.ma.getmaskarray(values)[i].tobytes()  # as bytes, for the masks of structured dtypes have fields too
        return None if flags == b"\1" * len(flags) else values.data[i, ...]
    if isinstance(values, Mapping):
        found = {name: row(value, i) for name, value in values.items()}
        return None if all(value is None for value in found.values()) else found
    return values[i, ...] if isinstance(values, np.ndarray) else values[i]


def count(values: Any) -> int:
    """How many samples a field's part of a batch holds."""
    return count(next(iter(values.values()))) if isinstance(values, Mapping) else len(values)


def agree(single: Any, item: Any) -> bool:
    """Whether a value read alone is the one found in a batch, where numbers have become numpy's."""
    if isinstance(item, np.ndarray | np.generic):
        single, item = np.asarray(single), np.asarray(item)
    if isinstance(item, Mapping) and isinstance(single, Mapping):
        return item.keys() == single.keys() and all(agree(single[name], value) for name, value in item.items())
    return identical(single, item)
