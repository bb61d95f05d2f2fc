"""Values that are decoded later: told where they come from, so that what goes wrong then names it; checked now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.fields.base import Lazy
from fastloader.fields.nested_dict import DictBatch


def check_value(value: Any) -> None:
    """Decode a value that would be decoded later, and each part that would; what is wrong is raised."""
    for one in _parts(value):
        if isinstance(one, Lazy):
            one.check()


def locate_value(value: Any, path: object, sample: int, field: str) -> None:
    """Tell a value; of a list or a dictionary, each part that is decoded later."""
    for one in _parts(value):
        if isinstance(one, Lazy):
            one.locate(path, sample, field)


def locate_batch(values: Any, samples: NDArray[np.int64], path_of: Callable[[int], object], field: str) -> None:
    """Tell all values of a field's part of a batch."""
    for column in values.columns.values() if isinstance(values, DictBatch) else (values,):
        if not isinstance(column, list) or not isinstance(_first(column), Lazy | list | dict):
            continue
        for value, sample in zip(column, samples.tolist(), strict=True):
            if any(isinstance(one, Lazy) for one in _parts(value)):
                locate_value(value, path_of(sample), sample, field)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, list):
        return value
    return value.values() if isinstance(value, dict) else (value,)


def _first(values: list[Any]) -> Any:
    return next((value for value in values if value is not None), None)
