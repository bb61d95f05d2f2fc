"""What the tables alone say of a value: its number, shape or size. No payload is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastloader import kernels
from fastloader.errors import FormatError, KeyNotFoundError, UnknownTypeError
from fastloader.fields import (
    AudioCompressedField,
    AudioTokensField,
    AudioWaveformField,
    EmbeddingField,
    Field,
    FloatField,
    ImageFileField,
    IntField,
    ListField,
    MaskField,
    NDArrayField,
    OpticalFlowField,
    PackedTextField,
    RawImageField,
    SpectrogramField,
    VideoCompressedField,
    VideoFramesField,
)
from fastloader.fields.sound_files import CODECS
from fastloader.formats.fld import Dataset, FldFile, explain
from fastloader.formats.fld.layout import EXTENT, Kind
from fastloader.types import FIRST_USER_TYPE

_PICTURES = (RawImageField, ImageFileField, MaskField, VideoCompressedField, VideoFramesField)

Facts = dict[str, Any]
"""Names and JSON values."""


class Extent(NamedTuple):
    """Where a payload lies: bytes as they are stored, and as they are read."""

    offset: int
    stored: int
    size: int
    crc: int
    codec: int


def extent_of(file: FldFile, field: int, row: int) -> Extent | None:
    """A payload's extent; ``None`` where the field has none. Of an object, as the table claims it: nothing is fetched.

    What files claim of compressed payloads is checked, for which they are read.
    """
    if isinstance(file, FldFile) and file.remote is not None:
        table = file.table(Kind.EXTENTS, field, file.alone(row))
        if table is None:
            return None
        pointer, stored, size, crc, codec, _ = np.frombuffer(table.row(row), EXTENT)[0].tolist()
        return Extent(pointer, stored, size, crc, codec)
    payloads = file.payloads(field)
    return None if payloads is None else Extent(*payloads.extent(row))


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
        """Whether values are pictures or videos, stored as our own fields store them."""
        return is_ours(self.field) and isinstance(self.field, _PICTURES)

    @property
    def is_sound_file(self) -> bool:
        """Whether values are encoded sounds, stored as our own field stores them."""
        return is_ours(self.field) and isinstance(self.field, AudioCompressedField)

    def glance(self, file: FldFile, row: int, sample: int) -> Facts | None:
        """Facts about one value; ``None`` where it is missing."""
        try:
            if file.is_missing(self.number, row):
                return None
            facts: Facts = {}
            if self.field is not None:
                facts = described(self.field, file.metadata_row(self.number, row, self.field.metadata_type))
            extent = extent_of(file, self.number, row)
            return facts if extent is None else facts | {"bytes": extent.size, "stored_bytes": extent.stored}
        except kernels.Failure as failure:
            raise explain(failure, file.path, sample, self.name) from failure


def columns_of(dataset: Dataset, names: Sequence[str] | None = None) -> list[ColumnView]:
    """The fields, or those named."""
    for name in names or ():
        if name not in dataset.names:
            raise KeyNotFoundError(f"no field {name!r}; there are {', '.join(dataset.names)}", path=dataset.path)
    wanted = dataset.names if names is None else names
    return [ColumnView(dataset, dataset.names.index(name)) for name in wanted]


def is_ours(field: Field | None) -> bool:
    """Whether it is a field of this library: a user's own class may inherit one and still keep other metadata."""
    return field is not None and field.type_id < FIRST_USER_TYPE


def described(field: Field, metadata: Any) -> Facts:
    """What a metadata row says."""
    if not is_ours(field):
        names = metadata.dtype.names
        return {"metadata": {name: metadata[name].tolist() for name in names}} if names else {}
    if isinstance(field, IntField | FloatField):
        return {"value": metadata["value"].item()}
    if isinstance(field, RawImageField):
        return _image(*field.shape, np.dtype(field.dtype).name)
    if isinstance(field, ImageFileField | MaskField):
        height, width, channels, bits = (int(number) for number in metadata.tolist())
        return _image(height, width, channels, "uint16" if bits == 16 else "uint8")
    if isinstance(field, VideoCompressedField):
        facts = _image(int(metadata["height"]), int(metadata["width"]), 3, "uint8")
        seconds, codec = metadata["duration"].item(), metadata["codec"].decode("ascii", "replace")
        return facts | {"frames": int(metadata["frames"]), "seconds": seconds, "codec": codec}
    if isinstance(field, VideoFramesField):
        height, width, channels, frames = (int(number) for number in metadata.tolist())
        facts = _image(height, width, channels, "uint8")
        return facts | {"frames": frames, "seconds": frames / field.fps, "codec": field.format}
    if isinstance(field, OpticalFlowField):
        pairs, height, width, ndim = (int(number) for number in metadata.tolist())
        return {"dtype": "float32", "shape": [pairs, height, width, 2][4 - ndim :]}
    if isinstance(field, NDArrayField):
        return {"dtype": str(field.np_dtype), "shape": list(field.shape_of(metadata))}
    if isinstance(field, EmbeddingField):
        return {"dtype": field.dtype, "shape": [field.dim]}
    if isinstance(field, PackedTextField):
        return {"documents": int(metadata["documents"]), "tokens": int(metadata["tokens"]), "seq_len": field.seq_len}
    if isinstance(field, ListField):
        arrays = field.array
        shape = None if arrays is None else list(arrays.shape_of(metadata))
        return (
            {"elements": int(metadata["count"])} if arrays is None else {"dtype": str(arrays.np_dtype), "shape": shape}
        )
    return _sound(field, metadata)


def _sound(field: Field, metadata: Any) -> Facts:
    """Of sounds, how long they are; nothing of other fields."""
    if isinstance(field, AudioCompressedField):
        frames, rate, channels, codec, _ = metadata.tolist()
        name = CODECS[codec] if codec < len(CODECS) else f"codec {codec}"
        seconds = frames / rate if rate else 0.0
        return {"seconds": seconds, "sample_rate": rate, "channels": channels, "codec": name}
    if isinstance(field, AudioTokensField):
        return {"dtype": field.dtype.name, "shape": [field.codebooks, int(metadata["frames"])]}
    if not isinstance(field, AudioWaveformField | SpectrogramField):
        return {}
    shape = list(field.array.shape_of(metadata))
    facts: Facts = {"dtype": field.dtype, "shape": shape}
    if isinstance(field, AudioWaveformField) and shape:
        facts |= {"seconds": shape[0] / field.sample_rate, "sample_rate": field.sample_rate}
    return facts


def _image(height: int, width: int, channels: int, dtype: str) -> Facts:
    return {"height": height, "width": width, "channels": channels, "dtype": dtype}
