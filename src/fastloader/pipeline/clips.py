"""Pipelines of videos: which frames are decoded, and the operations on images that each of them goes through.

What an operation draws is a matter of seed, epoch, sample and operation, so all frames of a clip get the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.fields import (
    Field,
    FramesVideo,
    RawImageField,
    Video,
    VideoCompressedField,
    VideoFramesField,
    libav,
)
from fastloader.ops import Random, Views
from fastloader.ops.clips import Chosen, ClipOp, DecodeResize, Frames
from fastloader.pipeline.compiler import Compiled, compile_pipeline, wrong
from fastloader.pipeline.draws import Sharer
from fastloader.pipeline.images import Area, Sizes, returned, sizes_of
from fastloader.pipeline.pieces import PipelineError, element_type
from fastloader.pipeline.values import functions_from

FIRST_NUMBER = 1 << 30
"""Numbers of operations on frames, behind those of images, views and batches, so that no two draw the same."""


@dataclass(frozen=True, slots=True)
class ClipPipeline:
    """The operations on a field of videos, and how they are told."""

    name: str
    frames: tuple[ClipOp, ...]
    chosen: Frames
    images: Compiled
    lines: tuple[str, ...]
    seed: int

    @property
    def count(self) -> int:
        """Frames of a clip."""
        return self.chosen.count or 0

    @property
    def shape(self) -> tuple[int, ...]:
        """A clip's: frames, then those of an image."""
        return self.count, *(side or 0 for side in self.images.result.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of a clip."""
        return prod(self.shape) * element_type(self.images.result.dtype).itemsize

    def blank(self, samples: int) -> NDArray[Any]:
        """Room for the clips of a batch."""
        return np.zeros((samples, *self.shape), element_type(self.images.result.dtype))

    def choose(self, video: Video, epoch: int, sample: int) -> NDArray[np.int64]:
        """The numbers of the frames of a clip, in its order."""
        chosen = Chosen(np.arange(video.num_frames), video.times, video.duration)
        for i, op in enumerate(self.frames):
            chosen = op.choose(chosen, Random(self.seed, epoch, sample, FIRST_NUMBER + i))
        return chosen.numbers

    def run(self, video: Video, epoch: int, sample: int, out: NDArray[Any], told: NDArray[np.float64]) -> None:
        """Fills ``out`` with the sample's clip, and ``told`` with what its operations tell, alike of all frames."""
        with video.blamed():
            self._run(video, epoch, sample, out, told)

    @property
    def told(self) -> int:
        """How many numbers that is."""
        return self.images.program.told + (0 if self.images.tail is None else self.images.tail.told)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the batch that it makes."""
        return self._area.field, *self._area.returned

    @property
    def sharers(self) -> tuple[Sharer, ...]:
        """Operations that share their draws."""
        return self.images.sharers

    def returned(self, told: NDArray[np.float64]) -> tuple[dict[str, NDArray[Any]], list[Sizes]]:
        """What was told of a batch's clips, as fields of the batch, and sizes that are to be compared."""
        return returned(self._area, [told]), sizes_of(self._area, [told])

    @property
    def _area(self) -> Area:
        return Area(self.name, (self.images,))

    def _run(self, video: Video, epoch: int, sample: int, out: NDArray[Any], told: NDArray[np.float64]) -> None:
        wanted, places = np.unique(self.choose(video, epoch, sample), return_inverse=True)
        rows = [np.flatnonzero(places == i) for i in range(len(wanted))]
        if isinstance(video, FramesVideo):
            shape = np.array(video.shape, np.uint32)
            for number, where in zip(wanted.tolist(), rows, strict=True):
                self._image(video.stored(number), shape, epoch, sample, out, where, told)
            return
        height, width = self.chosen.size or (video.height, video.width)
        shape = np.array([height, width, video.channels, 8], np.uint32)
        for i, frame in video.each(wanted, self.chosen.size, self.chosen.filter):
            self._image(np.ascontiguousarray(frame), shape, epoch, sample, out, rows[i], told)

    def _image(
        self, frame: Any, shape: NDArray[np.uint32], epoch: int, sample: int, out: NDArray[Any],
        rows: NDArray[np.int64], told: NDArray[np.float64],
    ) -> None:  # fmt: skip
        """One frame through the operations on images, to all its places in the clip."""
        first = out[rows[0]]
        mine, behind = told[: self.images.program.told], told[self.images.program.told :]
        if self.images.tail is None:
            self.images.program.run(frame, shape, epoch, sample, first.view(np.uint8), mine)
        else:
            made = np.empty(self.images.row_bytes, np.uint8)
            self.images.program.run(frame, shape, epoch, sample, made, mine)
            first[...] = self.images.tail.run(self.images.values(made[None])[0], epoch, sample, behind)
        out[rows[1:]] = first


def is_clip(field: Field, ops: Sequence[Any] | Views) -> bool:
    """Whether this is a pipeline of videos; functions of the user's alone get whole values."""
    if not isinstance(ops, Views) and any(isinstance(op, ClipOp) for op in ops):
        return True
    whole = not isinstance(ops, Views) and bool(ops) and functions_from(ops) == 0
    return isinstance(field, VideoCompressedField | VideoFramesField) and not whole


def compile_clips(name: str, field: Field, ops: Sequence[Any] | Views, seed: int) -> ClipPipeline:
    """The pipeline of a field of videos; what does not fit raises ``PipelineError`` with the pipeline drawn."""
    if not isinstance(field, VideoCompressedField | VideoFramesField):
        raise PipelineError(
            f"pipelines for {name!r}: {field!r} has no videos",
            hint="ClipSampler and the like take VideoCompressedField and VideoFramesField",
        )
    if isinstance(ops, Views):
        raise PipelineError(
            f"pipelines for {name!r}: {field!r} has videos, and Views are of images", hint="give a list"
        )
    given = Frames()
    lines = [f"{type(field).__name__} {name!r}: {given}"]
    first = next((i for i, op in enumerate(ops) if not isinstance(op, ClipOp)), len(ops))
    for op in ops[:first]:
        try:
            if isinstance(op, DecodeResize) and not isinstance(field, VideoCompressedField):
                raise ValueError("resizes what FFmpeg decodes, and these frames are pictures: use Resize")
            given = op.output(given)
        except ValueError as error:
            raise wrong(lines, op, str(error)) from None
        lines.append(f"{op}: {given}")
    if given.count is None:
        raise wrong(lines, None, "the clips of a batch must have one length: begin with a ClipSampler")
    images = _images(name, field, given, ops[first:], seed, lines)
    behind = 1 + len(ops) - first
    lines += [*images.lines[1:behind], *_told(field), *(f"each frame: {line}" for line in images.lines[behind:])]
    if isinstance(field, VideoCompressedField):
        libav.require()
    return ClipPipeline(name, tuple(ops[:first]), given, images, tuple(lines), seed)


def _images(
    name: str, field: VideoCompressedField | VideoFramesField, given: Frames, ops: Sequence[Any], seed: int,
    lines: list[str],
) -> Compiled:  # fmt: skip
    """The operations on single frames, compiled as those on images are."""
    late = next((i for i, op in enumerate(ops) if isinstance(op, ClipOp)), None)
    if late is not None:
        drawn = [*lines, *map(str, ops[:late])]
        raise wrong(drawn, ops[late], "chooses frames, which comes first: put it before operations on images")
    one: Field = field
    if given.size is not None:
        one = RawImageField(*given.size)
    elif isinstance(field, VideoFramesField) and field.format != "raw":
        one = field.picture
    try:
        return compile_pipeline(name, one, list(ops), seed)
    except PipelineError as error:
        head, *rest = error.message.split("\n")
        if not rest:
            raise
        raise PipelineError("\n".join([head, *(f"    {line}" for line in lines), *rest[1:]])) from None


def _told(field: VideoCompressedField | VideoFramesField) -> list[str]:
    told = ["in Python threads, which let go of the GIL: frames are chosen before anything is decoded"]
    if isinstance(field, VideoCompressedField):
        told.append("by FFmpeg, one thread a clip: the groups of pictures that are needed, to RGB")
    return told
