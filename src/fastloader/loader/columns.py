"""Between fields and the engine: what the engine is to do for each field, and values from what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, FastLoaderError, FormatError, OperationError
from fastloader.fields import BatchDecoder, Decoder, Field, RowDecoder
from fastloader.formats.fld import Dataset
from fastloader.formats.fld.layout import Kind
from fastloader.loader.padding import Layout
from fastloader.loader.rows import Rows, why
from fastloader.pipeline import (
    ChoicePipeline,
    ClipPipeline,
    Compiled,
    Following,
    Images,
    LabelPipeline,
    Pipeline,
    RowPipeline,
    Sizes,
    SoundPipeline,
)

Parts = tuple[NDArray[np.uint8] | None, NDArray[np.uint8] | None, NDArray[np.int64] | None, NDArray[np.uint8] | None]
"""What the engine gives of a field: metadata rows, values, the offsets between them, and which are there."""

EnginePlan = tuple[
    int,
    int,
    int,
    int,
    tuple[int, int, int, int, bool, bytes] | None,
    list[tuple[kernels.Program, bool]] | kernels.SoundProgram,
]
"""What the engine is told of a field: kind, sizes of metadata and of a row, kind of image, elements, programs."""

Value = tuple[Any, NDArray[np.bool_] | None]
"""A field's part of a batch, and which of it is there, or ``None`` for all."""

Source = tuple[kernels.Table | None, kernels.Table | None, kernels.Payloads | None]
"""A field's tables in a shard: metadata, validity, payloads."""

_NOTHING = np.zeros(0, np.uint8)
_NO_OFFSETS = np.zeros(0, np.int64)
_EMPTY = memoryview(b"")
_KINDS = {"rows": 0, "fixed": 1, "ragged": 2, "image": 3, "padded": 4, "program": 5, "sound": 6}
"""The engine's numbers of the plans."""


