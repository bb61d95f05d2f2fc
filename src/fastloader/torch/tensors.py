"""Arrays as tensors over the same memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastloader.torch.library import torch

MISSING = "_missing"
"""Behind a field's name: which of its values are missing."""


def to_tensor(value: Any) -> Any:
    """An array as a tensor over the same memory; what is no array of numbers comes as it is.

    Arrays that may not be written to become tensors that must not be.
    """
    if isinstance(value, np.ndarray):
        return _of_array(value)
    if isinstance(value, np.generic):
        return _of_array(np.asarray(value))
    return value


def to_tensors(batch: Any) -> Any:
    """A batch with tensors in place of arrays, within lists, tuples and dictionaries too.

    Missing values come as zeros, and beside them a tensor of truth values under the field's name with ``_missing``.
    """
    if isinstance(batch, Mapping):
        made = {}
        for name, value in batch.items():
            if isinstance(value, np.ma.MaskedArray):
                made[name] = to_tensor(value.filled(0) if value.dtype != object else value)
                made[f"{name}{MISSING}"] = torch.from_numpy(np.ascontiguousarray(_rows_missing(value)))
            else:
                made[name] = to_tensors(value)
        return made
    if isinstance(batch, np.ma.MaskedArray):
        return to_tensor(batch.filled(0))
    if type(batch) is list:
        return [to_tensors(one) for one in batch]
    if type(batch) is tuple:
        return tuple(to_tensors(one) for one in batch)
    return to_tensor(batch)


def _rows_missing(value: np.ma.MaskedArray[Any, Any]) -> np.ndarray[Any, Any]:
    mask = np.ma.getmaskarray(value)
    return mask if mask.ndim == 1 else np.asarray(mask.reshape(len(mask), -1).all(1))


def _of_array(array: np.ndarray[Any, Any]) -> Any:
    kind = array.dtype
    if kind.name == "bfloat16":  # numpy knows it by ml_dtypes alone
        return _of_array(array.view(np.uint16)).view(torch.bfloat16)
    if kind.names is not None or kind.kind not in "?biufc":
        return array
    if not kind.isnative:
        array = array.astype(kind.newbyteorder("="))
    if any(step < 0 for step in array.strides):
        array = array.copy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
