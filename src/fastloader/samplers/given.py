"""What an order gives, looked at before anything is read by it: a user may have written it."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError


class OrderError(FastLoaderError, ValueError):
    """An order gave something else than sample numbers of the dataset, as many as it was asked for."""


def sample_numbers(
    order: Any, epoch: int, step: int, given: Any, count: int | None, length: int | None
) -> NDArray[np.int64]:
    """What an order gave, if it is ``count`` numbers of samples of a dataset that has ``length``; ``None``: any."""

    def refuse(what: str, hint: str) -> NoReturn:
        raise OrderError(f"{type(order).__name__}, epoch {epoch}, step {step}: gave {what}", hint=hint)

    try:
        array = np.asarray(given)
    except ValueError:  # lists of different lengths
        refuse(f"a {type(given).__name__} that is no array", "sample numbers come in one dimension")
    if array.ndim != 1:
        refuse(f"an array of shape {array.shape}", "sample numbers come in one dimension")
    if array.size and array.dtype.kind not in "iu":  # an empty list is one of floats to numpy
        refuse(f"{array.dtype}, beginning with {array[0]!r}", "sample numbers are whole numbers")
    if count is not None and len(array) != count:
        refuse(f"{len(array)} sample numbers", f"it was asked for {count}, which lie within the length it states")
    if length is not None and array.size:
        # As numbers without a sign, those below 0 are the largest.
        signless = array if array.dtype.kind == "u" else array.astype(np.int64, copy=False).view(np.uint64)
        if int(signless.max()) >= length:
            first = array[int((signless >= length).argmax())]
            refuse(f"the sample number {first}", f"the dataset has samples 0 to {length - 1}")
    return np.ascontiguousarray(array, np.int64)
