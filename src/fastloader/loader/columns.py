"""The fields of the dataset in a loader's batches: where each lies, and what is done for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import OperationError
from fastloader.fields import Decoder, Field
from fastloader.formats.fld import Dataset
from fastloader.formats.fld.layout import Kind
from fastloader.loader.padding import Layout, Way
from fastloader.loader.parts import EnginePlan, Fault, Given, Made, Parts
from fastloader.loader.rows import why
from fastloader.loader.works import Filled, Programs, work_of
from fastloader.pipeline import ClipPipeline, FlowFollowing, Following, Images, Pipeline, Sizes, SoundPipeline, Values

Source = tuple[kernels.Table | None, kernels.Table | None, kernels.Payloads | None]
"""A field's tables in a shard: metadata, validity, payloads."""


class Column:
    """One field of the dataset in the loader's batches: as a field of that name there, or as several."""

    def __init__(
        self,
        number: int,
        name: str,
        field: Field,
        layout: Layout | None = None,
        pipeline: Pipeline | None = None,
        way: Way | None = None,
    ) -> None:
        self.number = number
        self.name = name
        self.field = field
        self.way = way
        self.following = pipeline if isinstance(pipeline, Following | FlowFollowing) else None
        self.draws = isinstance(pipeline, Images | SoundPipeline)
        """Whether the engine draws numbers for its samples."""
        self.made_bytes = pipeline.row_bytes if isinstance(pipeline, ClipPipeline) else 0
        """What a sample takes beside the engine's slot."""
        decoder: Decoder = field.get_decoder_class()(field)
        self.work = work_of(decoder, layout, pipeline, way)
        values = pipeline if isinstance(pipeline, Values) else getattr(pipeline, "behind", None)
        self.collate = field.collate if values is None else values.collate

    @property
    def type(self) -> str:
        """The field's class, and of a JPEG that it has no index, where it has none."""
        name = type(self.field).__name__
        return name if getattr(self.field, "seekable", True) else f"{name}(seekable=False)"

    @property
    def needs_python(self) -> bool:
        """Whether Python runs once a sample."""
        return self.work.needs_python or (self.following is not None and self.following.needs_python)

    def engine_plan(self) -> EnginePlan:
        """The plan as the engine takes it."""
        return self.work.engine_plan()

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
        return self.work.made(Given(self.name, parts, numbers, epoch, faults))

    def why(self, message: str, dataset: Dataset, sample: int, epoch: int) -> Exception:
        """Why a compiled function of the user's failed on a sample."""

        def again() -> None:
            shard, row = dataset.where(sample)
            file = dataset.file(shard)
            if isinstance(self.work, Programs | Filled):
                metadata: Any = file.metadata_row(self.number, row, self.field.metadata_type)
                self.work.again(metadata, file.payload(self.number, row), epoch, sample)

        return why(message, again)


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
