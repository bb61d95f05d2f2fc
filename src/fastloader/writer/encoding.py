"""From values to columns ready to be placed: encoding, compressing, and saying which value was at fault."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import SampleError
from fastloader.fields import Encoded
from fastloader.formats.fld import Column, FieldSpec
from fastloader.types import Buffer, byte_view


def encode_column(spec: FieldSpec, values: list[Any], first: int) -> Column:
    """One field of a run of samples. What numpy can do for all of them at once is left to the end."""
    field = spec.field
    rows: list[tuple[Any, ...]] = []
    payloads: list[Buffer] = []
    raw_sizes: list[int] = []
    codecs: list[int] = []
    blank = np.zeros((), field.metadata_type).item()
    try:
        for value in values:
            encoded = Encoded(blank) if value is None else field.encode(value)
            rows.append(encoded.metadata)
            if field.has_payload:
                payload: Buffer = encoded.payload
                payload = payload if type(payload) is bytes else byte_view(payload)
                raw_sizes.append(len(payload))
                payload, codec = _compressed(spec, payload)
                payloads.append(payload)
                codecs.append(codec)
    except Exception as error:
        raise bad_value(error, first + len(codecs if field.has_payload else rows), spec.name) from error
    return Column(
        _metadata(spec, rows, first),
        np.fromiter((value is not None for value in values), np.bool_, len(values)),
        payloads,
        np.array(raw_sizes, np.uint64),
        np.array(codecs, np.uint8),
    )


def _metadata(spec: FieldSpec, rows: list[tuple[Any, ...]], first: int) -> NDArray[Any]:
    """The metadata rows as one array; a row that does not fit its type is named."""
    dtype = spec.field.metadata_type
    if dtype.itemsize == 0:
        return np.zeros(len(rows), dtype)
    try:
        return np.array(rows, dtype)
    except Exception:
        for i, row in enumerate(rows):
            try:
                np.zeros(1, dtype)[0] = row
            except Exception as error:
                raise bad_value(error, first + i, spec.name) from error
        raise


def _compressed(spec: FieldSpec, payload: bytes | memoryview) -> tuple[bytes | memoryview, int]:
    """The payload in the field's compression, where that makes it smaller, and the compression used."""
    if spec.codec and len(payload):
        packed = kernels.compress(payload, spec.codec, spec.level)
        if len(packed) < len(payload):
            return packed, spec.codec
    return payload, 0


def bad_value(error: Exception, sample: int, field: str) -> SampleError:
    """An error of a field's code as one that names the sample."""
    if isinstance(error, SampleError):
        if error.sample is None:
            error.sample, error.field = sample, field
        return error
    if isinstance(error, kernels.Failure):
        detail = error.args[1]
    elif isinstance(error, ValueError | TypeError):
        detail = str(error)
    else:
        detail = f"{type(error).__name__}: {error}"
    return SampleError(detail, sample=sample, field=field)
