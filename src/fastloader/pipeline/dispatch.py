"""Which kind of pipeline a field's operations are, and all of a loader's pipelines compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fastloader.fields import (
    EmbeddingField,
    Field,
    ImageFileField,
    MaskField,
    NDArrayField,
    PointsField,
    RawImageField,
)
from fastloader.functions import COMPILED_TYPES, HALVES
from fastloader.ops import LabelOp, Views
from fastloader.pipeline.clips import compile_clips, is_clip
from fastloader.pipeline.following import compile_following, follows, watched
from fastloader.pipeline.images import check_sharing, compile_images
from fastloader.pipeline.labels import Pipeline, compile_labels
from fastloader.pipeline.pieces import PipelineError
from fastloader.pipeline.sound import compile_sound, takes_sounds
from fastloader.pipeline.values import compile_values

Kind = Literal["clips", "follow", "images", "labels", "sounds", "values"]


def kind_of(field: Field, ops: Any) -> Kind:
    """Which kind a pipeline is."""
    if is_clip(field, ops):
        return "clips"
    if isinstance(ops, Views):
        return "images"
    if follows(ops):
        return "follow"
    if any(isinstance(op, LabelOp) for op in ops):
        return "labels"
    if takes_sounds(field, ops):
        return "sounds"
    return "images" if _is_row(field) else "values"


def _is_row(field: Field) -> bool:
    """Whether the engine makes its values: images, and arrays of a fixed shape."""
    if isinstance(field, PointsField):
        return False
    if isinstance(field, NDArrayField):
        shape = field.fixed_shape
        return (
            shape is not None
            and 0 not in shape
            and field.dtype.isnative
            and field.dtype.name in (*COMPILED_TYPES, *HALVES)
        )
    return isinstance(field, ImageFileField | MaskField | RawImageField | EmbeddingField)


def compile_pipelines(pipelines: Mapping[str, Any], fields: Mapping[str, Field], seed: int) -> dict[str, Pipeline]:
    """The pipelines by field; what does not fit raises ``PipelineError``."""
    given = watched(pipelines, fields)
    made: dict[str, Pipeline] = {}
    followers = []
    for name, ops in given.items():
        field = fields[name]
        kind = kind_of(field, ops)
        if kind == "follow":
            followers.append(name)
        elif kind == "clips":
            made[name] = compile_clips(name, field, ops, seed)
        elif kind == "labels":
            made[name] = compile_labels(name, field, ops, seed)
        elif kind == "sounds":
            made[name] = compile_sound(name, field, ops, seed)
        elif kind == "images":
            if isinstance(ops, Views) and not _is_row(field):
                raise PipelineError(
                    f"pipelines for {name!r}: {field!r} has neither images nor arrays of a fixed shape, and Views are "
                    "of those",
                    hint="give a list",
                )
            made[name] = compile_images(name, field, ops, seed)
        else:
            made[name] = compile_values(name, field, ops, seed)
    for name in followers:
        made[name] = compile_following(name, fields[name], given[name], given, made, seed)
    check_sharing(getattr(one, "sharers", ()) for one in made.values())
    return made
