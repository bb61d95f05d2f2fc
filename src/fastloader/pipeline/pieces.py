"""A pipeline cut where it leaves the native program: custom operations, and what comes behind them."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import OperationError
from fastloader.ops import CustomOp, Op, Pixels, Poison, Random

NO_NUMBA = 'numba is not installed; pip install "fastloader[jit]" brings it'


Apart = CustomOp | Poison
"""Operations that are no part of a native program."""


class Piece(NamedTuple):
    """Neighbouring operations that one thing runs, with their numbers."""

    ops: list[tuple[int, Op]]
    given: Pixels
    made: Pixels

    @property
    def apart(self) -> Apart | None:
        """The operation that is alone in its piece, if it is one of those."""
        op = self.ops[0][1] if self.ops else None
        return op if isinstance(op, Apart) else None


def cut(ops: Sequence[Op], pixels: Sequence[Pixels]) -> list[Piece]:
    """The pieces; ``pixels`` are those before the first op, and behind each. The first piece is native, if empty."""
    pieces = [Piece([], pixels[0], pixels[0])]
    for i, op in enumerate(ops):
        last = pieces[-1]
        if isinstance(op, Apart) or last.apart is not None:
            pieces.append(Piece([(i, op)], pixels[i], pixels[i + 1]))
        else:
            pieces[-1] = Piece([*last.ops, (i, op)], last.given, pixels[i + 1])
    return pieces


def check_behind(piece: Piece) -> None:
    """A native piece behind a custom operation starts from an image in memory."""
    if piece.given.dtype != "uint8" or piece.given.layout != "HWC" or piece.given.channels not in (1, 3):
        raise ValueError(
            f"behind a custom operation takes uint8 pixels (height, width, 1 or 3 channels), and gets {piece.given}: "
            "put it before"
        )


def row_bytes(pixels: Pixels) -> int:
    """Bytes of one image."""
    height, width, channels = pixels.height or 0, pixels.width or 0, pixels.channels
    return height * width * channels * np.dtype(pixels.dtype).itemsize


def why_python(op: CustomOp, jit: ModuleType | None) -> str | None:
    """Why the operation is not compiled; ``None`` where it is."""
    if not op.jit:
        return "jit=False"
    return NO_NUMBA if jit is None else None


class Stage(NamedTuple):
    """One step behind the engine: an operation, or a native program over what came before."""

    number: int
    runs: Apart | kernels.Program
    given: Pixels
    made: Pixels


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
        """The finished image, in the memory it was given where that fits; ``told`` gets the numbers told."""
        for number, runs, given, made in self.stages:
            out = np.empty([side or 0 for side in made.shape], made.dtype)
            if isinstance(runs, kernels.Program):
                shape = np.array([given.height, given.width, given.channels, 8], np.uint32)
                mine = None if told is None else told[: runs.told]
                runs.run(np.ascontiguousarray(row), shape, epoch, sample, out, mine)
                told = None if told is None else told[runs.told :]
                row = out
                continue
            if isinstance(runs, Poison):
                row = runs.lay_over(row, sample)
                continue
            random = Random(self.seed, epoch, sample, number)
            arguments = (row, random) if runs.in_place else (row, out, random)
            try:
                # Compiled code counts with 64 bits: what would wrap round here has another result there.
                with np.errstate(over="raise"):
                    runs.function(*arguments)
            except Exception as error:
                raise _failed(runs, error) from error
            row = row if runs.in_place else out
        return row


def _failed(op: CustomOp, error: Exception) -> OperationError:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"line {last.lineno} of {Path(last.filename).name}"
    return OperationError(
        f"the operation {op} failed in {where}: {type(error).__name__}: {error}",
        hint="on_error='skip' leaves out the sample",
    )
