"""Pipelines of arrays: custom operations, Cast and Normalize on each row of a field with a fixed shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastloader import kernels
from fastloader.fields import Field, NDArrayField, RawImageField
from fastloader.ops import ArrayOp, Numbers, Op
from fastloader.pipeline.compiler import Compiled, linked, no_operation, wrong
from fastloader.pipeline.pieces import PipelineError, cut, element_type, row_bytes


def is_array(field: Field) -> bool:
    """Whether its pipelines are those of arrays; those of 8-bit images are not."""
    return isinstance(field, NDArrayField) or (isinstance(field, RawImageField) and field.dtype != "uint8")


def compile_arrays(name: str, field: Field, ops: Sequence[Any], seed: int) -> Compiled:
    """The program of an array's pipeline; what does not fit raises ``PipelineError`` with the pipeline drawn."""
    given = _stored(name, field)
    lines = [f"{type(field).__name__} {name!r}: {given}"]
    rows = [given]
    for op in ops:
        if not isinstance(op, Op):
            raise wrong(lines, op, no_operation(op))
        if not isinstance(op, ArrayOp):
            raise wrong(lines, op, "is no operation on arrays: those are custom operations, Cast and Normalize")
        try:
            rows.append(op.array_output(rows[-1]))
        except ValueError as error:
            raise wrong(lines, op, str(error)) from None
        lines.append(f"{op}: {rows[-1]}")
    element_type(rows[-1].dtype)
    _, *pieces = cut(ops, rows)
    program = kernels.Program.rows(row_bytes(given), seed)
    to = "memory" if pieces else "the batch"
    told = f"native, copied from stored bytes to {to}; {program.row_bytes:,} bytes a sample"
    return linked(pieces, program, [*lines, told], given, rows[-1], seed)


def _stored(name: str, field: Field) -> Numbers:
    """What a row is before the first operation."""
    shape = field.fixed_shape if isinstance(field, NDArrayField) else field.shape  # type: ignore[attr-defined]
    dtype = field.dtype  # type: ignore[attr-defined]
    if shape is None or 0 in shape:
        raise PipelineError(
            f"pipelines for {name!r}: {field!r} has arrays of no fixed shape, or without numbers",
            hint="write them with NDArrayField(dtype, shape), or use transforms=",
        )
    if not getattr(dtype, "isnative", True):
        raise PipelineError(
            f"pipelines for {name!r}: {field!r} has numbers in another byte order than this machine",
            hint=f"write them as {dtype.newbyteorder('=')}",
        )
    return Numbers(shape, str(dtype))
