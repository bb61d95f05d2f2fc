"""Batches of what the engine gives: values of every field, and what ``on_error`` makes of those that are bad."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError, ShapeError, StoreError, UnreadableError
from fastloader.fields import locate_batch
from fastloader.formats.fld import Dataset, explain
from fastloader.formats.fld.joined import place_of
from fastloader.loader.columns import Column, compare_sizes
from fastloader.loader.finishing import CallableFailed, Finishing, made_bytes
from fastloader.loader.moving import follow
from fastloader.loader.parts import Fault, Value
from fastloader.loader.policy import first_error, good_rows, settle
from fastloader.loader.stats import Counters

_MISFITS = {
    "length": "give pad a greater length, or Pad(..., truncate=True)",
    "short": "a PadOrTrim or RandomSegment(..., pad=True) makes it longer, or on_error='skip' leaves out the sample",
    "shape": "leave the field out of pad=, or on_error='skip' leaves out the sample",
}
"""What to do about a sound sample that does not fit into its batch."""

MOST_INSTEAD = 20
"""Batches that are tried in place of one without a good sample, each twice as far behind it."""

PATIENCE = 0.5
"""Seconds to find out on which sample a function failed, where that only goes into the error."""

Instead = Callable[[int, int], NDArray[np.int64]]
"""A step, and how many batches further -> samples of the epoch that may stand in for that step's."""


class Coming(NamedTuple):
    """A batch on its way: what the engine knows it by, or why it could not be asked for."""

    step: int
    samples: NDArray[np.int64]
    ticket: int | None
    error: Exception | None
    future: Future[tuple[Any, float]] | None = None


class Submit(Protocol):
    """Has the engine make a batch of these samples."""

    def __call__(self, samples: NDArray[np.int64], epoch: int, *, fill: bool) -> int:
        """The ticket to wait for."""
        ...


class Orders(NamedTuple):
    """What is done for all batches of a pass."""

    epoch: int
    finishing: Finishing | None
    instead: Instead | None
    submit: Submit


