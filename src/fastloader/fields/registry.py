"""Which class reads which type id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastloader.errors import UnknownTypeError
from fastloader.fields.audio import AudioWaveformField
from fastloader.fields.audio_compressed import AudioCompressedField
from fastloader.fields.audio_spectrogram import SpectrogramField
from fastloader.fields.audio_tokens import AudioTokensField
from fastloader.fields.base import Field
from fastloader.fields.basic import BytesField, FloatField, IntField, JSONField
from fastloader.fields.embedding import EmbeddingField
from fastloader.fields.flow import OpticalFlowField
from fastloader.fields.image import JPEGImageField, PNGImageField, RawImageField, WebPImageField
from fastloader.fields.mask import MaskField
from fastloader.fields.ndarray import NDArrayField
from fastloader.fields.nested_dict import DictField
from fastloader.fields.nested_list import ListField
from fastloader.fields.packed import PackedTextField
from fastloader.fields.shapes import BoxesField, KeypointsField
from fastloader.fields.text import TextField
from fastloader.fields.tokenized import TokenizedTextField, TokenStreamField
from fastloader.fields.video_compressed import VideoCompressedField
from fastloader.fields.video_frames import VideoFramesField
from fastloader.types import FIRST_USER_TYPE

BY_TYPE_ID: dict[int, type[Field]] = {
    cls.type_id: cls
    for cls in (
        IntField, FloatField, BytesField, NDArrayField, JSONField, RawImageField, JPEGImageField, PNGImageField,
        WebPImageField, AudioWaveformField, AudioCompressedField, SpectrogramField, AudioTokensField, VideoFramesField,
        VideoCompressedField, OpticalFlowField, TextField, TokenizedTextField, PackedTextField, TokenStreamField,
        EmbeddingField, BoxesField, KeypointsField, MaskField, ListField, DictField,
    )
}  # fmt: skip

F = TypeVar("F", bound=type[Field])


def register_type(type_id: int) -> Callable[[F], F]:
    """Class decorator: store this field under a type id of your own, 1000 or above."""
    if not FIRST_USER_TYPE <= type_id < 2**32:
        raise ValueError(f"type id {type_id}: your own types are numbered from {FIRST_USER_TYPE} up")

    def register(cls: F) -> F:
        known = BY_TYPE_ID.get(type_id)
        if known is not None and f"{known.__module__}.{known.__qualname__}" != f"{cls.__module__}.{cls.__qualname__}":
            raise ValueError(f"type id {type_id} is taken by {known.__qualname__}")
        cls.type_id = type_id
        BY_TYPE_ID[type_id] = cls
        return cls

    return register


def field_class(type_id: int) -> type[Field]:
    """The class registered for a type id."""
    if type_id not in BY_TYPE_ID:
        hint = (
            "import the module that calls register_type for it first; on the command line, with --import"
            if type_id >= FIRST_USER_TYPE
            else "a newer fastloader may know it: pip install -U fastloader"
        )
        raise UnknownTypeError(f"no field class is registered for type id {type_id}", hint=hint)
    return BY_TYPE_ID[type_id]
