"""Checks a pipeline before any data is read, and turns it into a native program."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.fields import (
    Field,
    ImageFileField,
    JPEGImageField,
    MaskField,
    RawImageField,
    VideoCompressedField,
    VideoFramesField,
    WebPImageField,
)
from fastloader.ops import CustomOp, Numbers, Op, Orient, Pixels, Poison
from fastloader.pipeline.draws import MAX_OPS, Entry, Sharer, Told, entry_of, sharers_of, told_of
from fastloader.pipeline.pieces import (
    Apart,
    Piece,
    PipelineError,
    Row,
    Stage,
    Tail,
    Values,
    check_behind,
    check_size,
    converted,
    cut,
    element_type,
    made_by,
    misplaced,
    row_bytes,
    sides,
    why_python,
)
from fastloader.types import Buffer

LONGEST_SIDE = 1 << 20
"""Of an image, as the native part has it."""
PART_NUMBER = 3 << 29
"""The number that keys which samples are left to a decoder elsewhere, behind those of operations of any kind."""
_RAW = 2
_STORED = {kernels.JPEG: 0, kernels.PNG: 1, kernels.WEBP: 3, kernels.RUNS: 4, kernels.LABELS: 5}
"""How the native part calls what is stored."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A pipeline ready for the engine, what Python does behind it, if anything, and how it is told."""

    program: kernels.Program
    result: Row
    lines: tuple[str, ...]
    native: Row
    tail: Tail | None = None
    told: tuple[Told, ...] = ()
    sharers: tuple[Sharer, ...] = ()
    functions: tuple[tuple[kernels.Program, Row, Tail], ...] = ()
    """Each that was compiled, in Python, with the program of all before it and what that makes."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as the engine makes it."""
        return self.program.row_bytes

    def values(self, rows: NDArray[np.uint8]) -> NDArray[Any]:
        """The engine's bytes, a row a sample, as an array."""
        return rows.view(element_type(self.native.dtype)).reshape(len(rows), *sides(self.native))

    def with_parts(self, share: float) -> Compiled:
        """Itself with rows as ``kernels.PART`` has them: for this share of the samples, a JPEG in place of pixels."""
        program = self.program.with_parts(share, PART_NUMBER)
        row = Numbers((program.row_bytes,), "uint8")
        told = f"for {share:.4g} of the samples, the part of the JPEG that is needed, for a decoder elsewhere"
        return replace(self, program=program, native=row, result=row, lines=(*self.lines, told))

    def again(self, payload: Buffer, metadata: Buffer, epoch: int, sample: int) -> None:
        """What the engine did to a sample, with compiled functions in Python: they tell more when they fail."""
        for program, given, function in self.functions:
            function.run(made_by(program, given, payload, metadata, epoch, sample), epoch, sample)

    def blank(self, samples: int) -> NDArray[Any]:
        """Room for finished rows."""
        return np.zeros((samples, *sides(self.result)), element_type(self.result.dtype))


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
            raise wrong(lines, op, no_operation(op))
        try:
            if isinstance(op, Orient):
                stored |= _turned(field, i)
            entries.append(entry_of(op, first_number, entries))
            if isinstance(field, MaskField):
                _check_labels(entries[i].op)
            if i and isinstance(entries[i - 1].op, Apart) and not isinstance(entries[i].op, Apart | Values):
                check_behind(pixels[-1])
            pixels.append(op.output(pixels[-1]))
            check_size(pixels[-1])
        except ValueError as error:
            raise wrong(lines, op, str(error)) from None
        lines.append(f"{op}: {pixels[-1]}" + (f"; {entries[i].returned}" if entries[i].returns else ""))
    result = pixels[-1]
    if result.height is None or result.width is None:
        raise wrong(lines, None, "the images of a batch must have one size: add a crop, or a Resize((height, width))")
    element_type(result.dtype)
    first, *rest = cut([entry.op for entry in entries], pixels)
    if (found := misplaced(rest)) is not None:
        place, op, given_there = found
        try:
            check_behind(given_there)
        except ValueError as error:
            raise wrong(lines[: place + 1], op, str(error)) from None
    program = _native(first, stored, isinstance(field, JPEGImageField) and field.seekable, raw, seed, entries)
    steps = sum(op.step() is not None for _, op in first.ops)
    turned = ", images upright" if stored & kernels.UPRIGHT else ""
    folded = len(first.ops) - steps - sum(isinstance(op, Orient) for _, op in first.ops)
    told = [
        f"native, in one pass from stored bytes to {'memory' if rest else 'the batch'}: {steps} steps,"
        f" {folded} folded into the cast{turned}; {program.row_bytes:,} bytes a sample"
    ]
    return linked(name, rest, program, [*lines, *told], first.made, seed, entries)


