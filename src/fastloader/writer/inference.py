"""Which fields would hold some samples: told from their values, for those who do not want to say it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from fastloader import kernels
from fastloader.errors import SampleError
from fastloader.fields import (
    BytesField,
    Field,
    FloatField,
    IntField,
    JPEGImageField,
    JSONField,
    ListField,
    NDArrayField,
    PNGImageField,
    TextField,
    WebPImageField,
)  # fmt: skip
from fastloader.fields.image_files import kind_of
from fastloader.types import Sample

_IMAGES: dict[int, Callable[[], Field]] = {
    kernels.JPEG: JPEGImageField, kernels.PNG: PNGImageField, kernels.WEBP: WebPImageField,
}  # fmt: skip

_TEXTS = ({"text"}, {"time"}, {"decimal"})
"""What is stored as text, one kind a field, so that who reads it knows what it was."""


def infer_fields(samples: Sequence[Sample]) -> dict[str, Field]:
    """A field for each name that any of the samples has, in the order in which names come."""
    columns: dict[str, list[Any]] = {}
    for number, sample in enumerate(samples):
        if not isinstance(sample, Mapping):
            raise SampleError(
                f"is a {type(sample).__name__}, and what is written has names", sample=number,
                hint='map it to a dictionary first, as in .map(lambda x: {"x": x})',
            )  # fmt: skip
        for name, value in sample.items():
            columns.setdefault(name, []).append(value)
    return {name: infer_field(name, values) for name, values in columns.items()}


def infer_field(name: str, values: Sequence[Any]) -> Field:
    """A field that takes all of these values; ``None`` is a missing one."""
    there = [value for value in values if value is not None]
    kinds = {_kind(value) for value in there}
    if not kinds:
        return JSONField()
    if kinds == {"int"}:
        return _whole_number_field(name, there)
    if kinds <= {"int", "float"}:
        return _number_field(name, there)
    if kinds == {"bytes"}:
        return _bytes_field(there)
    if kinds in _TEXTS:
        return TextField()
    if kinds == {"array"}:
        return _array_field(name, there)
    if kinds == {"list"} and (inner := _element_field(there)) is not None:
        return ListField(inner)
    if kinds == {"numpy time"} and len({value.dtype for value in there}) == 1:
        return NDArrayField(there[0].dtype, ())
    if kinds <= {"int", "float", "text", "list", "dict"} and all(map(_is_json, there)):
        return JSONField()
    raise SampleError(
        f"no field holds {' and '.join(sorted({type(value).__name__ for value in there}))} like {_short(there)}",
        field=name, hint="map it to values that one holds, or leave it out",
    )  # fmt: skip


def _kind(value: Any) -> str:
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return "int"
    if isinstance(value, float | np.floating):
        return "float" if not isinstance(value, np.longdouble) else "other"
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes"
    if isinstance(value, str):
        return "text"
    if isinstance(value, np.ndarray):
        return "array"
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return "time"
    if isinstance(value, np.datetime64 | np.timedelta64):
        return "numpy time"
    if isinstance(value, Decimal):
        return "decimal"
    return "list" if isinstance(value, list | tuple) else "dict" if isinstance(value, dict) else "other"


def _element_field(values: Sequence[Any]) -> Field | None:
    """What holds the elements of lists, where JSON can't: bytes as they are, dates and decimals as texts."""
    kinds = {_kind(one) for value in values for one in value}
    if kinds == {"bytes"}:
        return BytesField()
    return TextField() if kinds in _TEXTS[1:] else None


def _whole_number_field(name: str, values: Sequence[Any]) -> Field:
    """Never floats, which would make different numbers equal."""
    numbers = [int(value) for value in values]
    low, high = min(numbers), max(numbers)
    if low >= -(2**63) and high < 2**63:
        return IntField()
    if low >= 0 and high < 2**64 and all(isinstance(value, int | np.uint64) for value in values):
        return NDArrayField("uint64", ())
    raise SampleError(f"whole numbers from {low} to {high} fit in no 64 bits", field=name, hint=_exactly(name, values))


def _number_field(name: str, values: Sequence[Any]) -> Field:
    inexact = [value for value in values if _kind(value) == "int" and not _is_float(int(value))]
    if inexact:
        raise SampleError(
            f"no float holds {inexact[0]}, which stands among floats", field=name, hint=_exactly(name, values)
        )
    return FloatField()


def _is_float(value: int) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False


def _exactly(name: str, values: Sequence[Any]) -> str:
    """What to do with numbers that have to stay as they are."""
    if any(isinstance(value, np.generic) for value in values):
        return "map them to int or float of Python, and name a JSONField for it"
    return f"name a JSONField for it, which keeps them: --field {name}=JSONField"


def _bytes_field(values: Sequence[Any]) -> Field:
    kinds = {kind_of(bytes(value[:12])) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        return BytesField()
    field = _IMAGES[kind]()
    return field if all(_takes(field, bytes(value)) for value in values) else BytesField()


def _takes(field: Field, value: Any) -> bool:
    try:
        field.encode(field.prepare(value))
    except (ValueError, TypeError, ImportError):  # or a build without WebP
        return False
    return True


def _array_field(name: str, values: Sequence[Any]) -> Field:
    dtypes = {value.dtype for value in values}
    if len(dtypes) > 1:
        said = ", ".join(sorted(map(str, dtypes)))
        raise SampleError(f"arrays of several types, {said}", field=name, hint="map them to one with .astype")
    shapes = [value.shape for value in values]
    shape: tuple[int | None, ...] | None = None
    if len({len(one) for one in shapes}) == 1:
        shape = tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))
    return NDArrayField(dtypes.pop(), shape)


def _is_json(value: Any) -> bool:
    try:
        return _alike(value, json.loads(json.dumps(value)))
    except (TypeError, ValueError, RecursionError):
        return False


def _alike(value: Any, stored: Any) -> bool:
    """Whether JSON gives a value back; tuples come as lists, and NaN is like itself."""
    if isinstance(value, dict):
        return value.keys() == stored.keys() and all(_alike(value[key], stored[key]) for key in value)
    if isinstance(value, list | tuple):
        return len(value) == len(stored) and all(map(_alike, value, stored))
    return bool(value == stored or (value != value and stored != stored))


def _short(values: Sequence[Any]) -> str:
    text = max(map(repr, values), key=len)
    return text if len(text) <= 40 else f"{text[:40]}..."
