"""Boxes, keypoints and flow that move with an image: its pipeline tells its map, which numpy applies to a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader.fields import BoxesField, Field, KeypointsField, OpticalFlowField, PointsField
from fastloader.ops import ClipOp, DecodeResize, Follow, Geometry, Named, Op, Orient, Pixels, Size, Views
from fastloader.pipeline.clips import ClipPipeline
from fastloader.pipeline.flow import followed
from fastloader.pipeline.images import Images
from fastloader.pipeline.pieces import PipelineError
from fastloader.pipeline.values import Values, compile_behind, known_of

HIDDEN = "\0"
"""Fields whose names begin so are never seen in a batch."""


@dataclass(frozen=True)
class _Map(Geometry):
    def __str__(self) -> str:
        return "Geometry, for what follows the image"


@dataclass(frozen=True)
class _StoredSize(Size):
    def __str__(self) -> str:
        return "Size, for what follows the image"


@dataclass(frozen=True, slots=True)
class Following:
    """The pipeline of a field of points: whom it follows, and how it is told."""

    name: str
    field: PointsField
    op: Follow
    geometry: str
    height: int
    width: int
    lines: tuple[str, ...]
    behind: Values | None = None
    """What functions of the user's make of the rows, sample by sample."""

    @property
    def needs_python(self) -> bool:
        """Whether Python runs once a sample."""
        return self.behind is not None

    @property
    def normalized(self) -> bool:
        """Whether positions are shares of the stored image."""
        return self.field.normalized

    @property
    def returned(self) -> tuple[str, ...]:
        """Fields of the batch besides its own."""
        return () if self.op.returns is None else (self.op.returns,)

    def move(
        self, rows: NDArray[np.float32], samples: NDArray[np.int64], maps: NDArray[Any], sizes: NDArray[Any] | None
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """The rows where they are now, and how much of each is in the picture; ``samples`` says whose each row is.

        ``sizes`` are those of the stored images, (height, width), where positions are shares of them.
        """
        field = self.field
        given = field.positions(rows).astype(np.float64)
        if sizes is not None:
            given = given * sizes[samples][:, None, ::-1]
        mine = maps[samples].astype(np.float64)
        moved = np.einsum("nij,npj->npi", mine[:, :, :2], given) + mine[:, None, :, 2]
        limits = np.array([self.width, self.height], np.float64)
        if isinstance(field, BoxesField):
            made, seen = self._boxes(moved, limits)
        else:
            seen = ((moved >= 0) & (moved < limits)).all(axis=-1)
            made = moved
        if sizes is not None:
            made = made / limits
        result = field.moved(rows, made.astype(np.float32))
        if self.op.clip and isinstance(field, KeypointsField) and field.visibility:
            result[..., 2] *= seen
        return result, seen

    def _boxes(
        self, corners: NDArray[np.float64], limits: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        low, high = corners.min(axis=1), corners.max(axis=1)
        inner_low, inner_high = np.clip(low, 0, limits), np.clip(high, 0, limits)
        area, inner = np.prod(high - low, axis=1), np.prod(inner_high - inner_low, axis=1)
        # A box without area is in the picture where its place is.
        inside = ((low >= 0) & (high <= limits)).all(axis=1)
        seen = np.where(area > 0, inner / np.where(area > 0, area, 1), inside).astype(np.float32)
        if self.op.clip:
            low, high = inner_low, inner_high
        return np.stack([low, high], axis=1), seen


@dataclass(frozen=True, slots=True)
class FlowFollowing:
    """The pipeline of a field of flow: whom it follows, and how it is told."""

    name: str
    op: Follow
    geometry: str
    height: int
    width: int
    lines: tuple[str, ...]
    behind: Values | None = None

    needs_python: ClassVar[bool] = True
    normalized: ClassVar[bool] = False

    @property
    def returned(self) -> tuple[str, ...]:
        """Fields of the batch besides its own."""
        return () if self.op.returns is None else (self.op.returns,)

    def move(self, flow: NDArray[np.float32], matrix: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """A sample's flow as the picture has it now, and where it is known."""
        moved = followed(flow, matrix, (self.height, self.width))
        known: NDArray[np.bool_] = np.logical_not(np.isnan(moved).any(axis=-1))
        return moved, known


def hidden_size(image: str) -> str:
    """The field that holds the sizes of stored images."""
    return f"{HIDDEN}size of {image}"


def watched(pipelines: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """The pipelines, where those that others follow also tell how pixels move."""
    made = dict(pipelines)
    for name, ops in pipelines.items():
        op = _follow(name, ops, fields)
        if op is None:
            continue
        image = made.get(op.image)
        if image is None or op.image == name:
            raise PipelineError(
                f"pipelines for {name!r}: {op} follows {op.image!r}, which has no pipeline",
                hint="name the field of images whose pipeline moves the pixels",
            )
        if isinstance(image, Views):
            raise PipelineError(f"pipelines for {name!r}: {op} can't follow several views of an image")
        if any(isinstance(one, DecodeResize) for one in image):
            raise PipelineError(
                f"pipelines for {name!r}: {op} can't follow frames that FFmpeg resizes",
                hint="a Resize in the place of DecodeResize tells how pixels move",
            )
        if _geometry(image) is None:
            image = [*image, _Map(f"{HIDDEN}map of {op.image}")]
        sized = any(isinstance(one, _StoredSize) for one in image)
        if getattr(fields[name], "normalized", False) and not sized:
            begins = [one for one in image if isinstance(one, ClipOp) or isinstance(_bare(one), Orient)]
            image = [*begins, _StoredSize(hidden_size(op.image)), *image[len(begins) :]]
        made[op.image] = image
    return made


def compile_following(
    name: str, field: Field, ops: Sequence[Any], pipelines: Mapping[str, Any], images: Mapping[str, Any], seed: int
) -> Following | FlowFollowing:
    """The pipeline of a field that follows an image whose pipeline is compiled."""
    op = ops[0]
    image = images.get(op.image)
    single = image.single if isinstance(image, Images) else image.images if isinstance(image, ClipPipeline) else None
    if single is None or not isinstance(single.result, Pixels):
        raise PipelineError(f"pipelines for {name!r}: {op} follows {op.image!r}, which has no images")
    geometry = _geometry(pipelines[op.image])
    assert geometry is not None
    result = single.result
    height, width = result.height or 0, result.width or 0
    lines = [f"{field!r}: {name!r}", f"{op}: moves as {op.image!r} does, in a picture of {height} x {width}"]
    flows = isinstance(field, OpticalFlowField)
    told = "by numpy, behind the engine" if flows else "by numpy, the whole batch at once"
    if op.returns is not None:
        share = "the share of each box in" if isinstance(field, BoxesField) else "whether each point is in"
        lines.append(f"returns {op.returns!r}, {'where flow is known in' if flows else share} the picture")
    behind = None
    if len(ops) > 1:
        known = None if flows else known_of(field)
        behind = compile_behind(name, field, ops[1:], seed, lines, known, 1)
        lines = list(behind.lines)
    lines.append(told)
    if flows:
        return FlowFollowing(name, op, geometry, height, width, tuple(lines), behind)
    assert isinstance(field, PointsField)
    return Following(name, field, op, geometry, height, width, tuple(lines), behind)


def _follow(name: str, ops: Any, fields: Mapping[str, Field]) -> Follow | None:
    found = [] if isinstance(ops, Views) else [op for op in ops if isinstance(op, Follow)]
    if not found:
        return None
    if not isinstance(fields[name], PointsField | OpticalFlowField):
        raise PipelineError(
            f"pipelines for {name!r}: {fields[name]!r} has no boxes, no keypoints and no flow that could follow"
        )
    if len(found) != 1 or not isinstance(ops[0], Follow):
        raise PipelineError(
            f"pipelines for {name!r}: what follows an image begins with one ops.Follow(...), and functions of yours, "
            "Normalize and Cast come behind it"
        )
    return found[0]


def follows(ops: Any) -> bool:
    """Whether a pipeline is one of these."""
    return not isinstance(ops, Views) and any(isinstance(op, Follow) for op in ops)


def _bare(op: Any) -> Any:
    return op.op if isinstance(op, Named) else op


def _geometry(ops: Iterable[Op]) -> str | None:
    """The field that the last ``Geometry`` of a pipeline returns."""
    told = [one.returns for one in map(_bare, ops) if isinstance(one, Geometry)]
    return told[-1] if told else None
