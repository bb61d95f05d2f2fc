"""Single values out of a field's part of a batch, as they would come alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastloader.fields.base import BatchDecoder, Field
from fastloader.fields.basic import ScalarDecoder
from fastloader.types import FIRST_USER_TYPE


def tells_values(field: Field) -> bool:
    """Whether a batch of the field tells what single values are. Of others' fields it is known only that they agree."""
    return field.type_id < FIRST_USER_TYPE and issubclass(field.get_decoder_class(), BatchDecoder)


def single_values(field: Field, batch: Any) -> list[Any] | None:
    """A field's part of a batch as single values; ``None`` where it does not tell what they were."""
    if isinstance(batch, list):
        return batch
    if not isinstance(batch, np.ndarray):
        return None
    missing = None
    if isinstance(batch, np.ma.MaskedArray):
        missing = np.ascontiguousarray(np.ma.getmaskarray(batch)).view(np.bool_).reshape(len(batch), -1)[:, 0].tolist()
        batch = batch.data
    if batch.ndim > 1:
        values = list(batch)
    elif field.get_decoder_class() is ScalarDecoder:
        values = batch.tolist()
    else:  # numbers, or arrays without dimensions: it does not say
        return None
    return values if missing is None else [None if gone else value for gone, value in zip(missing, values, strict=True)]
