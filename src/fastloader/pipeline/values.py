"""Functions of the user's, and the few other operations there are, on values of any field, one by one in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError, OperationError
from fastloader.fields import (
    AudioCompressedField,
    AudioTokensField,
    AudioWaveformField,
    Field,
    FloatField,
    IntField,
    JSONField,
    ListField,
    NDArrayField,
    OpticalFlowField,
    PackedTextField,
    PointsField,
    SpectrogramField,
    TokenizedTextField,
    VideoCompressedField,
    VideoFramesField,
)
from fastloader.fields.nested_dict import DictBatch
from fastloader.functions import RETURNED
from fastloader.ops import (
    Cast,
    Choose,
    ClipOp,
    CustomOp,
    Follow,
    LabelOp,
    Layout,
    Named,
    Normalize,
    Op,
    Random,
    SoundOp,
)
from fastloader.pipeline.compiler import find_jit, no_operation, wrong
from fastloader.pipeline.draws import MAX_OPS, Entry, Sharer, entry_of, sharers_of
from fastloader.pipeline.flow import FLOW_OPS, flow_step
from fastloader.pipeline.jit_words import Uncompilable, check_draws
from fastloader.pipeline.pieces import Arrays, PipelineError, failed, why_python
from fastloader.types import stack

Run = Callable[[Any, "Place"], Any]
"""What an operation does to one value of a sample."""

_CHANGEABLE = (np.ndarray, list, dict, bytearray)
"""Values that a function may change in place, and return nothing."""


class Place(NamedTuple):
    """Whose value it is: what random numbers of an operation depend on."""

    seed: int
    epoch: int
    sample: int
    op: int

    @property
    def random(self) -> Random:
        """The operation's random numbers for this sample."""
        return Random(*self)


@dataclass(frozen=True, slots=True)
class ValueStage:
    """One operation: its number, what it does in Python, and what compiled code does in its place."""

    op: Any
    number: int
    run: Run
    compiled: Run | None = None
    size_of: str | None = None
    """The name of draws that are for images of one size, where it shares such."""


@dataclass(frozen=True, slots=True)
class Values:
    """Operations on each value of a field, ready to be run, and how they are told."""

    name: str
    of: Field
    stages: tuple[ValueStage, ...]
    seed: int
    lines: tuple[str, ...] = ()
    sharers: tuple[Sharer, ...] = ()

    def run(
        self, value: Any, epoch: int, sample: int, sizes: dict[str, tuple[int, int]] | None = None, plain: bool = False
    ) -> Any:
        """What becomes of a sample's value; ``sizes`` gets those of images where draws are shared.

        ``plain``: all of it in Python, which tells more where compiled code fails.
        """
        for stage in self.stages:
            place = Place(self.seed, epoch, sample, stage.number)
            if stage.size_of is not None and sizes is not None:
                sizes[stage.size_of] = value.shape[-3:-1]
            value = (stage.run if plain or stage.compiled is None else stage.compiled)(value, place)
        return value

    def collate(self, values: Sequence[Any]) -> Any:
        """Values of several samples as one: an array where shapes agree, a dictionary of such, else a list."""
        return gathered(self.of, values)


def gathered(field: Field, values: Sequence[Any]) -> Any:
    """Values as one part of a batch, whatever functions made of them. In place of a missing value stands another."""
    there = [value for value in values if value is not None]
    if not there:
        return list(values)
    if isinstance(field, PackedTextField) and all(map(field.fits, there)):
        return field.collate(values)
    filled = [there[0] if value is None else value for value in values]
    keys = there[0].keys() if isinstance(there[0], dict) and not isinstance(field, JSONField) else None
    if keys and all(isinstance(value, dict) and value.keys() == keys for value in there):
        return DictBatch({key: stack([value[key] for value in filled]) for key in keys})
    found = stack(filled)
    return found if isinstance(found, np.ndarray) else list(values)


def known_of(field: Field) -> Arrays | None:
    """What is known of a field's values, where they are arrays."""
    if isinstance(field, NDArrayField):
        return Arrays(str(field.dtype), len(field.shape)) if field.shape is not None and field.dtype.isnative else None
    if isinstance(field, TokenizedTextField):
        return Arrays(str(field.dtype), 1)
    if isinstance(field, AudioTokensField):
        return Arrays(str(field.dtype), 2)
    return None


def compile_values(name: str, field: Field, ops: Sequence[Any], seed: int) -> Values:
    """The pipeline of a field whose values are taken one by one; what does not fit raises ``PipelineError``."""
    if len(ops) > MAX_OPS:
        raise PipelineError(f"pipelines for {name!r}: {len(ops)} operations; at most {MAX_OPS}")
    known = known_of(field)
    lines = [f"{type(field).__name__} {name!r}: {_kind(field) if known is None else known}"]
    return compile_behind(name, field, ops, seed, lines, known)


