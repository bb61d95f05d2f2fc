"""What is done for a field: what the engine is told, and what Python makes of what it gives. One class a kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError
from fastloader.fields import BatchDecoder, Decoder, RowDecoder
from fastloader.fields.singles import single_values, tells_values
from fastloader.loader.laying import find_misfits, laid_out, told_by
from fastloader.loader.padding import Layout, Way
from fastloader.loader.parts import KINDS, EnginePlan, Given, Made, SlotPayloads, all_or
from fastloader.loader.rows import Rows, why
from fastloader.pipeline import (
    ClipPipeline,
    Compiled,
    Images,
    LabelPipeline,
    Pipeline,
    RowPipeline,
    Sizes,
    SoundPipeline,
    Values,
)
from fastloader.types import Buffer, byte_view


class Work(Protocol):
    """What is done for one field."""

    @property
    def needs_python(self) -> bool:
        """Whether Python runs once a sample."""
        ...

    def engine_plan(self) -> EnginePlan:
        """What the engine is told."""
        ...

    def made(self, given: Given) -> Made:
        """The field's part of a batch."""
        ...


def work_of(decoder: Decoder, layout: Layout | None, pipeline: Pipeline | None, way: Way | None) -> Work:
    """The work of a field: as its pipeline or its layout wants it, or as it is stored."""
    if layout is not None:
        return Laid(decoder, layout)
    if isinstance(pipeline, Images):
        return Programs(decoder, pipeline)
    if isinstance(pipeline, SoundPipeline):
        return Sounds(decoder, pipeline)
    if isinstance(pipeline, ClipPipeline):
        return Clips(decoder, pipeline)
    if isinstance(pipeline, LabelPipeline):
        return Labels(decoder, pipeline)
    if isinstance(pipeline, Values):
        return ByValue(decoder, pipeline, way)
    if isinstance(pipeline, RowPipeline) and isinstance(decoder, RowDecoder):
        return Filled(decoder, pipeline)
    return AsStored(decoder)


class AsStored:
    """Values as the field gives them."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._batch = decoder.batch if isinstance(decoder, BatchDecoder) else None

    @property
    def needs_python(self) -> bool:
        """Where values are decoded one by one."""
        return self._batch is None

    def engine_plan(self) -> EnginePlan:
        """As the decoder plans it."""
        plan = self._decoder.plan
        row_bytes = min(plan.row_bytes, 2**63 - 1)  # a claim past that fits no payload either
        return KINDS[plan.kind], self._decoder.field.metadata_type.itemsize, row_bytes, plan.image, None, []

    def made(self, given: Given) -> Made:
        """Decoded all at once, or one by one."""
        metadata, payloads = given.stored(self._decoder.field.metadata_type)
        if self._batch is not None:
            try:
                return Made({given.name: (self._batch(metadata, payloads), given.valid)}, [])
            except Exception:
                if self._decoder.plan.kind != "ragged":
                    raise
                # Find out which sample it was, one at a time.
        values, good = singly(self._decoder, metadata, payloads, given)
        field = self._decoder.field
        together = good is None or field.collates_missing
        return Made({given.name: (field.collate(values) if together else values, good)}, [])


class Laid:
    """Values padded, or one behind the other."""

    needs_python = False

    def __init__(self, decoder: Decoder, layout: Layout) -> None:
        self._metadata_size = decoder.field.metadata_type.itemsize
        self._layout = layout

    def engine_plan(self) -> EnginePlan:
        """As the layout wants it."""
        kind, metadata_size, elements = self._layout.engine_plan(self._metadata_size)
        return KINDS[kind], metadata_size, 0, 0, elements, []

    def made(self, given: Given) -> Made:
        """The engine's arrays."""
        metadata, data, offsets, _ = given.parts
        assert data is not None
        assert offsets is not None
        return Made({given.name: (self._layout.values(metadata, data, offsets, given.valid), given.valid)}, [])


class Programs:
    """Images and arrays of a fixed shape: programs of the engine, and what is left to Python."""

    def __init__(self, decoder: Decoder, images: Images) -> None:
        self._metadata_size = decoder.field.metadata_type.itemsize
        self._images = images

    @property
    def needs_python(self) -> bool:
        """Where functions are not compiled."""
        return self._images.needs_python

    def engine_plan(self) -> EnginePlan:
        """The programs."""
        return KINDS["program"], self._metadata_size, 0, 0, None, self._images.programs()

    def made(self, given: Given) -> Made:
        """Fields of the batch, one or several."""
        places = given.parts[2]
        assert places is not None
        good = given.there

        def behind(view: Compiled, images: NDArray[Any], told: NDArray[np.float64]) -> NDArray[Any]:
            return _behind(view, images, told, good, given)

        values, sizes = self._images.values(given.data, places, len(given.numbers), behind)
        valid = all_or(good)
        return Made({name: (value, valid) for name, value in values.items()}, sizes)

    def again(self, metadata: Any, payload: Buffer, epoch: int, sample: int) -> None:
        """All views."""
        for view in self._images.views:
            view.again(payload, metadata.tobytes(), epoch, sample)


