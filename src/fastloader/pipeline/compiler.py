"""Checks a pipeline before any data is read, and turns it into a native program."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError
from fastloader.fields import Field, ImageFileField, JPEGImageField, RawImageField, WebPImageField
from fastloader.ops import CustomOp, Normalize, Op, Orient, Pixels, Poison
from fastloader.pipeline.draws import MAX_OPS, Entry, Sharer, Told, entry_of, sharers_of, told_of
from fastloader.pipeline.pieces import Apart, Piece, Stage, Tail, check_behind, cut, row_bytes, why_python

LONGEST_SIDE = 1 << 20
"""Of an image, as the native part has it."""
_RAW = 2
_STORED = {kernels.JPEG: 0, kernels.PNG: 1, kernels.WEBP: 3}
"""How the native part calls what is stored."""


class PipelineError(FastLoaderError, ValueError):
    """A pipeline that can't be run, drawn with the place marked."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A pipeline ready for the engine, what Python does behind it, if anything, and how it is told."""

    program: kernels.Program
    result: Pixels
    lines: tuple[str, ...]
    native: Pixels
    tail: Tail | None = None
    told: tuple[Told, ...] = ()
    sharers: tuple[Sharer, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as the engine makes it."""
        return self.program.row_bytes

    def values(self, rows: NDArray[np.uint8]) -> NDArray[Any]:
        """The engine's bytes, a row a sample, as an array."""
        shape, dtype = (side or 0 for side in self.native.shape), element_type(self.native.dtype)
        return rows.view(dtype).reshape(len(rows), *shape)

    def blank(self, samples: int) -> NDArray[Any]:
        """Room for finished images."""
        return np.zeros((samples, *(side or 0 for side in self.result.shape)), self.result.dtype)


def element_type(name: str) -> np.dtype[Any]:
    """Numpy's dtype; bfloat16 is one of ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        found: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        raise PipelineError("numpy has no bfloat16 of its own", hint="pip install ml_dtypes, or use float16") from None
    return found


def compile_pipeline(
    name: str, field: Field, ops: Sequence[Op], seed: int, first_number: int = 0, view: str = ""
) -> Compiled:
    """The program of a field's pipeline. What does not fit raises ``PipelineError`` with the pipeline drawn.

    Operations draw by their numbers: ``first_number`` and those that follow. ``view`` tells which view it is.
    """
    stored, raw, given = _stored(name, field)
    ops = list(ops)
    if len(ops) > MAX_OPS:
        raise PipelineError(f"pipelines for {name!r}: {len(ops)} operations; at most {MAX_OPS}")
    lines = [f"{type(field).__name__} {name!r}{view and f', view {view}'}: {given}"]
    pixels = [given]
    entries: list[Entry] = []
    for i, op in enumerate(ops):
        if not isinstance(op, Op):
            raise wrong(lines, op, f"is no operation but a {type(op).__name__}; see fastloader.ops")
        try:
            if isinstance(op, Orient):
                stored |= _turned(field, i)
            entries.append(entry_of(op, first_number, entries))
            if i and isinstance(entries[i - 1].op, Apart) and not isinstance(entries[i].op, Apart):
                check_behind(Piece([(i, op)], pixels[-1], pixels[-1]))
            pixels.append(op.output(pixels[-1]))
        except ValueError as error:
            raise wrong(lines, op, str(error)) from None
        lines.append(f"{op}: {pixels[-1]}" + (f"; {entries[i].returned}" if entries[i].returns else ""))
    result = pixels[-1]
    if result.height is None or result.width is None:
        raise wrong(lines, None, "the images of a batch must have one size: add a crop, or a Resize((height, width))")
    element_type(result.dtype)
    first, *rest = cut([entry.op for entry in entries], pixels)
    program = _native(first, stored, isinstance(field, JPEGImageField) and field.seekable, raw, seed, entries)
    steps = sum(op.step() is not None for _, op in first.ops)
    turned = ", images upright" if stored & kernels.UPRIGHT else ""
    folded = len(first.ops) - steps - sum(isinstance(op, Orient) for _, op in first.ops)
    told = [
        f"native, in one pass from stored bytes to {'memory' if rest else 'the batch'}: {steps} steps,"
        f" {folded} folded into the cast{turned}; {program.row_bytes:,} bytes a sample"
    ]
    program, native, stages, more = _link(rest, program, lines, first.made, seed, entries)
    tail = Tail(stages, seed) if stages else None
    return Compiled(program, result, (*lines, *told, *more), native, tail, told_of(entries), sharers_of(name, entries))


def _link(
    pieces: Sequence[Piece],
    program: kernels.Program,
    lines: list[str],
    native: Pixels,
    seed: int,
    entries: Sequence[Entry],
) -> tuple[kernels.Program, Pixels, tuple[Stage, ...], list[str]]:
    """The program with all behind it that the engine can do, what that makes, the rest for Python, and words on it."""
    jit = _jit() if any(isinstance(piece.apart, CustomOp) and piece.apart.jit for piece in pieces) else None
    stages: list[Stage] = []
    told = []
    for piece in pieces:
        op, place = piece.apart, piece.ops[0][0]
        number = entries[place].number
        why = why_python(op, jit) if isinstance(op, CustomOp) else None
        if stages or why is not None:
            stages.append(Stage(number, op or _native_behind(piece, seed, entries), piece.given, piece.made))
            told.append(_told_of_python(piece, why))
            continue
        native = piece.made
        if isinstance(op, CustomOp):
            assert jit is not None
            try:
                address = jit.address(op, piece.given, piece.made)
            except jit.Uncompilable as error:
                raise wrong(lines[: place + 1], op, str(error)) from None
            program = program.then_function(address, op.name, number, row_bytes(piece.made), op.in_place)
            told.append(f"compiled by numba, in the engine's threads without the GIL: {op}")
            continue
        if isinstance(op, Poison):
            program = program.then_overlay(op.mask, op.share, np.asarray(op.samples).tolist())
        else:
            program = program.then(_native_behind(piece, seed, entries))
        told.append(f"native, from memory to memory: {', '.join(str(op) for _, op in piece.ops)}")
    return program, native, tuple(stages), told


def _native(
    piece: Piece, stored: int, seekable: bool, raw: tuple[int, int, int], seed: int, entries: Sequence[Entry]
) -> kernels.Program:
    """The program of a native piece."""
    made = piece.made
    factors = (op.factors(made.channels) for _, op in piece.ops if isinstance(op, Normalize))
    scale, bias = next(factors, ([1.0] * 4, [0.0] * 4))
    steps = [(entries[i].number, step, tells) for i, _ in piece.ops for step, tells in entries[i].steps()]
    return kernels.Program(
        stored, seekable, raw,
        [(kernels.STEPS.index(step.kind), number, step.height, step.width, step.filter, step.numbers)
         for number, step, _ in steps],
        (made.height or 0, made.width or 0, made.channels), kernels.ELEMENTS.index(made.dtype),
        kernels.LAYOUTS.index(made.layout.lower()), _four(scale, 1.0), _four(bias, 0.0), seed,
        [i for i, (_, _, tells) in enumerate(steps) if tells],
    )  # fmt: skip


def _native_behind(piece: Piece, seed: int, entries: Sequence[Entry]) -> kernels.Program:
    """The same over an image in memory."""
    shape = (piece.given.height or 0, piece.given.width or 0, piece.given.channels)
    return _native(piece, _RAW, False, shape, seed, entries)


def _told_of_python(piece: Piece, why: str | None) -> str:
    names = ", ".join(str(op) for _, op in piece.ops)
    if piece.apart is None:
        return f"native, called from Python threads: {names}"
    return f"in Python threads, behind the engine: {names} ({why or 'behind an operation in Python'})"


def _jit() -> ModuleType | None:
    """The module that compiles custom operations, where numba is installed."""
    try:
        return importlib.import_module("fastloader.pipeline.jit")
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        return None


def _stored(name: str, field: Field) -> tuple[int, tuple[int, int, int], Pixels]:
    """How the field's images are stored, their shape where it is one, and what decoding gives."""
    if isinstance(field, ImageFileField):
        if isinstance(field, WebPImageField):
            field.get_decoder_class()  # says so where libwebp is missing
        upright = kernels.UPRIGHT | kernels.UPRIGHT_SHAPES if field.orient else 0
        return _STORED[field.kind] | upright, (0, 0, 0), Pixels(None, None)
    if isinstance(field, RawImageField) and field.dtype == "uint8" and field.channels <= 4:
        if max(field.height, field.width) > LONGEST_SIDE:
            raise PipelineError(
                f"pipelines for {name!r}: images of {field.height}x{field.width} pixels; a side has at most {LONGEST_SIDE}"
            )
        return _RAW, field.shape, Pixels(field.height, field.width)
    raise PipelineError(
        f"pipelines for {name!r}: {field!r} has no 8-bit images",
        hint="pipelines take JPEG, PNG and WebP images, and RawImageField of uint8; use transforms= for others",
    )


def _turned(field: Field, place: int) -> int:
    """What turns the stored images of a program whose operation at this place is ``Orient``."""
    if not isinstance(field, ImageFileField):
        raise ValueError("takes images from files, whose EXIF data says how to turn them; raw pixels have none")
    if place:
        raise ValueError("comes first: what is before it would see the image as it lies")
    return kernels.UPRIGHT


def wrong(lines: list[str], op: Any, why: str) -> PipelineError:
    """The error, with the pipeline drawn up to the place."""
    marked = [f"    {line}" for line in lines] + [f"--> {'' if op is None else f'{op}: '}{why}"]
    return PipelineError("this pipeline can't be run:\n" + "\n".join(marked))


def _four(numbers: Sequence[float], rest: float) -> tuple[float, float, float, float]:
    a, b, c, d = [*numbers, *([rest] * (4 - len(numbers)))][:4]
    return a, b, c, d