def compile_behind(
    name: str, field: Field, ops: Sequence[Any], seed: int, lines: Sequence[str], known: Arrays | None, before: int = 0
) -> Values:
    """The same, behind ``before`` operations that something else runs and that are drawn in ``lines`` already."""
    drawn, told = list(lines), []
    entries: list[Entry] = []
    stages: list[ValueStage] = []
    changed = before > 0  # values are no longer what the field gives
    jit = find_jit() if any(isinstance(bare, CustomOp) and bare.jit for bare in map(_bare, ops)) else None
    for i, op in enumerate(ops):
        try:
            share = None
            number = before + i
            if isinstance(op, Op):
                entries.append(entry_of(op, before, entries))
                number, share = entries[-1].number, entries[-1].share
                if entries[-1].returns is not None:
                    raise ValueError("returns nothing of what it draws here")
            behind = [stage.op for stage in stages]
            if isinstance(op, Normalize) and any(isinstance(one, Layout) for one in behind):
                raise ValueError("takes channels last: put it before Layout")
            function = any(isinstance(one, CustomOp) for one in behind)
            stage, known, how = _stage(field, _bare(op), number, known, changed, function, jit)
        except ValueError as error:
            raise wrong(drawn, op, str(error)) from None
        if isinstance(stage.op, FLOW_OPS) and share is not None and entries[-1].compares_size:
            stage = ValueStage(stage.op, number, stage.run, size_of=share)
        changed = changed or not isinstance(stage.op, (*FLOW_OPS, Choose))
        stages.append(stage)
        drawn.append(f"{op}: {known or _made_of(field, stage.op, changed)}")
        told.append(how)
    return Values(name, field, tuple(stages), seed, (*drawn, *told), sharers_of(name, entries))


def functions_from(ops: Sequence[Any]) -> int:
    """The place of the first function of the user's, or of what may stand behind others alone; their number if none."""
    behind = CustomOp | Cast | Normalize
    return next((i for i, op in enumerate(ops) if isinstance(_bare(op), behind)), len(ops))


def _bare(op: Any) -> Any:
    return op.op if isinstance(op, Named) else op


def _stage(
    field: Field, op: Any, number: int, known: Arrays | None, changed: bool, function: bool, jit: ModuleType | None
) -> tuple[ValueStage, Arrays | None, str]:
    """An operation, what is known of the values behind it, and how it is run.

    ``changed``: values are no longer what the field gives. ``function``: they are what a function of the user's made.
    """
    if isinstance(op, CustomOp):
        return _custom_stage(op, number, known, jit)
    if isinstance(op, Cast | Normalize) and (known is not None or changed or isinstance(field, OpticalFlowField)):
        dtype = op.dtype if isinstance(op, Cast) else "float32"
        made = None if known is None else Arrays(dtype, known.ndim)
        return ValueStage(op, number, partial(_converted, op)), made, f"by numpy, behind the engine: {op}"
    if isinstance(op, Choose) and isinstance(field, ListField) and number == 0:
        chosen = known_of(field.field)
        return ValueStage(op, number, partial(_chosen, op)), chosen, f"in Python threads, behind the engine: {op}"
    if isinstance(field, OpticalFlowField):
        if isinstance(op, FLOW_OPS):
            if changed:
                raise ValueError("comes before functions of yours, Normalize, Cast and Layout")
            return ValueStage(op, number, flow_step(op)), known, f"in Python threads, behind the engine: {op}"
        if isinstance(op, Layout) and not function:
            return ValueStage(op, number, partial(_turned, op)), known, f"by numpy, behind the engine: {op}"
    if not isinstance(op, Op | Choose | LabelOp | SoundOp | ClipOp | Follow):
        raise ValueError(no_operation(op))
    raise ValueError(f"is no operation on {'what was made of ' if changed else ''}{_kind(field)}: {_taken(field)}")


def _custom_stage(
    op: CustomOp, number: int, known: Arrays | None, jit: ModuleType | None
) -> tuple[ValueStage, Arrays | None, str]:
    if op.jit:
        check_draws(op.function)  # type: ignore[arg-type]
    run = partial(called, op)
    made = None
    if not op.in_place:
        made = _out_of(op, known)
        if known is not None and made is None:
            raise ValueError(f"has an output that can't be had for {known}")
    why = "jit=False" if not op.jit else "its values are no arrays of one known type" if known is None else None
    if known is not None and why is None:
        why = why_python(op, jit, known.dtype)
        if why is None:
            assert jit is not None
            try:
                compiled = partial(_called_compiled, op, jit.caller(op, known, made), made)
                told = f"compiled by numba, called from Python threads without the GIL: {op}"
                return ValueStage(op, number, run, compiled), made or known, told
            except Uncompilable as error:
                why = str(error).split("\n")[0]
    return ValueStage(op, number, run), made, f"in Python threads, behind the engine: {op} ({why})"


