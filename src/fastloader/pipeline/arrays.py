"""Pipelines of arrays: custom operations, Cast and Normalize on each row of a field with a fixed shape."""

from __future__ import annotations

from collections.abc import Sequence

from fastloader import kernels
from fastloader.fields import EmbeddingField, Field, NDArrayField, RawImageField
from fastloader.ops import ArrayOp, Numbers, Op
from fastloader.pipeline.compiler import Compiled, linked, no_operation, wrong
from fastloader.pipeline.draws import MAX_OPS, Entry, entry_of
from fastloader.pipeline.pieces import PipelineError, check_size, cut, element_type, row_bytes


def is_array(field: Field) -> bool:
    """Whether its pipelines are those of arrays; those of 8-bit images are not."""
    if isinstance(field, RawImageField):
        return field.dtype != "uint8" or field.channels > 4
    return isinstance(field, NDArrayField | EmbeddingField)


def compile_arrays(
    name: str, field: Field, ops: Sequence[Op], seed: int, first_number: int = 0, view: str = ""
) -> Compiled:
    """As ``compile_pipeline``, of arrays."""
    given = _stored(name, field)
    lines = [f"{type(field).__name__} {name!r}{view and f', view {view}'}: {given}"]
    if len(ops) > MAX_OPS:
        raise PipelineError(f"pipelines for {name!r}: {len(ops)} operations; at most {MAX_OPS}")
    rows = [given]
    entries: list[Entry] = []
    for i, op in enumerate(ops):
        if not isinstance(op, Op):
            raise wrong(lines, op, no_operation(op))
        try:
            entries.append(entry_of(op, first_number, entries))
            bare = entries[i].op
            if not isinstance(bare, ArrayOp):
                raise ValueError("is no operation on arrays: those are custom operations, Cast and Normalize")
            rows.append(bare.array_output(rows[-1]))
            check_size(rows[-1])
        except ValueError as error:
            raise wrong(lines, op, str(error)) from None
        lines.append(f"{op}: {rows[-1]}")
    element_type(rows[-1].dtype)
    _, *pieces = cut([entry.op for entry in entries], rows)
    scaled = isinstance(field, EmbeddingField) and field.dtype == "int8"
    count = given.shape[0] if scaled else 0
    program = kernels.Program.scaled(count, seed) if scaled else kernels.Program.rows(row_bytes(given), seed)
    to = "memory" if pieces else "the batch"
    how = "scaled" if scaled else "copied"
    told = f"native, {how} from stored bytes to {to}; {program.row_bytes:,} bytes a sample"
    return linked(name, pieces, program, [*lines, told], given, seed, entries)


def _stored(name: str, field: Field) -> Numbers:
    """What a row is before the first operation."""
    if isinstance(field, EmbeddingField):
        return Numbers((field.dim,), "float32" if field.dtype == "int8" else field.dtype)
    shape = field.fixed_shape if isinstance(field, NDArrayField) else field.shape  # type: ignore[attr-defined]
    dtype = field.dtype  # type: ignore[attr-defined]
    assert shape is not None
    given = Numbers(shape, str(dtype))
    try:
        check_size(given)
    except ValueError as error:
        raise PipelineError(f"pipelines for {name!r}: {field!r} {error}") from None
    return given
