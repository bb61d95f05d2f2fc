"""Which fields would hold some samples: told from their values, for those who do not want to say it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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
    if kinds == {"int"} and all(-(2**63) <= int(value) < 2**63 for value in there):
        return IntField()
    if kinds <= {"int", "float"}:
        return FloatField()
    if kinds == {"bytes"}:
        return _bytes_field(there)
    if kinds == {"text"}:
        return TextField()
    if kinds == {"array"}:
        return _array_field(name, there)
    if kinds <= {"int", "float", "text", "json"} and all(map(_is_json, there)):
        return JSONField()
    raise SampleError(
        f"no field holds {' and '.join(sorted({type(value).__name__ for value in there}))} like {_short(there)}",
        field=name,
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
    return "json" if isinstance(value, list | tuple | dict) else "other"


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
        return bool(json.loads(json.dumps(value)) == (list(value) if isinstance(value, tuple) else value))
    except (TypeError, ValueError, RecursionError):
        return False


def _short(values: Sequence[Any]) -> str:
    text = max(map(repr, values), key=len)
    return text if len(text) <= 40 else f"{text[:40]}..."
