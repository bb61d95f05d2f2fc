"""A sample's bytes as an array or a tensor, without a copy."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastloader.errors import FormatError
from fastloader.types import Buffer, byte_view


def to_numpy(sample: Buffer, dtype: DTypeLike, shape: int | Sequence[int] | None = None) -> NDArray[Any]:
    """The sample's bytes as an array of this dtype and shape (flat without one; one number of it may be -1).

    It shares the sample's memory and can be written to only where that can: over a shard it is read-only.
    """
    kind = np.dtype(dtype)
    if kind.hasobject or not kind.itemsize:
        raise TypeError(f"bytes can't be seen as {kind}")
    data = byte_view(sample)
    lengths = _layout(data, shape, kind, kind.itemsize, kind.alignment)
    return np.frombuffer(data, kind).reshape(*lengths, *kind.shape)


def to_torch(sample: Buffer, dtype: Any, shape: int | Sequence[int] | None = None) -> Any:
    """The sample's bytes as a tensor of this dtype (torch's or numpy's) and shape, as ``to_numpy``.

    Torch knows no read-only memory, so over a shard it is a tensor that refuses to be written to: ``clone()`` it first.
    What is computed from it is an ordinary tensor.
    """
    try:
        from fastloader.zc import tensor
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError('to_torch needs torch; run "pip install torch"', name="torch") from error
    kind = tensor.dtype_of(dtype)
    data = byte_view(sample)
    lengths = _layout(data, shape, kind, kind.itemsize, kind.itemsize // 2 if kind.is_complex else kind.itemsize)
    found = tensor.over(data, kind).reshape(lengths)
    return tensor.guard(found) if data.readonly and data.nbytes else found


def _layout(
    data: memoryview, shape: int | Sequence[int] | None, dtype: Any, itemsize: int, alignment: int
) -> tuple[int, ...]:
    """The shape in full. The bytes fill it with whole values, each where the processor may read it."""
    count, rest = divmod(data.nbytes, itemsize)
    if rest:
        raise FormatError(
            f"a sample of {data.nbytes} bytes is no whole number of {dtype}, {itemsize} bytes each",
            hint="check the dtype, and that the sample is the one you mean",
        )
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    if count and address % alignment:
        raise FormatError(
            f"the sample begins {address % alignment} bytes behind a multiple of {alignment}, where no {dtype} can",
            hint="write the shard with ZCWriter(alignment=64), or pass bytearray(sample), a copy",
        )
    if shape is None:
        return (count,)
    lengths = [operator.index(n) for n in (shape if isinstance(shape, Sequence) else (shape,))]
    if lengths.count(-1) == 1:
        lengths[lengths.index(-1)] = count // max(-math.prod(lengths), 1)
    if min(lengths, default=0) < 0 or math.prod(lengths) != count:
        raise FormatError(f"a sample of {count} {dtype} does not fill the shape {shape}")
    return tuple(lengths)
