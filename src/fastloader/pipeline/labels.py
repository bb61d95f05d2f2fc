"""Pipelines of labels, and operations on whole batches, checked before any data is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import OperationError
from fastloader.fields import Field, FloatField, IntField
from fastloader.ops import BatchOp, LabelOp, Numbers, Pixels
from fastloader.ops.batches import mixed
from fastloader.pipeline.clips import ClipPipeline
from fastloader.pipeline.compiler import wrong
from fastloader.pipeline.decoders import RowPipeline
from fastloader.pipeline.draws import MAX_OPS
from fastloader.pipeline.following import FlowFollowing, Following
from fastloader.pipeline.images import Images
from fastloader.pipeline.pieces import Arrays, PipelineError
from fastloader.pipeline.sound import SoundPipeline
from fastloader.pipeline.values import Values, compile_behind, functions_from
from fastloader.types import Batch


@dataclass(frozen=True, slots=True)
class LabelPipeline:
    """The operations on a field of numbers, and how they are told."""

    ops: tuple[LabelOp, ...]
    result: Numbers
    lines: tuple[str, ...]
    behind: Values | None = None
    """What functions of the user's make of the labels, one by one."""

    def run(
        self, values: NDArray[Any], samples: NDArray[np.int64], there: NDArray[np.bool_] | None
    ) -> tuple[NDArray[Any], dict[int, OperationError]]:
        """The labels of a batch, and by row what could not be made."""
        faults: dict[int, OperationError] = {}
        for op in self.ops:
            refused = op.refused(values)
            if refused is not None and refused.any():
                for row in np.flatnonzero(refused if there is None else refused & there).tolist():
                    faults[row] = OperationError(
                        f"the operation {op} can't take the label {values[row]}", hint="on_error='skip' leaves it out"
                    )
                values = np.where(refused, np.zeros((), values.dtype), values)
            values = op.apply(values, samples)
        return values, faults


def compile_labels(name: str, field: Field, ops: Sequence[Any], seed: int) -> LabelPipeline:
    """The pipeline of a field of numbers; what does not fit raises ``PipelineError`` with the pipeline drawn."""
    if not isinstance(field, IntField | FloatField):
        raise PipelineError(
            f"pipelines for {name!r}: {field!r} has no numbers", hint="OneHot and the like take IntField and FloatField"
        )
    given = Numbers((), "int64" if isinstance(field, IntField) else "float64")
    lines = [f"{type(field).__name__} {name!r}: {given}"]
    first = functions_from(ops)
    for op in ops[:first]:
        if not isinstance(op, LabelOp):
            raise wrong(lines, op, "is no operation on labels; see fastloader.ops")
        try:
            given = op.output(given)
        except ValueError as error:
            raise wrong(lines, op, str(error)) from None
        lines.append(f"{op}: {given}")
    told = "by numpy, the whole batch at once"
    if first == len(ops):
        return LabelPipeline(tuple(ops), given, (*lines, told))
    known = Arrays(given.dtype, len(given.shape)) if given.shape else None
    behind = compile_behind(name, field, ops[first:], seed, lines, known, first)
    return LabelPipeline(tuple(ops[:first]), given, (*behind.lines, told), behind)


Pipeline = Images | LabelPipeline | Following | FlowFollowing | RowPipeline | SoundPipeline | ClipPipeline | Values
"""What can become of a field."""

Pipelines = Mapping[str, Pipeline]
"""Pipelines by field."""


@dataclass(frozen=True, slots=True)
class BatchStep:
    """An operation on whole batches, with its number among all."""

    op: BatchOp
    number: int
    pixels: Any
    dtype: str
    seed: int

    def run(self, batch: Batch, samples: NDArray[np.int64], epoch: int) -> None:
        """Changes the batch's image and label."""
        images, labels = batch[self.op.image], batch[self.op.label]
        for name, values in ((self.op.image, images), (self.op.label, labels)):
            if isinstance(values, np.ma.MaskedArray):
                missing = samples[np.ma.getmaskarray(values).reshape(len(samples), -1).any(axis=1)]
                raise OperationError(
                    f"{self.op} mixes samples, and the value is missing", sample=int(missing[0]), field=name,
                    hint="on_error='skip' leaves out bad samples; indices= leaves out others",
                )  # fmt: skip
        draws = self.op.draw(self.seed, epoch, samples, self.number)
        batch[self.op.image], shares = self.op.mix(images, self.pixels, draws)
        batch[self.op.label] = mixed(labels, self.dtype, draws.partners, shares)

    def __str__(self) -> str:
        return f"{self.op}: {self.op.image!r} and {self.op.label!r}, native, called from Python threads"


def compile_batch_ops(ops: Sequence[Any], pipelines: Pipelines, seed: int) -> tuple[BatchStep, ...]:
    """The steps over whole batches, each checked against the pipelines of its fields."""
    steps = []
    for i, op in enumerate(ops):
        if not isinstance(op, BatchOp):
            raise PipelineError(
                f"batch_ops: {op!r} is no operation on batches", hint="there are ops.Mixup and ops.CutMix"
            )
        images, labels = pipelines.get(op.image), pipelines.get(op.label)
        single = images.single if isinstance(images, Images) else None
        if isinstance(images, Images) and single is None:
            raise PipelineError(f"batch_ops: {op} mixes images, and {op.image!r} has several views of each")
        if single is None or not isinstance(single.result, Pixels):
            raise PipelineError(
                f"batch_ops: {op} mixes images, and {op.image!r} has no pipeline that makes them of one size",
                hint=f"add one, as pipelines={{{op.image!r}: [ops.Resize((224, 224))]}}, or name the field by image=",
            )
        if single.result.dtype not in kernels.ELEMENTS:
            raise PipelineError(
                f"batch_ops: {op} mixes {', '.join(kernels.ELEMENTS)}, and {op.image!r} has {single.result.dtype}",
                hint="add ops.Cast('float32') to its pipeline",
            )
        if not isinstance(labels, LabelPipeline) or labels.behind is not None or len(labels.result.shape) != 1:
            raise PipelineError(
                f"batch_ops: {op} mixes labels, and {op.label!r} has no pipeline that makes them rows of floats",
                hint=f"add one, as pipelines={{{op.label!r}: [ops.OneHot(classes)]}}, or name the field by label=",
            )
        # Numbers behind those that a pipeline can have, so that no two operations draw the same.
        steps.append(BatchStep(op, MAX_OPS + i, single.result, labels.result.dtype, seed))
    return tuple(steps)
