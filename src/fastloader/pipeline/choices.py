"""Pipelines that take one element of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import OperationError
from fastloader.fields import Field, ListField
from fastloader.ops import Choose
from fastloader.pipeline.compiler import wrong
from fastloader.pipeline.pieces import PipelineError


@dataclass(frozen=True, slots=True)
class ChoicePipeline:
    """Which element is taken, of what, and how that is told."""

    op: Choose
    inner: Field
    seed: int
    lines: tuple[str, ...]

    def run(
        self, values: Sequence[Any], samples: NDArray[np.int64], epoch: int
    ) -> tuple[Any, dict[int, OperationError]]:
        """The element of each sample, collated as the inner field does it, and by row what could not be had.

        ``None`` stands for what is missing and stays so; then the result is a list.
        """
        chosen: list[Any] = [None] * len(samples)
        faults: dict[int, OperationError] = {}
        for row, sample in enumerate(samples.tolist()):
            elements = values[row]
            if elements is None:
                continue
            place = self._place(len(elements), sample, epoch)
            if place is None:
                faults[row] = OperationError(
                    f"the operation {self.op} finds {len(elements)} elements", hint="on_error='skip' leaves it out"
                )
            else:
                chosen[row] = elements[place]
        return (chosen if any(one is None for one in chosen) else self.inner.collate(chosen)), faults

    def _place(self, count: int, sample: int, epoch: int) -> int | None:
        if self.op.index is not None:
            return self.op.index if -count <= self.op.index < count else None
        if count == 0:
            return None
        out = np.empty(1, np.uint64)
        kernels.random_below(self.seed, epoch, sample, 0, out, count)
        return int(out[0])


def compile_choice(name: str, field: Field, ops: Sequence[Any], seed: int) -> ChoicePipeline:
    """The pipeline of a field of lists; what does not fit raises ``PipelineError``."""
    if not isinstance(field, ListField):
        raise PipelineError(f"pipelines for {name!r}: {field!r} has no lists", hint="Choose takes ListField")
    lines = [f"{type(field).__name__} {name!r}: lists of {field.field!r}"]
    for op in ops[1:] if isinstance(ops[0], Choose) else ops[:1]:
        raise wrong(lines, op, "can't stand here: Choose stands alone")
    lines += [f"{ops[0]}: one of {field.field!r}", "in Python, the whole batch at once"]
    return ChoicePipeline(ops[0], field.field, seed, tuple(lines))
