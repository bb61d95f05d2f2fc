"""Which samples of a dataset are meant: by key, by number, or by what their values are."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.formats.where import checked
from fastloader.reader import DatasetReader
from fastloader.types import Key, Sample

Comparison = tuple[str, str, Any]
Where = Comparison | Sequence[Comparison] | Callable[[Sample], bool]
"""Comparisons that must all hold, as (field, comparison, value), or a function of a sample."""

AT_ONCE = 4096
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": lambda value, among: value in among, "not in": lambda value, among: value not in among,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Samples by key, by number and by a condition: all that any of these names.

    ``fields`` are what a function is given of a sample; all unless given.
    """

    keys: Iterable[Key] | None = None
    indices: Iterable[int] | None = None
    where: Where | None = None
    fields: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.keys is None and self.indices is None and self.where is None:
            raise ValueError("say which samples: keys=, indices= or where=")
        if isinstance(self.keys, str | bytes):
            raise TypeError(f"keys={self.keys!r} is one key; give a list of keys")

    def samples(self, reader: DatasetReader) -> NDArray[np.int64]:
        """Their numbers, ascending, each once. A key or number that is not there is an error."""
        found = [np.zeros(0, np.int64)]
        if self.keys is not None:
            found.append(np.array([reader.index_of(key) for key in self.keys], np.int64))
        if self.indices is not None:
            numbers = np.array([operator.index(index) for index in self.indices], np.int64)
            wrong = numbers[(numbers < -len(reader)) | (numbers >= len(reader))]
            if len(wrong):
                raise IndexError(f"sample {wrong[0]} of a dataset of {len(reader)}")
            found.append(np.where(numbers < 0, numbers + len(reader), numbers))
        if callable(self.where):
            found += list(_called(reader, self.where, self.fields))
        elif self.where is not None:
            found += list(_compared(reader, checked(self.where)))  # type: ignore[arg-type]
        return np.unique(np.concatenate(found))


def _called(
    reader: DatasetReader, function: Callable[[Sample], bool], fields: Sequence[str] | None
) -> Iterator[NDArray[np.int64]]:
    for first in range(0, len(reader), AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, len(reader)))
        yield np.array([i for i in numbers if function(reader.read_sample(i, fields))], np.int64)


def _compared(reader: DatasetReader, where: Sequence[Comparison]) -> Iterator[NDArray[np.int64]]:
    """Only the fields that are compared are read, in batches. A missing value meets no condition."""
    names = list(dict.fromkeys(name for name, _, _ in where))
    for first in range(0, len(reader), AT_ONCE):
        numbers = np.arange(first, min(first + AT_ONCE, len(reader)))
        batch = reader.read_batch(numbers, names)
        holds = np.ones(len(numbers), np.bool_)
        for name, comparison, wanted in where:
            holds &= _holds(batch[name], _COMPARE[comparison], wanted, name)
        yield numbers[holds]


def _holds(values: Any, compare: Callable[[Any, Any], Any], wanted: Any, name: str) -> NDArray[np.bool_]:
    if isinstance(values, np.ndarray) and values.ndim == 1 and not isinstance(values, np.ma.MaskedArray):
        values = values.tolist()
    try:
        return np.fromiter(
            (value is not None and value is not np.ma.masked and _truth(compare(value, wanted)) for value in values),
            np.bool_, len(values),
        )  # fmt: skip
    except TypeError as error:
        raise TypeError(f"where, field {name!r}: {error}") from error


def _truth(value: Any) -> bool:
    """One answer; a value of several elements has as many, which all must hold."""
    return bool(np.all(value))