class SlotPayloads(NamedTuple):
    """A batch's payloads of one field, where the engine put them."""

    values: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]

    def fixed(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """All payloads as one array (batch, *shape)."""
        row_bytes = prod(shape) * dtype.itemsize
        if not len(self.values) and row_bytes and (self.rows < 0).all():  # nothing is there, so nothing was allocated
            return np.broadcast_to(np.zeros((), dtype), (len(self.rows), *shape))
        if len(self.offsets) and (np.diff(self.offsets) != row_bytes)[self.rows >= 0].any():
            raise FormatError(f"a payload has not the {row_bytes} bytes of {shape} {dtype}")
        return self.values.view(dtype).reshape(len(self.rows), *shape)

    def ragged(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All payloads one behind the other, and the offsets between them."""
        return self.values, self.offsets

    def bytes(self) -> list[bytes]:
        """A bytes object for each payload."""
        view, ends = self.values.data, self.offsets.tolist()
        return [view[ends[i] : ends[i + 1]].tobytes() for i in range(len(self.rows))]

    def images(self, kind: int, shapes: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The pixels, decoded by the engine."""
        return self.values, self.offsets

    def one(self, position: int) -> memoryview:
        """One payload."""
        return self.values[self.offsets[position] : self.offsets[position + 1]].data if len(self.offsets) else _EMPTY


@dataclass(frozen=True, slots=True)
class Fault:
    """A value of a batch that could not be had: at which row, of which field, and why."""

    row: int
    field: str
    error: Exception


class Made(NamedTuple):
    """What became of a column: fields of the batch, and sizes of images that others must have too."""

    values: dict[str, Value]
    sizes: list[Sizes]


class Column:
    """One field of the dataset in the loader's batches: as a field of that name there, or as several."""

    def __init__(
        self,
        number: int,
        name: str,
        field: Field,
        layout: Layout | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.number = number
        self.name = name
        self.field = field
        self.layout = layout
        self.pipeline = pipeline if isinstance(pipeline, Images) else None
        self.sound = pipeline if isinstance(pipeline, SoundPipeline) else None
        self.clips = pipeline if isinstance(pipeline, ClipPipeline) else None
        self.labels = pipeline if isinstance(pipeline, LabelPipeline) else None
        self.choice = pipeline if isinstance(pipeline, ChoicePipeline) else None
        self.following = pipeline if isinstance(pipeline, Following) else None
        self.decoder: Decoder = field.get_decoder_class()(field)
        self.rows: Rows | None = None
        if isinstance(pipeline, RowPipeline) and isinstance(self.decoder, RowDecoder):
            self.rows = Rows(self.decoder, pipeline)
        self.metadata_type = field.metadata_type
        self._batch = self.decoder.batch if isinstance(self.decoder, BatchDecoder) else None

    @property
    def needs_python(self) -> bool:
        """Whether Python runs once a sample."""
        if self.pipeline is not None:
            return self.pipeline.needs_python
        if self.clips is not None:
            return True
        if self.rows is not None:
            return self.rows.needs_python
        return self._batch is None and self.layout is None and self.sound is None

    def engine_plan(self) -> EnginePlan:
        """The plan as the engine takes it."""
        if self.layout is not None:
            kind, metadata_size, elements = self.layout.engine_plan(self.metadata_type.itemsize)
            return _KINDS[kind], metadata_size, 0, 0, elements, []
        if self.pipeline is not None:
            return _KINDS["program"], self.metadata_type.itemsize, 0, 0, None, self.pipeline.programs()
        if self.rows is not None and self.rows.by_engine:
            return _KINDS["program"], self.metadata_type.itemsize, 0, 0, None, self.rows.programs()
        if self.sound is not None:
            return _KINDS["sound"], self.metadata_type.itemsize, 0, 0, None, self.sound.program
        plan = self.decoder.plan
        row_bytes = min(plan.row_bytes, 2**63 - 1)  # a claim past that fits no payload either
        return _KINDS[plan.kind], self.metadata_type.itemsize, row_bytes, plan.image, None, []

    def slot_bytes(self, samples: int) -> int | None:
        """Memory of so many samples in a slot of the engine; ``None`` where that depends on the samples."""
        return kernels.planned_bytes(self.engine_plan(), samples)

    def source(self, dataset: Dataset, shard: int) -> Source:
        """The field's tables in a shard."""
        file = dataset.file(shard)
        return (
            file.table(Kind.METADATA, self.number),
            file.table(Kind.VALIDITY, self.number),
            file.payloads(self.number),
        )

    def made(self, parts: Parts, numbers: NDArray[np.int64], epoch: int, faults: list[Fault]) -> Made:
        """The field's part of a batch of these samples. What can't be decoded is added to ``faults``."""
        if self.pipeline is None:
            return Made({self.name: self._value(parts, numbers, epoch, faults)}, [])
        _, data, places, valid_bytes = parts
        assert data is not None
        assert places is not None
        good = np.ones(len(numbers), np.bool_) if valid_bytes is None else valid_bytes.astype(np.bool_)

        def behind(view: Compiled, images: NDArray[Any], told: NDArray[np.float64]) -> NDArray[Any]:
            return self._behind(view, images, told, good, numbers, epoch, faults)

        values, sizes = self.pipeline.values(data, places, len(numbers), behind)
        valid = None if good.all() else good
        return Made({name: (value, valid) for name, value in values.items()}, sizes)

    def _value(self, parts: Parts, numbers: NDArray[np.int64], epoch: int, faults: list[Fault]) -> Value:
        samples = len(numbers)
        metadata_bytes, data, offsets, valid_bytes = parts
        valid = None if valid_bytes is None else valid_bytes.view(np.bool_)
        if self.layout is not None:
            assert data is not None
            assert offsets is not None
            return self.layout.values(metadata_bytes, data, offsets, valid), valid
        if self.rows is not None and self.rows.by_engine:
            assert data is not None
            return self.rows.made(data, samples), valid
        if self.sound is not None:
            assert data is not None
            return self.sound.values(data, samples), valid
        rows = _zeros(samples) if valid is None else np.where(valid, 0, -1)
        metadata = (
            np.zeros(samples, self.metadata_type) if metadata_bytes is None else metadata_bytes.view(self.metadata_type)
        )
        payloads = SlotPayloads(_NOTHING if data is None else data, _NO_OFFSETS if offsets is None else offsets, rows)
        if self.rows is not None:
            made, wrong = self.rows.make(metadata, rows >= 0, payloads.one)
            return made, self._without(valid, samples, {i: _as_known(error) for i, error in wrong}, faults)
        if self.clips is not None:
            return self._clipped(self.clips, metadata, payloads, numbers, epoch, faults)
        if self._batch is not None:
            try:
                values = self._batch(metadata, payloads)
                if self.choice is not None:
                    return self._chosen(values, valid, numbers, epoch, faults)
                return (values, valid) if self.labels is None else self._labelled(values, valid, numbers, faults)
            except Exception:
                if self.decoder.plan.kind != "ragged":
                    raise
                # Find out which sample it was, one at a time.
        values, valid = self._singly(metadata, payloads, faults)
        return (values, valid) if self.choice is None else self._chosen(values, valid, numbers, epoch, faults)

    def _chosen(
        self, values: Any, valid: NDArray[np.bool_] | None, numbers: NDArray[np.int64], epoch: int, faults: list[Fault]
    ) -> Value:
        """One element of each list."""
        assert self.choice is not None
        lists = (
            [value if there else None for value, there in zip(values, valid, strict=True)]
            if valid is not None
            else values
        )
        made, wrong = self.choice.run(lists, numbers, epoch)
        return made, self._without(valid, len(numbers), wrong, faults)

    def why(self, message: str, dataset: Dataset, sample: int, epoch: int) -> Exception:
        """Why a compiled function of the user's failed on a sample."""

        def again() -> None:
            shard, row = dataset.where(sample)
            file = dataset.file(shard)
            metadata = file.metadata_row(self.number, row, self.metadata_type)
            payload = file.payload(self.number, row)
            if self.pipeline is not None:
                for view in self.pipeline.views:
                    view.again(payload, metadata.tobytes(), epoch, sample)
            elif self.rows is not None:
                self.rows.again(metadata, payload)

        return why(message, again)

    def _labelled(
        self, values: Any, valid: NDArray[np.bool_] | None, numbers: NDArray[np.int64], faults: list[Fault]
    ) -> Value:
        """The numbers as their pipeline makes them."""
        assert self.labels is not None
        made, wrong = self.labels.run(values, numbers, valid)
        return made, self._without(valid, len(numbers), wrong, faults)

    def _without(
        self, valid: NDArray[np.bool_] | None, samples: int, wrong: Mapping[int, FastLoaderError], faults: list[Fault]
    ) -> NDArray[np.bool_] | None:
        """Which values are there, less those that could not be made."""
        if not wrong:
            return valid
        valid = np.ones(samples, np.bool_) if valid is None else valid.copy()
        valid[list(wrong)] = False
        faults += [Fault(row, self.name, error) for row, error in wrong.items()]
        return valid

    def _behind(
        self, view: Compiled, images: NDArray[Any], told: NDArray[np.float64], good: NDArray[np.bool_],
        numbers: NDArray[np.int64], epoch: int, faults: list[Fault],
    ) -> NDArray[Any]:  # fmt: skip
        """The engine's images as the rest of the pipeline makes them, in Python; what fails is no longer good."""
        assert view.tail is not None
        made = view.blank(len(numbers))
        for i in np.flatnonzero(good).tolist():
            try:
                made[i] = view.tail.run(images[i], epoch, int(numbers[i]), told[i])
            except Exception as error:
                good[i] = False
                faults.append(Fault(i, self.name, _as_known(error)))
        return made

    def _clipped(
        self, clips: ClipPipeline, metadata: NDArray[Any], payloads: SlotPayloads, numbers: NDArray[np.int64],
        epoch: int, faults: list[Fault],
    ) -> Value:  # fmt: skip
        """Clips (batch, frames, ...), decoded and made here."""
        made = clips.blank(len(numbers))
        good = payloads.rows >= 0
        for i in np.flatnonzero(good).tolist():
            try:
                video = self.decoder(metadata[i], lambda i=i: payloads.one(i))  # type: ignore[misc]
                clips.run(video, epoch, int(numbers[i]), made[i])
            except Exception as error:
                good[i] = False
                made[i] = 0
                faults.append(Fault(i, self.name, _as_known(error)))
        return made, None if good.all() else good

    def _singly(self, metadata: NDArray[Any], payloads: SlotPayloads, faults: list[Fault]) -> Value:
        values: list[Any] = [None] * len(metadata)
        good = payloads.rows >= 0
        for i in np.flatnonzero(good).tolist():
            try:
                values[i] = self.decoder(metadata[i], lambda i=i: payloads.one(i))  # type: ignore[misc]
            except Exception as error:
                good[i] = False
                faults.append(Fault(i, self.name, _as_known(error)))
        if good.all() or self.field.collates_missing:
            return self.field.collate(values), None if good.all() else good
        return values, good


def compare_sizes(made: Sequence[Made], fields: Sequence[str], faults: list[Fault]) -> None:
    """Operations that share draws get images of one size; where they do not, the later field's value is bad."""
    first: dict[str, Sizes] = {}
    for one, name in zip(made, fields, strict=True):
        for given in one.sizes:
            other = first.setdefault(given.share, given)
            both = (given.sizes > 0).all(axis=1) & (other.sizes > 0).all(axis=1)
            rows = np.flatnonzero(both & (given.sizes != other.sizes).any(axis=1)).tolist()
            known = {fault.row for fault in faults if fault.field == name}
            for row in rows:
                if row not in known:
                    faults.append(Fault(row, name, _sizes_differ(row, other, given)))
            for key, (value, valid) in one.values.items() if rows else ():
                good = np.ones(len(given.sizes), np.bool_) if valid is None else valid.copy()
                good[rows] = False
                one.values[key] = value, good


def _sizes_differ(row: int, one: Sizes, other: Sizes) -> OperationError:
    first, second = (f"{each.field!r} has {each.sizes[row, 0]:.0f}x{each.sizes[row, 1]:.0f}" for each in (one, other))
    return OperationError(
        f"the draws shared as {one.share!r} are for images of one size, and there {first} pixels, {second}",
        hint="a Resize((height, width)) before both makes them alike",
    )


@lru_cache(8)
def _zeros(count: int) -> NDArray[np.int64]:
    zeros = np.zeros(count, np.int64)
    zeros.flags.writeable = False
    return zeros


def _as_known(error: Exception) -> FastLoaderError:
    if isinstance(error, FastLoaderError):
        return error
    known = DecodeError(f"does not decode: {type(error).__name__}: {error}")
    known.__cause__ = error
    return known
