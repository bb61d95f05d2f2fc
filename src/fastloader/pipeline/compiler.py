"""Checks a pipeline before any data is read, and turns it into a native program."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError
from fastloader.fields import Field, JPEGImageField, PNGImageField, RawImageField
from fastloader.ops import Cast, Layout, Normalize, Op, Pixels

_JPEG, _PNG, _RAW = range(3)
MAX_OPS = 1 << 16


class PipelineError(FastLoaderError, ValueError):
    """A pipeline that can't be run, drawn with the place marked."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A pipeline ready for the engine, and how it is told."""

    program: kernels.Program
    result: Pixels
    lines: tuple[str, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of a finished row."""
        return self.program.row_bytes

    def values(self, data: NDArray[np.uint8], samples: int) -> NDArray[Any]:
        """The engine's bytes as the batch's array."""
        shape, dtype = [side or 0 for side in self.result.shape], element_type(self.result.dtype)
        if not len(data):  # nothing was there, so nothing was allocated
            return np.broadcast_to(np.zeros((), dtype), (samples, *shape))
        return data.view(dtype).reshape(samples, *shape)


def element_type(name: str) -> np.dtype[Any]:
    """Numpy's dtype; bfloat16 is one of ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        found: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        raise PipelineError("numpy has no bfloat16 of its own", hint="pip install ml_dtypes, or use float16") from None
    return found


def compile_pipeline(name: str, field: Field, ops: Sequence[Op], seed: int) -> Compiled:
    """The program of a field's pipeline. What does not fit raises ``PipelineError`` with the pipeline drawn."""
    stored, raw, given = _stored(name, field)
    ops = list(ops)
    if len(ops) > MAX_OPS:
        raise PipelineError(f"pipelines for {name!r}: {len(ops)} operations; at most {MAX_OPS}")
    lines = [f"{type(field).__name__} {name!r}: {given}"]
    pixels = given
    for op in ops:
        if not isinstance(op, Op):
            raise _wrong(lines, op, f"is no operation but a {type(op).__name__}; see fastloader.ops")
        try:
            pixels = op.output(pixels)
        except ValueError as error:
            raise _wrong(lines, op, str(error)) from None
        lines.append(f"{op}: {pixels}")
    if pixels.height is None or pixels.width is None:
        raise _wrong(lines, None, "the images of a batch must have one size: add a crop, or a Resize((height, width))")
    element_type(pixels.dtype)
    scale, bias = next((op.factors(pixels.channels) for op in ops if isinstance(op, Normalize)), ([1.0] * 4, [0.0] * 4))
    steps = [(i, step) for i, op in enumerate(ops) if (step := op.step()) is not None]
    program = kernels.Program(
        stored, isinstance(field, JPEGImageField) and field.seekable, raw,
        [(kernels.STEPS.index(step.kind), i, step.height, step.width, step.filter, step.numbers) for i, step in steps],
        (pixels.height, pixels.width, pixels.channels), kernels.ELEMENTS.index(pixels.dtype),
        kernels.LAYOUTS.index(pixels.layout.lower()), _four(scale, 1.0), _four(bias, 0.0), seed,
    )  # fmt: skip
    fused = sum(isinstance(op, Normalize | Cast | Layout) for op in ops)
    lines.append(
        f"native, in one pass from stored bytes to the batch: {len(steps)} steps, {fused} folded into"
        f" the cast; {program.row_bytes:,} bytes a sample"
    )
    return Compiled(program, pixels, tuple(lines))


def _stored(name: str, field: Field) -> tuple[int, tuple[int, int, int], Pixels]:
    """How the field's images are stored, their shape where it is one, and what decoding gives."""
    if isinstance(field, JPEGImageField):
        return _JPEG, (0, 0, 0), Pixels(None, None)
    if isinstance(field, PNGImageField):
        return _PNG, (0, 0, 0), Pixels(None, None)
    if isinstance(field, RawImageField) and field.dtype == "uint8" and field.channels <= 4:
        return _RAW, field.shape, Pixels(field.height, field.width)
    raise PipelineError(
        f"pipelines for {name!r}: {field!r} has no 8-bit images",
        hint="pipelines take JPEGImageField, PNGImageField and RawImageField of uint8; use transforms= for others",
    )


def _wrong(lines: list[str], op: Any, why: str) -> PipelineError:
    marked = [f"    {line}" for line in lines] + [f"--> {'' if op is None else f'{op}: '}{why}"]
    return PipelineError("this pipeline can't be run:\n" + "\n".join(marked))


def _four(numbers: Sequence[float], rest: float) -> tuple[float, float, float, float]:
    a, b, c, d = [*numbers, *([rest] * (4 - len(numbers)))][:4]
    return a, b, c, d
