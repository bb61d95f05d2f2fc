"""Lists and numbers as arrays of a given dtype, but only where every value is kept."""

from __future__ import annotations

import cmath
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_TAKES = {"b": "b", "i": "bui", "u": "bui", "f": "buif", "c": "buifc"}
"""Kinds of numbers, and the kinds that may become them."""
_BOOLS = (bool, np.bool_)
_INTEGERS = (*_BOOLS, int, np.integer)
_FLOATS = (*_INTEGERS, float, np.floating)
_TYPES: dict[str, tuple[type[Any], ...]] = {
    "b": _BOOLS, "i": _INTEGERS, "u": _INTEGERS, "f": _FLOATS, "c": (*_FLOATS, complex, np.complexfloating),
    "U": (str,), "S": (bytes,), "V": (bytes, np.void),
}  # fmt: skip
"""The same, for values that numpy finds no common dtype for, and for text."""


def whole(name: str, value: Any) -> int:
    """An option that is a whole number, as a plain int that JSON can say."""
    try:
        return int(operator.index(value))
    except TypeError:
        raise TypeError(f"{name}={value!r}: expected a whole number, got {type(value).__name__}") from None


def as_array(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of ``dtype`` with the values of nested lists, numbers or texts.

    Floats may be rounded to fewer bits; anything else that would change a value is a TypeError (another kind) or a
    ValueError (too large, too long) that says which value and where.
    """
    if dtype.names is not None:
        records = np.asarray(value, _of_objects(dtype))
        out = np.zeros(records.shape, dtype)
        _fill(out, records, dtype)
        return out
    if dtype.kind in _TAKES:
        given = np.asarray(value)
        if not given.size or given.dtype.kind in _TAKES[dtype.kind]:
            return _numbers(given, dtype)
    return _others(np.asarray(value, object), dtype)


def _of_objects(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same fields, each of Python objects."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_of_objects(base), shape))
    if dtype.names is None:
        return np.dtype(object)
    return np.dtype([(name, _of_objects(dtype[name])) for name in dtype.names])


def _fill(out: NDArray[Any], records: NDArray[Any], dtype: np.dtype[Any]) -> None:
    for name in dtype.names or ():
        inner = dtype[name].base
        if inner.names is not None:
            _fill(out[name], records[name], inner)
            continue
        try:
            out[name] = _others(records[name], inner)
        except (TypeError, ValueError) as error:
            raise type(error)(f"field {name!r} of the dtype: {error}") from None


def _numbers(given: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind in "iu" and given.size:
        limits = np.iinfo(dtype)
        if int(given.min()) < limits.min or int(given.max()) > limits.max:
            return _others(given.astype(object), dtype)
    with np.errstate(over="ignore"):
        array = given.astype(dtype)
    if dtype.kind in "fc":
        _refuse(given, np.isinf(array) & ~np.isinf(given), ValueError(f"is too large for {dtype}"))
    return array


def _others(given: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """From Python objects, which tell what they are."""
    values = given.reshape(-1).tolist()
    if dtype.kind not in _TYPES:
        return _times(given, values, dtype)
    types = _TYPES[dtype.kind]
    _refuse(given, [not isinstance(value, types) for value in values], TypeError(f"is no value of {dtype}"))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        bad = [not limits.min <= value <= limits.max for value in values]
        _refuse(given, bad, ValueError(f"does not fit {dtype}"))
    array = _converted(values, dtype)
    if dtype.kind in "fc":
        bad = [cmath.isinf(kept) and not cmath.isinf(value) for kept, value in zip(array, values, strict=True)]
        _refuse(given, bad, ValueError(f"is too large for {dtype}"))
    elif dtype.kind == "V":
        bad = [len(bytes(value)) != dtype.itemsize for value in values]
        _refuse(given, bad, ValueError(f"does not have the {dtype.itemsize} bytes of {dtype}"))
    elif dtype.kind in "US":  # cut, or with zeros at its end, which numpy takes for padding
        bad = [kept != value for kept, value in zip(array.tolist(), values, strict=True)]
        _refuse(given, bad, ValueError(f"does not come back from {dtype} as it is"))
    return array.reshape(given.shape)


def _converted(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        with np.errstate(over="ignore"):
            return np.array(values, dtype)
    except OverflowError as error:  # an integer beyond all floats
        raise ValueError(f"{error}, for {dtype}") from None


def _times(given: NDArray[Any], values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Dates and spans of time: in a coarser unit they must be the same moments."""
    array = np.array(values, dtype)
    exact = [kept if isinstance(v, int) else np.array(v, dtype.char)[()] for v, kept in zip(values, array, strict=True)]
    bad = [one != other and not (np.isnat(one) and np.isnat(other)) for one, other in zip(exact, array, strict=True)]
    _refuse(given, bad, ValueError(f"is no moment of {dtype}"))
    return array.reshape(given.shape)


def _refuse(given: NDArray[Any], bad: ArrayLike, error: Exception) -> None:
    """Raise the error for the first bad value, if any, with the value and its place in front."""
    found = np.flatnonzero(bad)
    if not len(found):
        return
    where = np.unravel_index(found[0], given.shape) if given.ndim else ()
    said = repr(given.reshape(-1)[found[0] : found[0] + 1].tolist()[0])
    place = f" at {[int(i) for i in where]}" if where else ""
    raise type(error)(f"{said if len(said) <= 40 else said[:37] + '...'}{place} {error}")
