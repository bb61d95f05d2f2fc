"""One value of a sample, with all that may be asked of it. What is not asked for is not read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as option
from functools import cached_property
from typing import Any

import numpy as np

from fastloader.errors import DecodeError
from fastloader.fields import (
    AudioCompressedField,
    AudioTokensField,
    AudioWaveformField,
    BoxesField,
    BytesField,
    EmbeddingField,
    EncodedAudio,
    Field,
    FloatField,
    ImageFileField,
    IntField,
    JPEGImageField,
    JSONField,
    KeypointsField,
    MaskField,
    NDArrayField,
    OpticalFlowField,
    PackedTextField,
    PNGImageField,
    RawImageField,
    SpectrogramField,
    TextField,
    TokenizedTextField,
    VideoCompressedField,
    VideoFramesField,
    WebPImageField,
)
from fastloader.fields.sound_files import facts_of
from fastloader.formats.decoding import WholeNumberField
from fastloader.types import FIRST_USER_TYPE
from fastloader.viewer.media import Media, sniff

Facts = dict[str, Any]

_KINDS: tuple[tuple[type[Field], str], ...] = (
    (IntField, "number"), (FloatField, "number"), (WholeNumberField, "number"), (TextField, "text"),
    (JSONField, "json"), (BytesField, "bytes"), (RawImageField, "image"), (ImageFileField, "image"),
    (MaskField, "mask"), (AudioCompressedField, "sound"), (AudioWaveformField, "sound"),
    (SpectrogramField, "spectrogram"), (AudioTokensField, "array"), (VideoCompressedField, "video"),
    (VideoFramesField, "frames"), (OpticalFlowField, "flow"), (TokenizedTextField, "tokens"),
    (PackedTextField, "packed"), (EmbeddingField, "array"), (BoxesField, "boxes"), (KeypointsField, "points"),
    (NDArrayField, "array"),
)  # fmt: skip
_IMAGES = {
    "image/jpeg": JPEGImageField(seekable=False, verbatim=True),
    "image/png": PNGImageField(),
    "image/webp": WebPImageField(),
}
LIGHT = frozenset({"number", "text", "json", "boxes", "points", "tokens", "packed", "value"})
"""Kinds whose values are read to be told of; of others the tables tell enough."""


def kind_of(known: Field | None) -> str:
    """How values of a field are shown; "bytes" and "value" depend on each of them."""
    if known is None:
        return "bytes"
    if known.type_id >= FIRST_USER_TYPE:
        return "value"
    return next((kind for cls, kind in _KINDS if isinstance(known, cls)), "value")


def kind_of_value(value: Any) -> str:
    """The same of a value that no field tells of."""
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes"
    if isinstance(value, EncodedAudio):
        return "sound"
    if isinstance(value, np.ndarray):
        return "image" if _is_picture(value) else "array"
    return "json"


def _is_picture(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (1, 3, 4) and min(array.shape[:2]) > 8


@dataclass(frozen=True, eq=False)
class Item:
    """A value: ``read`` gives it decoded, ``stored`` its bytes as files have them, ``facts`` what tables say.

    ``row`` is its metadata row, ``payload`` gives its bytes with what a field keeps beside them. ``number`` is the
    index of the sample.
    """

    number: int
    name: str
    given_kind: str
    given_field: Field | None
    read: Callable[[], Any]
    stored: Callable[[], Any] | None = None
    facts: Facts = option(default_factory=dict)
    row: Any = None
    payload: Callable[[], Any] | None = None

    @cached_property
    def value(self) -> Any:
        """The value; of bytes that are a file of a known kind, what is in it."""
        if self.media is not None:
            return self._of_file()
        return self.read()

    @cached_property
    def data(self) -> Any:
        """The stored bytes."""
        if self.stored is not None:
            return self.stored()
        found = self.read()
        if isinstance(found, EncodedAudio):
            return found.data
        return found if isinstance(found, bytes | bytearray | memoryview) else b""

    @cached_property
    def media(self) -> Media | None:
        """What bytes turned out to be."""
        given = self.given_kind
        if given == "value":
            given = kind_of_value(self.read())
        return sniff(self.data) if given == "bytes" else None

    @cached_property
    def kind(self) -> str:
        """How it is shown."""
        if self.media is not None:
            return self.media.kind
        return kind_of_value(self.read()) if self.given_kind == "value" else self.given_kind

    @property
    def field(self) -> Field | None:
        """What the value is a value of, where that is known."""
        if self.media is not None:
            return _IMAGES.get(self.media.type)
        return self.given_field

    def _of_file(self) -> Any:
        assert self.media is not None
        data = bytes(self.data)
        if self.media.kind == "json":
            return json.loads(data)
        if self.media.kind == "text":
            return data.decode()
        if self.media.kind == "array":
            try:
                return np.load(io.BytesIO(data), allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise DecodeError(f"is no array: {error}") from error
        if self.media.kind == "sound":
            facts = facts_of(data)
            return EncodedAudio(data, facts.codec, facts.sample_rate, facts.channels, facts.frames)
        return data
