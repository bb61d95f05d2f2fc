"""Arguments, checked once, with messages that say what was given and what would do."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastloader import kernels

Integers = Sequence[int] | NDArray[Any]


def whole(name: str, value: Any, least: int = 0, below: int = 2**63) -> int:
    """``value`` as an ``int``, if it is a whole number from ``least`` up to ``below``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: a whole number is needed") from None
    if number < least:
        raise ValueError(f"{name}={number}: at least {least}")
    if number >= below:
        raise ValueError(f"{name}={number}: below 2**{below.bit_length() - 1}")
    return number


def flag(name: str, value: Any) -> bool:
    """``value`` as a ``bool``, if it is a truth value: a word like "no" would be a true one."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name}={value!r}: True or False is needed")


def seed_of(value: Any) -> int:
    """A seed: any 64-bit number."""
    return whole("seed", value, 0, 2**64)


def positions(length: int, first: int, count: int) -> NDArray[np.int64]:
    """The positions from ``first``, ``count`` of them, all inside an order of this length."""
    if first < 0 or count < 0 or first + count > length:
        raise IndexError(f"positions {first} to {first + count} of an order that has {length}")
    return np.arange(first, first + count, dtype=np.int64)


def one_dimension(name: str, values: ArrayLike) -> NDArray[Any]:
    """``values`` as an array with one dimension."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} have shape {array.shape}; one dimension is needed")
    return array


def integers(name: str, values: ArrayLike, least: int = 0) -> NDArray[np.int64]:
    """A read-only copy of whole numbers, none below ``least``."""
    array = one_dimension(name, values)
    if array.size and array.dtype.kind not in "iu":  # an empty list is one of floats to numpy
        raise TypeError(f"{name} are of type {array.dtype}; whole numbers are needed")
    refuse_first(name, array, array < least, f"at least {least}")
    if array.dtype.kind == "u":
        refuse_first(name, array, array > 2**63 - 1, "below 2**63")
    return frozen(np.array(array, np.int64))


def inside(name: str, samples: NDArray[np.int64], length: int) -> None:
    """Refuse sample numbers that a dataset of this length does not have."""
    refuse_first(name, samples, (samples < 0) | (samples >= length), f"the dataset has samples 0 to {length - 1}")


def refuse_first(name: str, array: NDArray[Any], wrong: NDArray[np.bool_], what_would_do: str) -> None:
    """Raise an error that names the first value that is wrong."""
    if wrong.any():
        where = int(wrong.argmax())
        raise ValueError(f"{name}[{where}]={array[where].item()}: {what_would_do}")


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The array, with writing to it forbidden."""
    array.setflags(write=False)
    return array


def checksum(*arrays: NDArray[Any]) -> str:
    """A short name for the contents of arrays, so that a saved position can tell other contents."""
    value = 0
    for array in arrays:
        value = kernels.xxh64(np.ascontiguousarray(array), value)
    return f"{value:016x}"


def gathered(what: str, values: Iterable[Any]) -> NDArray[np.int64]:
    """Whole numbers from any iterable; a float is refused rather than cut."""
    try:
        return np.fromiter(map(operator.index, values), np.int64)
    except TypeError as error:
        raise TypeError(f"{what}: whole numbers are needed: {error}") from error
