"""Runs the engine for a loader: batches submitted ahead, waited for in order, turned into values."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError, ShapeError, StoreError
from fastloader.fields import locate_batch
from fastloader.formats.fld import Dataset, FldFile, explain
from fastloader.formats.fld.joined import place_of
from fastloader.formats.fld.spans import payload_spans
from fastloader.loader.columns import Column, Source, compare_sizes
from fastloader.loader.fetching import Fetcher
from fastloader.loader.moving import follow
from fastloader.loader.parts import Fault, Value
from fastloader.loader.policy import settle
from fastloader.loader.reading import Reading, batches_within
from fastloader.loader.resources import usable_cpus
from fastloader.loader.stats import Counters, summary
from fastloader.loader.tuning import Setting, Tuner
from fastloader.types import Batch, distinct

AHEAD_AT_ONCE = 8
"""Batches planned ahead at each step, so that the first does not wait for the planning of all."""
SPARE_SLOTS = 3
"""Slots beyond those being made: the consumer's, the one it is about to get, and one on its way back."""

_MISFITS = {
    "length": "give pad a greater length, or Pad(..., truncate=True)",
    "short": "a PadOrTrim or RandomSegment(..., pad=True) makes it longer, or on_error='skip' leaves out the sample",
    "shape": "leave the field out of pad=, or on_error='skip' leaves out the sample",
}
"""What to do about a sound sample that does not fit into its batch."""

Finish = Callable[[Batch, NDArray[np.int64]], Any]
"""What Python still does to a batch of these samples."""


