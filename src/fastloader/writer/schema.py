"""What is to be written, checked before anything is: fields, their compression, and what is there already."""

from __future__ import annotations

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
    if there is not None and schema_of(there) != [(n, type(f), f.to_binary()) for n, f in fields.items()]:
        has = {spec.name: spec.field for spec in there}
        raise ValueError(f"the dataset has the fields {has}, not {dict(fields)}")
    if isinstance(compression, Mapping):
        unknown = compression.keys() - fields.keys()
        if unknown:
            raise ValueError(f"compression names unknown fields: {', '.join(sorted(unknown))}")
        by_name = {name: kernels.codec_id(one) for name, one in compression.items()}
    elif compression is not None:
        by_name = dict.fromkeys(fields, kernels.codec_id(compression))
    else:
        by_name = {}
    kept = {spec.name: (spec.codec, spec.level) for spec in there or ()}  # what is added is stored like what is there
    return [FieldSpec(name, field, *by_name.get(name, kept.get(name, (0, 0)))) for name, field in fields.items()]


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


def schema_of(specs: Sequence[FieldSpec]) -> list[tuple[str, type[Field], bytes]]:
    """What must agree for samples to stand in one dataset: names, types and options."""
    return [(spec.name, type(spec.field), spec.field.to_binary()) for spec in specs]