def _behind(
    view: Compiled, images: NDArray[Any], told: NDArray[np.float64], good: NDArray[np.bool_], given: Given
) -> NDArray[Any]:
    """The engine's images as the rest of the pipeline makes them, in Python; what fails is no longer good."""
    assert view.tail is not None
    made = view.blank(len(images))
    for i in np.flatnonzero(good).tolist():
        try:
            made[i] = view.tail.run(images[i, ...], given.epoch, int(given.numbers[i]), told[i])
        except Exception as error:
            good[i] = False
            given.bad(i, error)
    return made


class Filled:
    """Rows that a decoder of the user's fills."""

    def __init__(self, decoder: RowDecoder, pipeline: RowPipeline) -> None:
        self._decoder = decoder
        self._rows = Rows(decoder, pipeline)

    @property
    def needs_python(self) -> bool:
        """Where the decoder is not compiled."""
        return self._rows.needs_python

    def engine_plan(self) -> EnginePlan:
        """The compiled decoder, or what Python decodes."""
        if not self._rows.by_engine:
            return AsStored(self._decoder).engine_plan()
        return KINDS["program"], self._decoder.field.metadata_type.itemsize, 0, 0, None, self._rows.programs()

    def made(self, given: Given) -> Made:
        """The rows."""
        if self._rows.by_engine:
            return Made({given.name: (self._rows.made(given.data, len(given.numbers)), given.valid)}, [])
        metadata, payloads = given.stored(self._decoder.field.metadata_type)
        made, wrong = self._rows.make(metadata, payloads.rows >= 0, payloads.one)
        return Made({given.name: (made, given.without(given.valid, dict(wrong)))}, [])

    def again(self, metadata: Any, payload: Buffer, epoch: int, sample: int) -> None:
        """The row."""
        self._rows.again(metadata, byte_view(payload))


class Sounds:
    """Sounds by one program of the engine, and what functions of the user's make of them."""

    def __init__(self, decoder: Decoder, sound: SoundPipeline) -> None:
        self._metadata_size = decoder.field.metadata_type.itemsize
        self._sound = sound

    @property
    def needs_python(self) -> bool:
        """Where there are functions."""
        return self._sound.behind is not None

    def engine_plan(self) -> EnginePlan:
        """The program."""
        return KINDS["sound"], self._metadata_size, 0, 0, None, self._sound.program

    def made(self, given: Given) -> Made:
        """One array, or what functions make of its rows."""
        sounds = self._sound.values(given.data, len(given.numbers))
        return _rows_through(self._sound.behind, sounds, given, given.valid)


class Labels:
    """Numbers, made into labels by numpy."""

    def __init__(self, decoder: Decoder, labels: LabelPipeline) -> None:
        self._stored = AsStored(decoder)
        self._labels = labels

    @property
    def needs_python(self) -> bool:
        """Where there are functions."""
        return self._labels.behind is not None

    def engine_plan(self) -> EnginePlan:
        """The numbers."""
        return self._stored.engine_plan()

    def made(self, given: Given) -> Made:
        """Labels of the whole batch."""
        values, valid = self._stored.made(given).values[given.name]
        made, wrong = self._labels.run(values, given.numbers, valid)
        return _rows_through(self._labels.behind, made, given, given.without(valid, wrong))


def _rows_through(behind: Values | None, rows: Any, given: Given, valid: NDArray[np.bool_] | None) -> Made:
    """The rows of an array through functions of the user's, if there are any."""
    if behind is None:
        return Made({given.name: (rows, valid)}, [])
    there = np.ones(len(rows), np.bool_) if valid is None else valid.copy()
    return through(behind, rows.__getitem__, there, given)