def _out_of(op: CustomOp, known: Arrays | None) -> Arrays | None:
    """What ``out`` is, as far as it is known."""
    if known is None:
        return None
    try:
        return Arrays(op.dtype or known.dtype, len(op.out_shape((8,) * known.ndim)))
    except ValueError:  # a matter of the array's own sides
        return None


def called(op: CustomOp, value: Any, place: Place) -> Any:
    """What a function makes of a value, in Python."""
    out = None
    if isinstance(value, np.ndarray):
        value = np.array(value)  # its own memory, which the function may change
    if not op.in_place:
        if not isinstance(value, np.ndarray):
            raise OperationError(
                f"the operation {op} fills an array of the shape of another, and gets a {type(value).__name__}",
                hint="leave out output= and dtype=, and let it return what it makes",
            )
        try:
            out = np.zeros(op.out_shape(value.shape), op.dtype or value.dtype)
        except ValueError as error:
            raise OperationError(f"the operation {op} {error}") from error
    arguments = (value, place.random) if out is None else (value, out, place.random)
    try:
        # Compiled code counts with 64 bits: what would wrap round here has another result there.
        with np.errstate(over="raise" if op.jit and isinstance(value, np.ndarray) else None):
            returned: Any = op.function(*arguments)
    except FastLoaderError:
        raise
    except Exception as error:
        raise failed(op, error) from error
    if out is not None:
        if returned is not None:
            raise OperationError(f"the operation {op} {RETURNED}")
        return out
    if returned is None and not isinstance(value, _CHANGEABLE):
        raise OperationError(
            f"the operation {op} returns nothing, and a {type(value).__name__} can't be changed in place",
            hint="let it return the value that it makes",
        )
    return value if returned is None else returned


def _called_compiled(
    op: CustomOp, function: Callable[..., Any], made: Arrays | None, value: NDArray[Any], place: Place
) -> Any:
    own = np.array(value, order="C")
    where = np.array(place, np.uint64)
    if made is None:
        function(own, where)
        return own
    out = np.zeros(op.out_shape(own.shape), made.dtype)
    function(own, out, where)
    return out


def _converted(op: Cast | Normalize, value: Any, place: Place) -> NDArray[Any]:
    if not isinstance(value, np.ndarray):
        raise OperationError(f"the operation {op} takes arrays, and gets a {type(value).__name__}")
    try:
        return op.applied(value)
    except (TypeError, ValueError) as error:
        raise OperationError(f"the operation {op} {error}") from error


def _turned(op: Layout, value: Any, place: Place) -> NDArray[Any]:
    return np.moveaxis(value, -1, -3) if op.order == "CHW" else value


def _chosen(op: Choose, value: Any, place: Place) -> Any:
    return op.element(value, place.random)


_KINDS = {
    "TextField": "texts", "BytesField": "bytes", "JSONField": "values of JSON", "IntField": "whole numbers",
    "FloatField": "numbers", "PackedTextField": "packed sequences, dictionaries of arrays",
    "DictField": "dictionaries", "OpticalFlowField": "flow, arrays of float32 (height, width, 2)",
    "TokenizedTextField": "tokens",
}  # fmt: skip


def _kind(field: Field, op: Any = None) -> str:
    """What values of a field are, in words."""
    if isinstance(field, ListField):
        return f"{'one' if isinstance(op, Choose) else 'lists'} of {field.field!r}"
    return _KINDS.get(type(field).__name__, f"values of {type(field).__name__}")


def _made_of(field: Field, op: Any, changed: bool) -> str:
    """What an operation makes of values of which nothing is known."""
    if isinstance(op, Cast | Normalize):
        return f"arrays of {op.dtype if isinstance(op, Cast) else 'float32'}"
    if isinstance(op, Layout):
        return f"flow, {op.order}"
    return "anything" if changed else _kind(field, op)


def _taken(field: Field) -> str:
    """Which operations a field takes, in words."""
    others = []
    if isinstance(field, ListField):
        others = ["Choose first"]
    elif isinstance(field, PointsField):
        others = ["Follow first", "Normalize", "Cast"]
    elif isinstance(field, AudioWaveformField | AudioCompressedField | SpectrogramField):
        others = ["the operations on sounds first"]
    elif isinstance(field, VideoCompressedField | VideoFramesField):
        others = ["ClipSampler and the operations on images behind it"]
    elif isinstance(field, IntField | FloatField):
        others = ["OneHot, LabelSmoothing and ReplaceLabel first"]
    elif isinstance(field, OpticalFlowField):
        others = [*(op.__name__ for op in FLOW_OPS), "Layout", "Normalize", "Cast", "or Follow first"]
    elif isinstance(field, TokenizedTextField | AudioTokensField):
        others = ["RandomSegment", "PadOrTrim", "Normalize", "Cast"]
    elif known_of(field) is not None:
        others = ["Normalize", "Cast"]
    mine = "functions of yours (@fastloader.ops.custom)"
    return f"{type(field).__name__} takes {', '.join([*others, mine])}"