def linked(
    name: str,
    pieces: Sequence[Piece],
    program: kernels.Program,
    lines: list[str],
    native: Row,
    seed: int,
    entries: Sequence[Entry],
) -> Compiled:
    """The program with all behind it that the engine can do, and the rest for Python."""
    result = pieces[-1].made if pieces else native
    jit = find_jit() if any(isinstance(piece.apart, CustomOp) and piece.apart.jit for piece in pieces) else None
    stages: list[Stage] = []
    functions = []
    told = []
    for piece in pieces:
        op, place = piece.apart, piece.ops[0][0]
        number = entries[place].number
        why = why_python(op, jit, piece.given.dtype) if isinstance(op, CustomOp) else None
        if stages or why is not None:
            stages.append(Stage(number, op or _native_behind(piece, seed, entries), piece.made))
            told.append(_told_of_python(piece, why))
            continue
        native = piece.made
        if isinstance(op, CustomOp):
            assert jit is not None
            try:
                address = jit.address(op, piece.given, piece.made)
            except jit.Uncompilable as error:
                raise wrong(lines[: place + 1], op, str(error)) from None
            functions.append((program, piece.given, Tail((Stage(number, op, piece.made),), seed)))
            program = program.then_function(address, op.name, number, row_bytes(piece.made), op.in_place)
            told.append(f"compiled by numba, in the engine's threads without the GIL: {op}")
            continue
        if isinstance(op, Poison):
            program = program.then_overlay(op.mask, op.share, np.asarray(op.samples).tolist())
        elif piece.converts:
            program = converted(program, piece)
        else:
            program = program.then(_native_behind(piece, seed, entries))
        told.append(f"native, from memory to memory: {', '.join(str(op) for _, op in piece.ops)}")
    tail = Tail(tuple(stages), seed) if stages else None
    draws = told_of(entries), sharers_of(name, entries)
    return Compiled(program, result, (*lines, *told), native, tail, *draws, tuple(functions))


def _native(
    piece: Piece, stored: int, seekable: bool, raw: tuple[int, int, int], seed: int, entries: Sequence[Entry]
) -> kernels.Program:
    """The program of a native piece."""
    made = piece.made
    assert isinstance(made, Pixels)
    scale, bias = piece.factors.factors(made.channels) if piece.factors else ([1.0] * 4, [0.0] * 4)
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
    """The same over an image in memory; of other numbers, their conversion."""
    if piece.converts:
        return converted(kernels.Program.rows(row_bytes(piece.given), seed), piece)
    height, width, channels = sides(piece.given)
    return _native(piece, _RAW, False, (height, width, channels), seed, entries)


def _told_of_python(piece: Piece, why: str | None) -> str:
    names = ", ".join(str(op) for _, op in piece.ops)
    if piece.apart is None:
        return f"native, called from Python threads: {names}"
    return f"in Python threads, behind the engine: {names} ({why or 'behind an operation in Python'})"


def find_jit() -> ModuleType | None:
    """The module that compiles functions of the user's, where numba is installed."""
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
    if isinstance(field, MaskField):
        return _STORED[field.kind], (0, 0, 0), Pixels(None, None, 1)
    if isinstance(field, RawImageField) and field.dtype == "uint8" and field.channels <= 4:
        if max(field.height, field.width) > LONGEST_SIDE:
            raise PipelineError(
                f"pipelines for {name!r}: images of {field.height}x{field.width} pixels; "
                f"a side has at most {LONGEST_SIDE}"
            )
        return _RAW, field.shape, Pixels(field.height, field.width)
    if isinstance(field, VideoCompressedField | VideoFramesField):  # a frame, decoded, of whatever size
        return _RAW, (0, 0, 0), Pixels(None, None)
    raise PipelineError(f"pipelines for {name!r}: {field!r} has no 8-bit images")


def no_operation(op: Any) -> str:
    """What is said of anything that is none."""
    cure = "@fastloader.ops.custom makes it one" if callable(op) else "see fastloader.ops"
    return f"is no operation but a {type(op).__name__}; {cure}"


def _turned(field: Field, place: int) -> int:
    """What turns the stored images of a program whose operation at this place is ``Orient``."""
    if not isinstance(field, ImageFileField):
        raise ValueError("takes image files, whose EXIF data says how to turn them; masks and raw pixels have none")
    if place:
        raise ValueError("comes first: what is before it would see the image as it lies")
    return kernels.UPRIGHT


def _check_labels(op: Op) -> None:
    """A filter over several labels gives one that none of them is."""
    if getattr(op, "filter", "nearest") != "nearest":
        raise ValueError('would mix the labels of a mask: give it filter="nearest"')


def wrong(lines: list[str], op: Any, why: str) -> PipelineError:
    """The error, with the pipeline drawn up to the place."""
    marked = [f"    {line}" for line in lines] + [f"--> {'' if op is None else f'{op}: '}{why}"]
    return PipelineError("this pipeline can't be run:\n" + "\n".join(marked))


def _four(numbers: Sequence[float], rest: float) -> tuple[float, float, float, float]:
    a, b, c, d = [*numbers, *([rest] * (4 - len(numbers)))][:4]
    return a, b, c, d