class Clips:
    """Clips (batch, frames, ...), decoded and made by Python threads."""

    needs_python = True

    def __init__(self, decoder: Decoder, clips: ClipPipeline) -> None:
        self._decoder = decoder
        self._clips = clips

    def engine_plan(self) -> EnginePlan:
        """The payloads."""
        return AsStored(self._decoder).engine_plan()

    def made(self, given: Given) -> Made:
        """One array, and what its operations tell."""
        metadata, payloads = given.stored(self._decoder.field.metadata_type)
        made = self._clips.blank(len(given.numbers))
        told = np.zeros((len(given.numbers), self._clips.told))
        good = given.there
        for i in np.flatnonzero(good).tolist():
            try:
                video = self._decoder(metadata[i], lambda i=i: payloads.one(i))  # type: ignore[misc]
                self._clips.run(video, given.epoch, int(given.numbers[i]), made[i], told[i])
            except Exception as error:
                good[i] = False
                made[i] = 0
                given.bad(i, error)
        valid = all_or(good)
        returned, sizes = self._clips.returned(told)
        return Made({name: (value, valid) for name, value in ({given.name: made} | returned).items()}, sizes)


class ByValue:
    """Values of any kind through functions of the user's, one by one in Python threads."""

    needs_python = True

    def __init__(self, decoder: Decoder, values: Values, way: Way | None) -> None:
        self._decoder = decoder
        self._values = values
        self._way = way
        self._tells = tells_values(decoder.field)

    def engine_plan(self) -> EnginePlan:
        """The payloads as they are."""
        field = self._decoder.field
        return KINDS["ragged" if field.has_payload else "rows"], field.metadata_type.itemsize, 0, 0, None, []

    def made(self, given: Given) -> Made:
        """What became of the values, put together."""
        metadata, payloads = given.stored(self._decoder.field.metadata_type)
        values, good = self._decoded(metadata, payloads, given)
        there = np.ones(len(values), np.bool_) if good is None else good.copy()
        return through(self._values, values.__getitem__, there, given, self._way)

    def _decoded(
        self, metadata: NDArray[Any], payloads: SlotPayloads, given: Given
    ) -> tuple[Sequence[Any], NDArray[np.bool_] | None]:
        """What a reader would give: all at once where that tells what each is, else one by one."""
        if self._tells and isinstance(self._decoder, BatchDecoder):
            try:
                values = single_values(self._decoder.field, self._decoder.batch(metadata, payloads))
            except Exception:  # find out which sample it was
                values = None
            if values is not None:
                return values, given.valid
        return singly(self._decoder, metadata, payloads, given)


def singly(
    decoder: Decoder, metadata: NDArray[Any], payloads: SlotPayloads, given: Given
) -> tuple[list[Any], NDArray[np.bool_] | None]:
    """Values decoded one by one, ``None`` for what is missing or bad, and which are there."""
    values: list[Any] = [None] * len(metadata)
    good = payloads.rows >= 0
    for i in np.flatnonzero(good).tolist():
        try:
            values[i] = decoder(metadata[i], lambda i=i: payloads.one(i))  # type: ignore[misc]
        except Exception as error:
            good[i] = False
            given.bad(i, error)
    return values, all_or(good)


def through(
    values: Values, value_at: Callable[[int], Any], good: NDArray[np.bool_], given: Given, way: Way | None = None
) -> Made:
    """What functions make of each value that is there; what fails no longer is."""
    made: list[Any] = [None] * len(good)
    shared = [stage.size_of for stage in values.stages if stage.size_of is not None]
    sizes = {name: np.zeros((len(good), 2)) for name in shared}
    for i in np.flatnonzero(good).tolist():
        seen: dict[str, tuple[int, int]] = {}
        try:
            made[i] = _one(values, value_at, i, given, seen)
        except Exception as error:
            good[i] = False
            given.bad(i, error)
        for name, size in seen.items():
            sizes[name][i] = size
    found = [Sizes(name, given.name, of) for name, of in sizes.items()]
    if way is None:
        return Made({given.name: (values.collate(made), all_or(good))}, found)
    rows, misfits = find_misfits(made, way)
    for i, misfit in misfits.items():
        good[i], rows[i] = False, None
        given.bad(i, misfit)
    laid = laid_out(rows, told_by(given.name, rows, way))
    return Made({given.name: (laid, all_or(good))}, found)


def _one(
    values: Values, value_at: Callable[[int], Any], i: int, given: Given, sizes: dict[str, tuple[int, int]]
) -> Any:
    sample = int(given.numbers[i])
    try:
        return values.run(value_at(i), given.epoch, sample, sizes)
    except FastLoaderError:
        raise
    except Exception as error:  # of compiled code, which does not know its lines

        def again() -> None:
            values.run(value_at(i), given.epoch, sample, plain=True)

        raise why(f"an operation on {given.name!r} failed ({type(error).__name__}: {error})", again) from None
