"""From values to columns ready to be placed: encoding, compressing, and saying which value was at fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import SampleError
from fastloader.fields import Encoded, EncodedColumn, Field
from fastloader.formats.fld import Column, FieldSpec
from fastloader.types import Buffer, byte_view


@dataclass(frozen=True, slots=True)
class Dictionary:
    """What many payloads of a field have in common, ready to compress with."""

    data: bytes
    native: kernels.Dictionary

    @classmethod
    def of(cls, data: bytes) -> Dictionary:
        """From its bytes."""
        return cls(data, kernels.Dictionary(data))


def encode_column(spec: FieldSpec, values: Sequence[Any], first: int, dictionary: Dictionary | None = None) -> Column:
    """One field of a run of samples, ``first`` being the number of the first."""
    encoded = encode_at_once(spec.field, values)
    if encoded is None:
        return _encode_each(spec, values, first, dictionary)
    payloads: list[Buffer] = list(encoded.payloads)
    raw_sizes = np.fromiter(map(len, payloads), np.uint64, len(payloads))
    codecs = np.zeros(len(payloads), np.uint8)
    if spec.codec:
        for i, payload in enumerate(encoded.payloads):
            payloads[i], codecs[i] = compressed(spec, payload, dictionary)
    used = None if dictionary is None else dictionary.data
    return Column(encoded.metadata, np.ones(len(values), np.bool_), payloads, raw_sizes, codecs, used)


def encode_at_once(field: Field, values: Sequence[Any]) -> EncodedColumn | None:
    """What the field's ``encode_many`` gives, if it has one that speaks for its ``encode`` and all values are there."""
    for kind in type(field).__mro__:
        if "encode_many" in vars(kind):
            break
        if "encode" in vars(kind):  # the one that is inherited knows nothing of it
            return None
    if type(None) in set(map(type, values)):
        return None
    encoded = field.encode_many(values)
    if encoded is None or encoded.metadata.dtype != field.metadata_type:
        return None
    if len(encoded.metadata) != len(values) or len(encoded.payloads) != len(values) * field.has_payload:
        raise ValueError(f"{type(field).__name__}.encode_many gives other than one row and payload a value")
    return encoded


def _encode_each(spec: FieldSpec, values: Sequence[Any], first: int, dictionary: Dictionary | None) -> Column:
    """One value after the other. What numpy can do for all of them at once is left to the end."""
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
                payload, codec = compressed(spec, payload, dictionary)
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
        None if dictionary is None else dictionary.data,
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


def compressed(
    spec: FieldSpec, payload: bytes | memoryview, dictionary: Dictionary | None
) -> tuple[bytes | memoryview, int]:
    """The payload in the field's compression, where that makes it smaller, and the compression used."""
    if spec.codec and len(payload):
        codec = spec.codec if dictionary is None else kernels.ZSTD_DICTIONARY
        packed = kernels.compress(payload, codec, spec.level, None if dictionary is None else dictionary.native)
        if len(packed) < len(payload):
            return packed, codec
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
