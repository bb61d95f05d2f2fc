"""A pipeline cut where it leaves the native program: custom operations, and what comes behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError, OperationError
from fastloader.functions import COMPILED_TYPES, HALVES, RETURNED, line_of
from fastloader.ops import Cast, CustomOp, Layout, Normalize, Numbers, Op, Pixels, Poison, Random
from fastloader.ops.values import element_type as found_type
from fastloader.types import Buffer

MAX_ROW_BYTES = 1 << 40
NO_NUMBA = 'numba is not installed; pip install "fastloader[jit]" brings it'


class PipelineError(FastLoaderError, ValueError):
    """A pipeline that can't be run, drawn with the place marked."""


Apart = CustomOp | Poison
"""Operations that are no part of a native program."""

Values = Cast | Layout | Normalize
"""Operations on what numbers are, which a program does while it casts and a conversion does alone."""

Row = Pixels | Numbers
"""What lies between two operations: an image or an array."""


class Arrays(NamedTuple):
    """Arrays of any size, of which this much is known beforehand."""

    dtype: str
    ndim: int

    def __str__(self) -> str:
        return f"arrays of {self.dtype}, {self.ndim}-dimensional"


class Piece(NamedTuple):
    """Neighbouring operations that one thing runs, with their numbers."""

    ops: list[tuple[int, Op]]
    given: Row
    made: Row

    @property
    def apart(self) -> Apart | None:
        """The operation that is alone in its piece, if it is one of those."""
        op = self.ops[0][1] if self.ops else None
        return op if isinstance(op, Apart) else None

    @property
    def converts(self) -> bool:
        """Whether it starts from numbers that no program takes."""
        return bool(self.ops) and self.apart is None and not _programs_take(self.given)

    @property
    def factors(self) -> Normalize | None:
        """What scales its numbers; at most one operation does."""
        return next((op for _, op in self.ops if isinstance(op, Normalize)), None)

    def takes(self, op: Op) -> bool:
        """Whether the operation can be one more of its own."""
        if isinstance(op, Apart) or self.apart is not None or (isinstance(op, Normalize) and self.factors is not None):
            return False
        if not self.ops:
            return _programs_take(self.given)
        if isinstance(self.made, Numbers) and self.made.dtype in HALVES:
            return False  # what was rounded stays so
        return isinstance(op, Values) or not self.converts


def cut(ops: Sequence[Op], rows: Sequence[Row]) -> list[Piece]:
    """The pieces; ``rows`` are those before the first op, and behind each. The first piece is what is stored, and what
    a program does while it decodes it.
    """
    pieces = [Piece([], rows[0], rows[0])]
    for i, op in enumerate(ops):
        last = pieces[-1]
        if last.takes(op):
            pieces[-1] = Piece([*last.ops, (i, op)], last.given, rows[i + 1])
        else:
            pieces.append(Piece([(i, op)], rows[i], rows[i + 1]))
    return pieces


def _programs_take(row: Row) -> bool:
    return isinstance(row, Pixels) and row.dtype == "uint8" and row.layout == "HWC" and row.channels in (1, 3)


def misplaced(pieces: Sequence[Piece]) -> tuple[int, Op, Row] | None:
    """An operation that would have to start from numbers that no program takes, its place, and those."""
    for piece in pieces:
        for place, op in piece.ops:
            if piece.converts and not isinstance(op, Values):
                return place, op, piece.given
    return None


def check_behind(given: Row) -> None:
    """A program behind a custom operation starts from an image in memory."""
    if not _programs_take(given):
        raise ValueError(
            f"behind a custom operation takes uint8 pixels (height, width, 1 or 3 channels), and gets {given}: "
            "put it before"
        )


def sides(row: Row) -> tuple[int, ...]:
    """The shape of a row whose sides are all known."""
    return tuple(side or 0 for side in row.shape)


def check_size(row: Row) -> None:
    """No row is so large that batches of it can't be counted."""
    if row_bytes(row) > MAX_ROW_BYTES:
        raise ValueError(f"makes {row_bytes(row):,} bytes a sample; at most {MAX_ROW_BYTES:,}")


