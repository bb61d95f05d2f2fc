"""Pipelines that mutants are led through: images by crops that decode a part and by resizes, videos, sounds."""

from __future__ import annotations

from typing import Any

import numpy as np

import fastloader as fl
from fastloader import ops
from fastloader.fields import (
    AudioCompressedField,
    AudioTokensField,
    AudioWaveformField,
    Field,
    ImageFileField,
    MaskField,
    RawImageField,
    SpectrogramField,
    VideoCompressedField,
    VideoFramesField,
)

PIPELINES: tuple[tuple[ops.Op, ...], ...] = (
    (ops.CenterCrop((3, 4)),),
    (ops.RandomResizedCrop(6, scale=(0.02, 0.5)), ops.HorizontalFlip(), ops.Normalize(100, 50), ops.Cast("float16")),
    (ops.Resize(8), ops.CenterCrop((8, 7)), ops.Grayscale()),
    (ops.RandomCrop((9, 5), padding=6), ops.RandAugment()),
    (ops.Resize((7, 9), "lanczos"), ops.ColorJitter(0.4, 0.4, 0.4, 0.1), ops.RandomErasing(), ops.Layout("CHW")),
)
MASKS: tuple[tuple[ops.Op, ...], ...] = (
    (ops.CenterCrop((3, 4)),),
    (ops.RandomResizedCrop(6, scale=(0.02, 0.5), filter="nearest"), ops.HorizontalFlip(), ops.Cast("float16")),
    (ops.Resize(8, "nearest"), ops.CenterCrop((8, 7))),
    (ops.RandomCrop((9, 5), padding=6), ops.RandomRotation(90)),
    (ops.Resize((7, 9), "nearest"), ops.VerticalFlip(), ops.RandomErasing(), ops.Layout("CHW")),
)
"""As many for masks, whose labels must not be mixed."""
VIDEOS: tuple[tuple[Any, ...], ...] = (
    (ops.ClipSampler(2, short="loop"), ops.CenterCrop((3, 4))),
    (ops.ClipSampler(3, stride=2, short="loop"), ops.RandomResizedCrop(6, scale=(0.1, 0.5)), ops.HorizontalFlip()),
    (ops.ClipSampler(1), ops.Resize(8), ops.CenterCrop(8)),
    (ops.ClipSampler(3, short="repeat"), ops.Resize((7, 9)), ops.ColorJitter(0.4)),
    (ops.ClipSampler(2, mode="uniform"), ops.Resize((4, 5)), ops.Layout("CHW")),
)
SOUNDS: tuple[tuple[Any, ...], ...] = (
    (ops.PadOrTrim(frames=6),), (ops.RandomSegment(frames=5, pad=True),), (ops.RandomSegment(frames=300, pad=True),),
    (ops.PadOrTrim(frames=40, align="end"),), (ops.PadOrTrim(frames=12, align="center"),),
)  # fmt: skip
"""And for videos and sounds."""
CROP = 0
"""The one whose result is a cut from the whole image."""


def able(field: Field) -> bool:
    """Whether the field's images go through pipelines."""
    if isinstance(field, RawImageField):
        return (
            field.dtype == "uint8" and field.channels <= 4 and min(field.shape[:2]) >= 4 and max(field.shape[:2]) <= 100
        )
    if isinstance(field, AudioWaveformField):
        return field.mono
    if isinstance(field, AudioCompressedField):
        return field.sample_rate is not None and field.channels is not None
    return isinstance(field, ImageFileField | MaskField | SpectrogramField | AudioTokensField) or is_video(field)


def is_video(field: Field) -> bool:
    """Whether its pipelines are those of videos."""
    return isinstance(field, VideoCompressedField | VideoFramesField)


def is_image(field: Field) -> bool:
    """Whether its pipelines are those of single images."""
    return isinstance(field, ImageFileField | MaskField | RawImageField)


def of(field: Field) -> tuple[tuple[Any, ...], ...]:
    """The pipelines of a field."""
    if isinstance(field, MaskField):
        return MASKS
    return PIPELINES if is_image(field) else VIDEOS if is_video(field) else SOUNDS


def run(reader: fl.DatasetReader, name: str, number: int, on_error: str, **options: Any) -> list[Any]:
    """What a pipeline makes of every sample; with "replace", ``None`` where there is nothing or it is bad."""
    pipelines = {name: list(of(reader.dataset.field(reader.field_names.index(name)))[number])}
    loader = fl.DataLoader(
        reader, 3, shuffle=False, seed=5, fields=[name], pipelines=pipelines, on_error=on_error, **options
    )
    rows: list[Any] = []
    for batch in loader:
        column = batch[name]
        bad = np.ma.getmaskarray(column).reshape(len(column), -1).all(axis=1)
        rows += [None if missing else np.array(one) for one, missing in zip(np.ma.getdata(column), bad, strict=True)]
    return rows


def cut(image: np.ndarray) -> np.ndarray | None:
    """What ``PIPELINES[CROP]`` makes of a whole image; ``None`` where it is too small."""
    height, width = image.shape[:2]
    if height < 3 or width < 4 or image.dtype != np.uint8:
        return None
    top, left = round((height - 3) / 2), round((width - 4) / 2)
    part = image[top : top + 3, left : left + 4]
    if part.ndim == 2:
        return part[..., None]
    return part[..., :1].repeat(3, axis=2) if part.shape[2] < 3 else part[..., :3]
