"""The user's own decoders, compiled where they can be."""

from __future__ import annotations

from dataclasses import dataclass

from fastloader import kernels
from fastloader.fields import RowDecoder, RowFunction
from fastloader.pipeline.compiler import find_jit
from fastloader.pipeline.pieces import NO_NUMBA, PipelineError


@dataclass(frozen=True, slots=True)
class RowPipeline:
    """A decoder's rows, the program that makes them, ``None`` where Python does, and how that is told."""

    row: RowFunction
    program: kernels.Program | None
    lines: tuple[str, ...]


def compile_decoder(name: str, decoder: RowDecoder, seed: int) -> RowPipeline:
    """The decoder compiled, or why it is not; what can't be compiled raises ``PipelineError`` with the line."""
    row, kind = decoder.row, type(decoder).__name__
    first = f"{type(decoder.field).__name__} {name!r}: {kind} gives {row.shape} {row.dtype}"
    jit = find_jit() if decoder.supports_jit else None
    if jit is None:
        why = NO_NUMBA if decoder.supports_jit else "supports_jit = False"
        return RowPipeline(row, None, (first, f"in Python threads, behind the engine: {kind} ({why})"))
    metadata = decoder.field.metadata_type
    try:
        address = jit.decoder_address(row, metadata)
    except jit.Uncompilable as error:
        raise PipelineError(f"the decoder of {name!r} can't be run:\n    {first}\n--> {kind}: {error}") from None
    program = kernels.Program.decoder(address, kind, metadata.itemsize, row.row_bytes, seed)
    where = "in the engine's threads" if decoder.field.has_payload else "the whole batch at once"
    return RowPipeline(row, program, (first, f"compiled by numba, {where} without the GIL: {kind}"))
