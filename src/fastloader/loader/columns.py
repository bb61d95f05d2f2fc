"""Between fields and the engine: what the engine is to do for each field, and values from what it did."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, FastLoaderError, FormatError
from fastloader.fields import BatchDecoder, Decoder, Field
from fastloader.formats.fld import Dataset
from fastloader.formats.fld.layout import Kind
from fastloader.loader.padding import Layout
from fastloader.pipeline import Compiled, LabelPipeline

Parts = tuple[NDArray[np.uint8] | None, NDArray[np.uint8] | None, NDArray[np.int64] | None, NDArray[np.uint8] | None]
"""What the engine gives of a field: metadata rows, values, the offsets between them, and which are there."""

EnginePlan = tuple[int, int, int, int, tuple[int, int, int, int, bool, bytes] | None, kernels.Program | None]
"""What the engine is told of a field: kind, sizes of metadata and of a row, kind of image, elements, program."""

Source = tuple[kernels.Table | None, kernels.Table | None, kernels.Payloads | None]
"""A field's tables in a shard: metadata, validity, payloads."""

_NOTHING = np.zeros(0, np.uint8)
_NO_OFFSETS = np.zeros(0, np.int64)
_EMPTY = memoryview(b"")
_KINDS = {"rows": 0, "fixed": 1, "ragged": 2, "image": 3, "padded": 4, "program": 5}
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


class Column:
    """One field of the loader's batches."""

    def __init__(
        self,
        number: int,
        name: str,
        field: Field,
        layout: Layout | None = None,
        pipeline: Compiled | LabelPipeline | None = None,
    ) -> None:
        self.number = number
        self.name = name
        self.field = field
        self.layout = layout
        self.pipeline = pipeline if isinstance(pipeline, Compiled) else None
        self.labels = pipeline if isinstance(pipeline, LabelPipeline) else None
        self.decoder: Decoder = field.get_decoder_class()(field)
        self.metadata_type = field.metadata_type
        self._batch = self.decoder.batch if isinstance(self.decoder, BatchDecoder) else None

    @property
    def needs_python(self) -> bool:
        """Whether Python runs once a sample."""
        if self.pipeline is not None:
            return self.pipeline.tail is not None
        return self._batch is None and self.layout is None

    def engine_plan(self) -> EnginePlan:
        """The plan as the engine takes it."""
        if self.layout is not None:
            kind, metadata_size, elements = self.layout.engine_plan(self.metadata_type.itemsize)
            return _KINDS[kind], metadata_size, 0, 0, elements, None
        if self.pipeline is not None:
            return _KINDS["program"], self.metadata_type.itemsize, 0, 0, None, self.pipeline.program
        plan = self.decoder.plan
        row_bytes = min(plan.row_bytes, 2**63 - 1)  # a claim past that fits no payload either
        return _KINDS[plan.kind], self.metadata_type.itemsize, row_bytes, plan.image, None, None

    def source(self, dataset: Dataset, shard: int) -> Source:
        """The field's tables in a shard."""
        file = dataset.file(shard)
        return (
            file.table(Kind.METADATA, self.number),
            file.table(Kind.VALIDITY, self.number),
            file.payloads(self.number),
        )

    def values(
        self, parts: Parts, numbers: NDArray[np.int64], epoch: int, faults: list[Fault]
    ) -> tuple[Any, NDArray[np.bool_] | None]:
        """The field's part of a batch of these samples, and which of it is there, or ``None`` for all.

        What can't be decoded is added to ``faults``.
        """
        samples = len(numbers)
        metadata_bytes, data, offsets, valid_bytes = parts
        valid = None if valid_bytes is None else valid_bytes.view(np.bool_)
        if self.layout is not None:
            assert data is not None
            assert offsets is not None
            return self.layout.values(metadata_bytes, data, offsets, valid), valid
        if self.pipeline is not None:
            assert data is not None
            images = self.pipeline.values(data, samples)
            return (
                (images, valid) if self.pipeline.tail is None else self._behind(images, valid, numbers, epoch, faults)
            )
        rows = _zeros(samples) if valid is None else np.where(valid, 0, -1)
        metadata = (
            np.zeros(samples, self.metadata_type) if metadata_bytes is None else metadata_bytes.view(self.metadata_type)
        )
        payloads = SlotPayloads(_NOTHING if data is None else data, _NO_OFFSETS if offsets is None else offsets, rows)
        if self._batch is not None:
            try:
                values = self._batch(metadata, payloads)
                return (values, valid) if self.labels is None else self._labelled(values, valid, numbers, faults)
            except Exception:
                if self.decoder.plan.kind != "ragged":
                    raise
                # Find out which sample it was, one at a time.
        return self._singly(metadata, payloads, faults)

    def _labelled(
        self, values: Any, valid: NDArray[np.bool_] | None, numbers: NDArray[np.int64], faults: list[Fault]
    ) -> tuple[Any, NDArray[np.bool_] | None]:
        """The numbers as their pipeline makes them."""
        assert self.labels is not None
        made, wrong = self.labels.run(values, numbers, valid)
        if wrong:
            valid = np.ones(len(numbers), np.bool_) if valid is None else valid.copy()
            valid[list(wrong)] = False
            faults += [Fault(row, self.name, error) for row, error in wrong.items()]
        return made, valid

    def _behind(
        self, images: NDArray[Any], valid: NDArray[np.bool_] | None, numbers: NDArray[np.int64], epoch: int,
        faults: list[Fault],
    ) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:  # fmt: skip
        """The engine's images as the rest of the pipeline makes them, in Python."""
        assert self.pipeline is not None
        assert self.pipeline.tail is not None
        made = self.pipeline.blank(len(numbers))
        good = np.ones(len(numbers), np.bool_) if valid is None else valid.copy()
        for i in np.flatnonzero(good).tolist():
            try:
                made[i] = self.pipeline.tail.run(images[i], epoch, int(numbers[i]))
            except Exception as error:
                good[i] = False
                faults.append(Fault(i, self.name, _as_known(error)))
        return made, None if good.all() else good

    def _singly(
        self, metadata: NDArray[Any], payloads: SlotPayloads, faults: list[Fault]
    ) -> tuple[Any, NDArray[np.bool_] | None]:
        values: list[Any] = [None] * len(metadata)
        good = payloads.rows >= 0
        for i in np.flatnonzero(good).tolist():
            try:
                values[i] = self.decoder(metadata[i], lambda i=i: payloads.one(i))  # type: ignore[misc]
            except Exception as error:
                good[i] = False
                faults.append(Fault(i, self.name, _as_known(error)))
        return (self.field.collate(values), None) if good.all() else (values, good)


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
