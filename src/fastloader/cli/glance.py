"""What the tables alone say of a value: its number, shape or size. No payload is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastloader import kernels
from fastloader.cli.output import printable
from fastloader.errors import FormatError, KeyNotFoundError, UnknownTypeError
from fastloader.fields import Field, FloatField, ImageFileField, IntField, NDArrayField, RawImageField
from fastloader.formats.fld import Dataset, FldFile, explain
from fastloader.types import FIRST_USER_TYPE, format_size

Facts = dict[str, Any]
"""Names and JSON values."""


class ColumnView:
    """One field, seen from outside. ``field`` is ``None`` where ``trouble`` says why it can't be had."""

    def __init__(self, dataset: Dataset, number: int) -> None:
        self.number = number
        self.descriptor = dataset.descriptors[number]
        self.name = self.descriptor.name
        self.field: Field | None = None
        self.trouble: FormatError | None = None
        try:
            self.field = dataset.field(number)
        except FormatError as error:
            self.trouble = error

    @property
    def is_registered(self) -> bool:
        """Whether there is a class for the type."""
        return not isinstance(self.trouble, UnknownTypeError)

    @property
    def is_image(self) -> bool:
        """Whether values are pictures, stored as our own fields store them."""
        return _is_ours(self.field) and isinstance(self.field, RawImageField | ImageFileField)

    def glance(self, file: FldFile, row: int, sample: int) -> Facts | None:
        """Facts about one value; ``None`` where it is missing."""
        try:
            if file.is_missing(self.number, row):
                return None
            facts: Facts = {}
            if self.field is not None:
                facts = _described(self.field, file.metadata_row(self.number, row, self.field.metadata_type))
            payloads = file.payloads(self.number)
            if payloads is not None:
                _, stored, size, _, _ = payloads.extent(row)
                facts |= {"bytes": size, "stored_bytes": stored}
            return facts
        except kernels.Failure as failure:
            raise explain(failure, file.path, sample, self.name) from failure


def columns_of(dataset: Dataset, names: Sequence[str] | None = None) -> list[ColumnView]:
    """The fields, or those named."""
    for name in names or ():
        if name not in dataset.names:
            raise KeyNotFoundError(f"no field {name!r}; there are {', '.join(dataset.names)}", path=dataset.path)
    wanted = dataset.names if names is None else names
    return [ColumnView(dataset, dataset.names.index(name)) for name in wanted]


def _is_ours(field: Field | None) -> bool:
    """A user's own class may inherit one of ours and still keep other metadata."""
    return field is not None and field.type_id < FIRST_USER_TYPE


def _described(field: Field, metadata: Any) -> Facts:
    if not _is_ours(field):
        names = metadata.dtype.names
        return {"metadata": {name: metadata[name].tolist() for name in names}} if names else {}
    if isinstance(field, IntField | FloatField):
        return {"value": metadata["value"].item()}
    if isinstance(field, RawImageField):
        return _image(*field.shape, np.dtype(field.dtype).name)
    if isinstance(field, ImageFileField):
        height, width, channels, bits = (int(number) for number in metadata.tolist())
        return _image(height, width, channels, "uint16" if bits == 16 else "uint8")
    if isinstance(field, NDArrayField):
        return {"dtype": str(field.np_dtype), "shape": list(field.shape_of(metadata))}
    return {}


def _image(height: int, width: int, channels: int, dtype: str) -> Facts:
    return {"height": height, "width": width, "channels": channels, "dtype": dtype}


def phrase(facts: Facts | None) -> str:
    """The facts as a word or two."""
    if facts is None:
        return "missing"
    if "value" in facts:
        return str(facts["value"])
    if "height" in facts:
        pixels = f"{facts['height']}x{facts['width']}x{facts['channels']}"
        return pixels if facts["dtype"] == "uint8" else f"{pixels} {facts['dtype']}"
    if "shape" in facts:
        return printable(f"{facts['dtype']}[{','.join(map(str, facts['shape']))}]")
    said = [f"{name}={value!r}" for name, value in facts.get("metadata", {}).items()]
    said += [format_size(facts["bytes"])] if "bytes" in facts else []
    return printable(" ".join(said)) or "?"
