"""What is to be written, checked before anything is: fields, their compression, and what is there already."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from fastloader import kernels
from fastloader.fields import BY_TYPE_ID, Field
from fastloader.formats.fld import Dataset, FieldSpec
from fastloader.formats.fld.layout import MAX_PAGE_SIZE, MIN_PAGE_SIZE

Compression = str | None | Mapping[str, str | None]


def check_page_size(size: int) -> int:
    """The size, if pages can have it."""
    if size & (size - 1) or not MIN_PAGE_SIZE <= size <= MAX_PAGE_SIZE:
        raise ValueError(f"page_size={size}: a power of two from {MIN_PAGE_SIZE} to {MAX_PAGE_SIZE}")
    return size


def make_specs(
    fields: Mapping[str, Field] | None, compression: Compression, existing: Dataset | None
) -> list[FieldSpec]:
    """The schema to write: what was asked for, checked against what is there."""
    there = None if existing is None else existing.specs()
    if fields is None:
        if there is None:
            raise ValueError("fields=None: only a writer that adds to an existing dataset may leave them out")
        fields = {spec.name: spec.field for spec in there}
    if not isinstance(fields, Mapping):
        raise TypeError(f"fields is a {type(fields).__name__}; give a mapping from name to field")
    if not fields:
        raise ValueError("a dataset has at least one field")
    for name, field in fields.items():
        _check_field(name, field)
    codecs = {name: kernels.codec_id(field.usual_compression) for name, field in fields.items()}
    codecs |= {
        spec.name: (spec.codec, spec.level) for spec in there or ()
    }  # what is added is stored like what is there
    codecs |= _codecs(compression, fields)
    specs = [FieldSpec(name, field, *codecs[name]) for name, field in fields.items()]
    if existing is not None and there is not None and _schema(specs) != stored_schema(existing):
        has = {spec.name: spec.field for spec in there}
        if has == dict(fields) and list(has) == list(fields):
            raise ValueError(f"{existing.path}: the options of its fields are stored in another form; write it anew")
        clashes = [(name, field.clash_with(has[name])) for name, field in fields.items() if name in has]
        for name, clash in clashes:
            if clash is not None:
                raise ValueError(f"{existing.path}: field {name!r} can't be added to: {clash}")
        raise ValueError(f"the dataset has the fields {has}, not {dict(fields)}")
    return specs


def _codecs(compression: Compression, fields: Mapping[str, Field]) -> dict[str, tuple[int, int]]:
    """Number and level of the compression of each field for which one is asked."""
    if compression is None:
        return {}
    by_name = compression if isinstance(compression, Mapping) else dict.fromkeys(fields, compression)
    unknown = by_name.keys() - fields.keys()
    if unknown:
        raise ValueError(f"compression names unknown fields: {', '.join(sorted(map(str, unknown)))}")
    for one in by_name.values():
        if one is not None and not isinstance(one, str):
            raise TypeError(
                f"compression={compression!r}: a compression is None, 'lz4', 'zstd' or 'zstd:LEVEL', not a "
                f"{type(one).__name__}"
            )
    return {name: kernels.codec_id(one) for name, one in by_name.items()}


def worker_count(name: str, count: Any) -> int:
    """The count, if there can be as many threads."""
    try:
        number = operator.index(count)
    except TypeError:
        raise TypeError(f"{name}={count!r} is a {type(count).__name__}; a number of threads is an int") from None
    if number < 0:
        raise ValueError(f"{name}={number}: 0 or more")
    return number


def _check_field(name: Any, field: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"field name {name!r} is a {type(name).__name__}; a name is text")
    if not isinstance(field, Field):
        raise TypeError(f"field {name!r} is a {type(field).__name__}; give an instance of a Field, like IntField()")
    if field.type_id and BY_TYPE_ID.get(field.type_id) is not type(field):
        raise TypeError(
            f"field {name!r}: type id {field.type_id} is not registered for {type(field).__name__}, so it would be "
            f"read back as another class; use @register_type(id) on it"
        )


Schema = list[tuple[str, int, int, int, bytes]]
"""What must agree for files to stand in one dataset: each field's name, type, flags, width of rows and options."""


def _schema(specs: Sequence[FieldSpec]) -> Schema:
    return [(s.name, s.field.type_id, s.flags, s.field.metadata_type.itemsize, s.arguments) for s in specs]


def stored_schema(dataset: Dataset) -> Schema:
    """The schema of what is there."""
    return [(d.name, d.type_id, d.flags, d.metadata_size, d.arguments) for d in dataset.descriptors]