def row_bytes(row: Row) -> int:
    """Bytes of one."""
    return prod(sides(row)) * element_type(row.dtype).itemsize


def converted(program: kernels.Program, piece: Piece) -> kernels.Program:
    """The program with a conversion behind it."""
    given, made, factors = piece.given, piece.made, piece.factors
    count = prod(sides(given))
    channels = 1
    layouts = ["hwc", "hwc"]
    if isinstance(given, Pixels) and isinstance(made, Pixels):
        channels, layouts = given.channels, [given.layout.lower(), made.layout.lower()]
    elif factors is not None and factors.most > 1:
        channels = given.shape[-1] or 1
    scale, bias = ([], []) if factors is None else factors.factors(channels)
    before, after = (kernels.LAYOUTS.index(layout) for layout in layouts)
    return program.then_conversion(
        kernels.NUMBERS.index(given.dtype), kernels.ELEMENTS.index(made.dtype), (count // channels, channels),
        before, after, scale, bias,
    )  # fmt: skip


def why_python(op: CustomOp, jit: ModuleType | None, dtype: str) -> str | None:
    """Why the operation is not compiled; ``None`` where it is."""
    if not op.jit:
        return "jit=False"
    if dtype not in COMPILED_TYPES:
        return f"numba has no {dtype}"
    return NO_NUMBA if jit is None else None


class Stage(NamedTuple):
    """One step behind the engine: an operation, or a native program over what came before."""

    number: int
    runs: Apart | kernels.Program
    made: Row


@dataclass(frozen=True, slots=True)
class Tail:
    """What Python does to each image behind the engine."""

    stages: tuple[Stage, ...]
    seed: int

    @property
    def told(self) -> int:
        """How many numbers its programs tell."""
        return sum(stage.runs.told for stage in self.stages if isinstance(stage.runs, kernels.Program))

    def run(self, row: NDArray[Any], epoch: int, sample: int, told: NDArray[np.float64] | None = None) -> NDArray[Any]:
        """The finished row, in the memory it was given where that fits; ``told`` gets the numbers told."""
        for number, runs, made in self.stages:
            if isinstance(runs, kernels.Program):
                mine = None if told is None else told[: runs.told]
                out = made_by(runs, made, np.ascontiguousarray(row), b"", epoch, sample, mine)
                told = None if told is None else told[runs.told :]
                row = out
                continue
            if isinstance(runs, Poison):
                row = runs.lay_over(row, sample)
                continue
            random = Random(self.seed, epoch, sample, number)
            out = row if runs.in_place else np.zeros(sides(made), element_type(made.dtype))
            arguments = (row, random) if runs.in_place else (row, out, random)
            try:
                # Compiled code counts with 64 bits: what would wrap round here has another result there.
                with np.errstate(over="raise"):
                    returned: Any = runs.function(*arguments)
            except Exception as error:
                raise failed(runs, error) from error
            if returned is not None:
                raise OperationError(f"the operation {runs} {RETURNED}")
            row = out
        return row


def made_by(
    program: kernels.Program, made: Row, payload: Buffer, metadata: Buffer, epoch: int, sample: int,
    told: NDArray[np.float64] | None = None,
) -> NDArray[Any]:  # fmt: skip
    """One row, by a program called from Python."""
    out = np.empty(sides(made), element_type(made.dtype))
    program.run(payload, metadata, epoch, sample, out.reshape(-1).view(np.uint8), told)
    return out


def failed(op: CustomOp, error: Exception) -> OperationError:
    return OperationError(
        f"the operation {op} failed in {line_of(error)}", hint="on_error='skip' leaves out the sample"
    )


def element_type(name: str) -> np.dtype[Any]:
    """Numpy's dtype; bfloat16 is one of ml_dtypes."""
    try:
        return found_type(name)
    except ModuleNotFoundError as error:
        raise PipelineError(str(error)) from None