class Runner:
    """The engine of one loader in one process, its threads and its memory; made when first needed."""

    def __init__(
        self,
        dataset: Dataset,
        columns: list[Column],
        threads: int,
        depth: int,
        on_error: str,
        *,
        reading: Reading | None = None,
        memory_limit: int | None = None,
        helping: bool = True,
        threads_a_batch: int = 0,
        tuner: Tuner | None = None,
        pinning: kernels.Pinning | None = None,
    ) -> None:
        self._process = os.getpid()
        self.counters = Counters(len(columns))
        self._dataset = dataset
        self._columns = columns
        self._on_error = on_error
        self._draws = any(column.draws for column in columns)
        self._tuner = tuner
        if tuner is not None:
            threads, depth = tuner.setting.threads, tuner.setting.ahead
        self._depth = depth
        self._python_threads = 0
        # The engine's number for each source of the dataset, -1 until it has one.
        self._sources = np.full(int(dataset.runs.sources.max(initial=0)) + 1, -1, np.int32)
        self._files: dict[str, int] = {}  # path -> the engine's number for it
        self._active = 0
        self._lock = threading.Lock()
        self._reading = reading or Reading()
        self._memory_limit = memory_limit
        self._made_bytes = 0  # of a batch, beside its slot
        self._helping = helping  # the consumer works along while it waits
        plans = [column.engine_plan() for column in columns]
        self._engine = kernels.Engine(
            plans, threads, depth + SPARE_SLOTS, threads_a_batch, self._reading.engine_options(), pinning
        )
        self._fetcher: Fetcher | None = None
        if self._reading.mode == "remote":
            self._fetcher = Fetcher(self._engine, adapt=tuner is not None)

    def run(
        self,
        batches: Iterator[NDArray[np.int64]],
        finish: Finish,
        python_threads: int,
        epoch: int = 0,
    ) -> Generator[Any, None, None]:
        """Each batch, finished, in order. With ``python_threads`` the finishing runs in that many threads."""
        self._enter()
        counters = self.counters
        self._python_threads = python_threads
        waiting: deque[tuple[int, Future[tuple[Any, float]] | None, NDArray[np.int64]]] = deque()
        ahead: deque[tuple[int, NDArray[np.int64]]] = deque()  # only their bytes are fetched yet
        pool = ThreadPoolExecutor(python_threads, "fastloader-loader") if python_threads else None
        patient = True

        def top_up() -> None:
            depth = self._allowed_depth()
            while len(waiting) < depth:
                if ahead:
                    ticket, samples = ahead.popleft()
                    self._engine.fill(ticket)
                elif new := next(((self._submit(one, epoch, fill=True), one) for one in batches), None):
                    ticket, samples = new
                else:
                    return
                future = None if pool is None else pool.submit(self._make, ticket, samples, epoch, finish)
                waiting.append((ticket, future, samples))
            for samples in islice(batches, max(0, min(AHEAD_AT_ONCE, self._reading.ahead - len(ahead)))):
                ahead.append((self._submit(samples, epoch, fill=False), samples))

        resumed = time.perf_counter()
        try:
            top_up()
            while waiting:
                ticket, future, samples = waiting.popleft()
                top_up()
                began = time.perf_counter()
                counters.planning += began - resumed
                if future is None:
                    batch, waited = self._make(ticket, samples, epoch, finish, help=self._helping)
                else:
                    batch, _ = future.result()
                    waited = time.perf_counter() - began
                counters.waiting += waited
                counters.batches += 1
                counters.samples += len(samples)
                if self._tuner is not None:
                    self._tune(self._tuner, waited)
                given = time.perf_counter()
                yield batch
                resumed = time.perf_counter()
                counters.consumer += resumed - given
                del batch, future  # while we wait for the next one, only the consumer decides how long this one lives
        except KeyboardInterrupt:
            patient = False  # a transform may be stuck for good
            raise
        finally:
            for ticket, future, _ in waiting:
                if future is None or future.cancel():
                    self._engine.forget(ticket)
            for ticket, _ in ahead:
                self._engine.forget(ticket)
            if pool is not None:
                pool.shutdown(wait=patient, cancel_futures=True)
            self._leave()

    def _enter(self) -> None:
        """The threads run while any epoch does."""
        with self._lock:
            self._active += 1
            if self._tuner is not None:
                self._tuner.begin_epoch()
            self._engine.start()
            if self._fetcher is not None:
                self._fetcher.start()

    def _leave(self) -> None:
        with self._lock:
            self._active -= 1
            if self._active == 0:
                self.stop()

    def _allowed_depth(self) -> int:
        """How many batches may be in the making. With a limit, one until it is known how large they are."""
        if self._memory_limit is None:
            return self._depth
        size = self._engine.slot_bytes + self._made_bytes
        return batches_within(self._memory_limit, self._reading, size, self._depth) if size else 1

    def _tune(self, tuner: Tuner, waited: float) -> None:
        with self._lock:
            setting = tuner.given(waited, self._engine.usage)
            if setting is not None:
                self._set(setting)

    def _set(self, setting: Setting) -> None:
        """Another number of threads and of batches ahead from now on. The batches are the same."""
        self._depth = setting.ahead
        self._engine.set_slots(setting.ahead + SPARE_SLOTS)
        self._engine.set_threads(setting.threads)

    def _submit(self, samples: NDArray[np.int64], epoch: int, *, fill: bool) -> int:
        runs = self._dataset.runs
        if len(runs.starts) == 2 and not runs.firsts[0]:
            if self._sources[runs.sources[0]] < 0:
                self._add_source(int(runs.sources[0]))
            return self._engine.submit(None, samples, fill, epoch)
        sources, rows = runs.locate(samples)
        which = self._sources[sources]
        if (which < 0).any():
            fresh = distinct(sources[which < 0]).tolist()
            self._dataset.warm(fresh, self._tables)
            for source in fresh:
                self._add_source(source)
            which = self._sources[sources]
        named = samples if self._draws else None  # who draws does so by the sample's own number
        return self._engine.submit(which, rows, fill, epoch, named)

    def _tables(self, source: int) -> list[Source]:
        return [column.source(self._dataset, source) for column in self._columns]

    def _add_source(self, source: int) -> None:
        tables = self._tables(source)
        shard = self._dataset.file(source)
        places = [place_of(shard, column.number) for column in self._columns]
        for file, _ in places:
            stored = {
                number: payloads
                for (other, number), (_, _, payloads) in zip(places, tables, strict=True)
                if other is file and payloads is not None
            }
            if stored and str(file.path) not in self._files:
                self._files[str(file.path)] = self._add_file(file, stored)
        files = [self._files.get(str(file.path), 0) for file, _ in places]  # who stores no payloads needs none
        numbered = [(*table, file) for table, file in zip(tables, files, strict=True)]
        self._sources[source] = self._engine.add_source(numbered)

    def _add_file(self, file: Any, stored: dict[int, kernels.Payloads]) -> int:
        """A file, and by their numbers there the fields that payloads are read of."""
        spans = None
        if isinstance(file, FldFile) and file.remote is not None and self._reading.unit and not self._reading.apart:
            spans = payload_spans(file, list(stored), self._reading.unit)
        cached = None if file.remote is None else file.remote.cached
        blocks = "" if cached is None else os.fspath(cached.folder)
        number = self._engine.add_file((str(file.path), *file.inode), list(stored.values()), spans, blocks)
        if self._fetcher is not None and file.remote is not None:
            self._fetcher.add(number, file.remote)
        return number

    def _make(
        self, ticket: int, samples: NDArray[np.int64], epoch: int, finish: Finish, help: bool = False
    ) -> tuple[Any, float]:
        """The batch, finished, and how long the engine was waited for."""
        asked = time.perf_counter()
        parts, failures = self._engine.wait(ticket, help)
        began = time.perf_counter()
        faults = [
            Fault(row, self._columns[number].name, self._explain(samples, epoch, number, kind, message, row, *sums))
            for number, kind, message, row, *sums in failures
        ]
        for fault in faults:
            # They come ordered by row. Without memory there is nothing to decode; and what a store refuses now it may
            # give the next time, so leaving it out would make the batches depend on the weather.
            if self._on_error == "raise" or isinstance(fault.error, MemoryError | StoreError):
                raise fault.error
        count = len(samples)
        made = []
        laps = [began]
        for column, part in zip(self._columns, parts, strict=True):
            made.append(column.made(part, samples, epoch, faults))
            self._locate_lazy(len(made) - 1, made[-1].values, samples)
            laps.append(time.perf_counter())
        self._made_bytes = max(self._made_bytes, sum(count * column.made_bytes for column in self._columns))
        compare_sizes(made, [column.name for column in self._columns], faults)
        values = {name: value for one in made for name, value in one.values.items()}
        follow(values, self._columns, samples, epoch, faults)
        for fault in faults:
            self._locate(fault, int(samples[fault.row]))
        if faults:
            self.counters.found(faults, samples)
        batch = finish(settle(values, count, faults, self._on_error, self._columns), samples)
        laps.append(time.perf_counter())
        self.counters.made(laps)
        return batch, began - asked

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

    def stats(self) -> dict[str, Any]:
        """What was done and where the time went; ``DataLoader.stats`` describes it."""
        names = [column.name for column in self._columns]
        told = summary(self.counters, dict(zip(names, self._engine.times(), strict=True)), self._engine.usage())
        told["threads"] |= {"python": self._python_threads, "cpus": usable_cpus()}
        told["io"] |= {"mode": self._reading.mode, **self._engine.reads()}
        if self._fetcher is not None:
            told["io"] |= self._fetcher.stats()
        told["slots"] = self._engine.slots_made
        told["ahead"] = self._depth
        told["tuning"] = None if self._tuner is None else self._tuner.to_dict()
        return told

    @property
    def slot_bytes(self) -> tuple[int, dict[str, int]]:
        """Bytes of the largest slot so far, and by field the most of any slot; 0 before the first batch."""
        names = (column.name for column in self._columns)
        return self._engine.slot_bytes, dict(zip(names, self._engine.slot_columns, strict=True))

    @property
    def mine(self) -> bool:
        """Whether the threads are in this process: a forked child has the object without them."""
        return self._process == os.getpid()

    @property
    def needs_python(self) -> bool:
        """Whether some field is decoded by Python, a sample at a time."""
        return any(column.needs_python for column in self._columns)

    def stop(self) -> None:
        """End the engine's threads."""
        if self.mine:
            self._engine.stop()
            if self._fetcher is not None:
                self._fetcher.stop()