class Maker:
    """Makes batches of what the engine gives, in any thread."""

    def __init__(
        self,
        engine: kernels.Engine,
        dataset: Dataset,
        columns: list[Column],
        on_error: str,
        counters: Counters,
        counting: bool,
    ) -> None:
        self._engine = engine
        self._dataset = dataset
        self._columns = columns
        self._on_error = on_error
        self._counters = counters
        self._counting = counting
        self.made_bytes = 0
        """Of the largest batch so far, beside its slot; those of functions of the user's where ``counting``."""
        self.measured = False
        """Whether a batch was made, so that something is known of their size."""

    def make(self, one: Coming, orders: Orders, help: bool = False) -> tuple[tuple[Any, NDArray[np.int64]], float]:
        """The batch, finished, and the samples in it; and how long the engine was waited for."""
        assert one.ticket is not None
        asked = time.perf_counter()
        samples = one.samples
        values, faults, laps = self._values(one.ticket, samples, orders.epoch, help)
        waited = laps[0] - asked
        if faults:
            self._counters.found(faults, samples)
            if self._on_error == "skip" and len({fault.row for fault in faults}) == len(samples):
                values, faults, samples = self._stand_in(one, faults, orders, help)
        batch, rows = settle(values, len(samples), faults, self._on_error, self._columns)
        if rows is not None:
            samples = samples[rows]
        if orders.finishing is not None:
            try:
                batch = orders.finishing(batch, samples)
            except CallableFailed as failed:
                batch, samples = self._without_failures(failed, one, samples, orders, help)
            if self._counting:
                self.made_bytes = max(self.made_bytes, made_bytes(batch))
        self.measured = True
        laps.append(time.perf_counter())
        self._counters.made(laps)
        return (batch, samples), waited

    def _values(
        self, ticket: int, samples: NDArray[np.int64], epoch: int, help: bool
    ) -> tuple[dict[str, Value], list[Fault], list[float]]:
        """Each field's part of a batch, what is bad in it, and when which of it was there."""
        parts, failures = self._engine.wait(ticket, help)
        laps = [time.perf_counter()]
        faults = [
            Fault(row, self._columns[number].name, self._explain(samples, epoch, number, kind, message, row, *sums))
            for number, kind, message, row, *sums in failures
        ]
        for fault in faults:
            # They come ordered by row. Without memory there is nothing to decode; and what a store or a disk refuses
            # now it may give the next time, so leaving it out would make the batches depend on the weather.
            if self._on_error == "raise" or isinstance(fault.error, MemoryError | StoreError | UnreadableError):
                raise fault.error
        made = []
        for column, part in zip(self._columns, parts, strict=True):
            made.append(column.made(part, samples, epoch, faults))
            self._locate_lazy(len(made) - 1, made[-1].values, samples)
            laps.append(time.perf_counter())
        self.made_bytes = max(self.made_bytes, sum(len(samples) * column.made_bytes for column in self._columns))
        compare_sizes(made, [column.name for column in self._columns], faults)
        values = {name: value for one in made for name, value in one.values.items()}
        follow(values, self._columns, samples, epoch, faults)
        for fault in faults:
            self._locate(fault, int(samples[fault.row]))
        return values, faults, laps

    def _again(
        self, samples: NDArray[np.int64], orders: Orders, help: bool
    ) -> tuple[dict[str, Value], list[Fault], list[float]]:
        return self._values(orders.submit(samples, orders.epoch, fill=True), samples, orders.epoch, help)

    def _stand_in(
        self, one: Coming, faults: list[Fault], orders: Orders, help: bool
    ) -> tuple[dict[str, Value], list[Fault], NDArray[np.int64]]:
        """What comes in place of a batch without a good sample."""
        for found in self._others(one, orders, help):
            return found
        raise first_error(faults)

    def _others(
        self, one: Coming, orders: Orders, help: bool
    ) -> Iterator[tuple[dict[str, Value], list[Fault], NDArray[np.int64]]]:
        """Other parts of the epoch's order that have a good sample, the nearest behind the batch first: whoever makes
        this batch finds the same.
        """
        for attempt in range(0 if orders.instead is None else MOST_INSTEAD):
            assert orders.instead is not None
            samples = np.resize(orders.instead(one.step, 1 << attempt), len(one.samples))
            values, faults, _ = self._again(samples, orders, help)
            if len({fault.row for fault in faults}) < len(samples):
                yield values, faults, samples

    def _without_failures(
        self, failed: CallableFailed, one: Coming, samples: NDArray[np.int64], orders: Orders, help: bool
    ) -> tuple[Any, NDArray[np.int64]]:
        """What the policy makes of a batch on which a function of the user's failed."""
        faults = self._failing(failed, samples, orders, help)
        if self._on_error != "skip":
            raise first_error(faults)
        self._counters.found(faults, samples)
        rows = good_rows(len(samples), {fault.row for fault in faults})
        if rows is not None:
            return self._finished_good(samples[rows], orders, help)
        for values, bad, others in self._others(one, orders, help):
            batch, chosen = settle(values, len(others), bad, self._on_error, self._columns)
            others = others if chosen is None else others[chosen]
            try:
                assert orders.finishing is not None
                return orders.finishing(batch, others), others
            except CallableFailed as again:
                more = self._failing(again, others, orders, help)
            rows = good_rows(len(others), {fault.row for fault in more})
            if rows is not None:
                return self._finished_good(others[rows], orders, help)
        raise first_error(faults)

    def _failing(self, failed: CallableFailed, samples: NDArray[np.int64], orders: Orders, help: bool) -> list[Fault]:
        """The samples that a function of the user's fails on, given them one by one; where it fails on none of them,
        what it said of all is raised.
        """
        faults: list[Fault] = []
        path = self._dataset.path
        raises = self._on_error == "raise"
        until = time.monotonic() + PATIENCE
        for row in range(len(samples)):
            if raises and (faults or time.monotonic() > until):
                break
            try:
                self._finished(samples[row : row + 1], orders, help)
            except CallableFailed as alone:
                error = alone.told(path, samples[row : row + 1], alone=True)
                faults.append(Fault(row, alone.field or alone.what, error))
        if not faults:
            raise failed.told(path, samples, alone=len(samples) == 1)
        return faults

    def _finished(self, samples: NDArray[np.int64], orders: Orders, help: bool) -> Any:
        """The batch of samples that can be read, made anew: what failed may have changed what it was given."""
        assert orders.finishing is not None
        values, faults, _ = self._again(samples, orders, help)
        batch, _ = settle(values, len(samples), faults, self._on_error, self._columns)
        return orders.finishing(batch, samples)

    def _finished_good(self, samples: NDArray[np.int64], orders: Orders, help: bool) -> tuple[Any, NDArray[np.int64]]:
        """The batch of samples that the functions take one by one."""
        try:
            return self._finished(samples, orders, help), samples
        except CallableFailed as again:
            raise again.told(self._dataset.path, samples, alone=False) from None

    def _explain(
        self, samples: NDArray[np.int64], epoch: int, number: int, kind: str, message: str, row: int, stored: int,
        computed: int,
    ) -> Exception:  # fmt: skip
        sample = int(samples[row])
        if kind == "memory":
            return MemoryError(f"sample {sample}, field {self._columns[number].name!r}: {message}")
        if kind == "remote":  # the message names the object
            return StoreError(message, sample=sample, field=self._columns[number].name)
        if kind in _MISFITS:
            place = {"path": self._path(number, sample), "sample": sample, "field": self._columns[number].name}
            return ShapeError(message, **place, hint=_MISFITS[kind])
        if kind in ("operation", "decoder"):
            error = self._columns[number].why(message, self._dataset, sample, epoch)
            self._locate(Fault(row, self._columns[number].name, error), sample)
            return error
        failure = kernels.Failure(kind, message, row, stored, computed)
        return explain(failure, self._path(number, sample), sample, self._columns[number].name)

    def _locate(self, fault: Fault, sample: int) -> None:
        error = fault.error
        if isinstance(error, FastLoaderError) and error.sample is None:
            number = [column.name for column in self._columns].index(fault.field)
            path = self._path(number, sample)
            error.path, error.sample, error.field = str(path), sample, fault.field
            error.hint = error.hint or f'run "fastloader verify --decode {path}"'

    def _locate_lazy(self, column: int, made: dict[str, Value], samples: NDArray[np.int64]) -> None:
        """Values that are decoded when the consumer asks for it must know where they come from."""
        for name, (values, _) in made.items():
            locate_batch(values, samples, partial(self._path, column), name)

    def _path(self, column: int, sample: int) -> Any:
        source, _ = self._dataset.where(sample)
        return place_of(self._dataset.file(source), self._columns[column].number)[0].path
