"""Pipelines of sounds, spectrograms and tokens, checked before any data is read and turned into one native program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.fields import (
    AudioCompressedField,
    AudioTokensField,
    AudioWaveformField,
    Field,
    NDArrayField,
    SpectrogramField,
    TokenizedTextField,
)
from fastloader.fields.sound_files import load_library
from fastloader.ops.sound import PadOrTrim, RandomSegment, Sound, SoundOp
from fastloader.pipeline.compiler import wrong
from fastloader.pipeline.draws import MAX_OPS
from fastloader.pipeline.pieces import Arrays, PipelineError
from fastloader.pipeline.values import Values, compile_behind, functions_from

SOUND_FIELDS = (AudioWaveformField, AudioCompressedField, SpectrogramField, AudioTokensField)
_NUMBERS = ("float32", "float16", "int16")
_TAKEN = (
    "RandomSegment, PadOrTrim, Resample, Mono, Gain, AddNoise, TimeShift, MelSpectrogram, SpecAugment, and behind them "
    "Normalize, Cast and functions of yours (@fastloader.ops.custom)"
)


@dataclass(frozen=True, slots=True)
class SoundPipeline:
    """A pipeline ready for the engine, and how it is told."""

    program: kernels.SoundProgram
    result: Sound
    lines: tuple[str, ...]

    behind: Values | None = None
    """What functions of the user's make of the sounds, one by one."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as the engine makes it."""
        return self.program.row_bytes

    def values(self, data: NDArray[np.uint8], samples: int) -> NDArray[Any]:
        """The engine's bytes as an array."""
        shape, dtype = [side or 0 for side in self.result.shape], np.dtype(self.result.dtype)
        if not len(data):  # nothing was there, so nothing was allocated
            return np.broadcast_to(np.zeros((), dtype), (samples, *shape))
        return data.view(dtype).reshape(samples, *shape)


@dataclass(frozen=True, slots=True)
class _Stored:
    """How a field's values are stored, and what they are before the first operation."""

    kind: str
    given: Sound
    bits: int = 0


def takes_sounds(field: Field, ops: Sequence[Any]) -> bool:
    """Whether a pipeline is one of these; functions of the user's alone get whole values."""
    whole = bool(ops) and functions_from(ops) == 0
    return any(isinstance(op, SoundOp) for op in ops) or (isinstance(field, SOUND_FIELDS) and not whole)


def compile_sound(name: str, field: Field, ops: Sequence[Any], seed: int) -> SoundPipeline:
    """The program of a field's pipeline. What does not fit raises ``PipelineError`` with the pipeline drawn."""
    stored = _stored(name, field)
    if len(ops) > MAX_OPS:
        raise PipelineError(f"pipelines for {name!r}: {len(ops)} operations; at most {MAX_OPS}")
    given = stored.given
    lines = [f"{type(field).__name__} {name!r}: {given}"]
    steps: list[tuple[int, int, Sequence[float], kernels.Mel | None]] = []
    added: float | None = None
    first = functions_from(ops)
    behind, ops = ops[first:], ops[:first]
    for i, op in enumerate(ops):
        if not isinstance(op, SoundOp):
            raise wrong(lines, op, f"is no operation on sounds: {type(field).__name__} takes {_TAKEN}")
        try:
            made = op.output(given)
            step = op.step(given)
            value = op.value if isinstance(op, PadOrTrim) else 0.0 if isinstance(op, RandomSegment) and op.pad else None
            if given.kind == "tokens" and value is not None:
                if added not in (None, value):
                    raise ValueError(f"adds tokens of {value:g}, and one before it adds {added:g}: give both one value")
                added = value
        except ValueError as error:
            raise wrong(lines, op, str(error)) from None
        steps.append((kernels.SOUND_STEPS.index(step.kind), i, step.numbers, step.mel))
        given = made
        lines.append(f"{op}: {given}")
    if given.frames is None:
        raise wrong(lines, None, "the samples of a batch must have one length: add RandomSegment or PadOrTrim")
    if given.width is None:
        raise wrong(lines, None, "the number of channels differs from sound to sound: add Mono()")
    if isinstance(field, AudioCompressedField):
        load_library()
    program = kernels.SoundProgram(
        kernels.SOUNDS.index(stored.kind), stored.given.width or 0, stored.given.rate or 0, stored.bits, steps,
        (given.frames, given.width), np.dtype(given.dtype).itemsize, given.bands_first, seed,
    )  # fmt: skip
    told = _told(stored, ops, program.row_bytes)
    if not behind:
        return SoundPipeline(program, given, (*lines, told))
    functions = compile_behind(name, field, behind, seed, lines, Arrays(given.dtype, len(given.shape)), first)
    return SoundPipeline(program, given, (*functions.lines, told), functions)


def _told(stored: _Stored, ops: Sequence[SoundOp], row_bytes: int) -> str:
    what = {"file": "decoded by libsndfile", "tokens": "unpacked", "words": "copied"}.get(stored.kind, "copied")
    narrowed = bool(ops) and isinstance(ops[0], RandomSegment | PadOrTrim)
    part = "what lies around the part that is wanted" if stored.kind == "file" else "the part that is wanted"
    return (
        f"native, in the engine's threads without the GIL: {part if narrowed else 'all of it'} is {what}, "
        f"then {len(ops)} steps; {row_bytes:,} bytes a sample"
    )


def _stored(name: str, field: Field) -> _Stored:
    if isinstance(field, AudioWaveformField):
        return _Stored(field.dtype, Sound(None, 1 if field.mono else field.channels, field.sample_rate))
    if isinstance(field, AudioCompressedField):
        return _Stored("file", Sound(None, field.channels, field.sample_rate))
    if isinstance(field, SpectrogramField):
        return _Stored(field.dtype, Sound(None, field.n_mels, 0, "spectrogram", field.dtype))
    if isinstance(field, AudioTokensField):
        given = Sound(None, field.codebooks, 0, "tokens", field.dtype.name)
        return _Stored("tokens", given, field.bits)
    if isinstance(field, TokenizedTextField):
        given = Sound(None, 1, 0, "tokens", field.dtype.name, flat=True)
        return _Stored("words", given, 8 * field.dtype.itemsize)
    if isinstance(field, NDArrayField) and field.dtype.name in _NUMBERS and field.dtype.isnative:
        shape = field.shape
        if shape is not None and shape[:1] == (None,) and len(shape) in (1, 2) and all(shape[1:]):
            return _Stored(field.dtype.name, Sound(None, shape[1] if len(shape) == 2 else 1))
    raise PipelineError(
        f"pipelines for {name!r}: {field!r} has no sounds",
        hint="these operations take AudioWaveformField, AudioCompressedField, SpectrogramField, AudioTokensField, "
        "TokenizedTextField, and NDArrayField of float32, float16 or int16 with the shape (None,) or (None, channels)",
    )
