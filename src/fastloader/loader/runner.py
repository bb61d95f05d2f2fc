"""Runs the engine for a loader: batches submitted ahead, waited for in order, turned into values."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError
from fastloader.formats.fld import Dataset, FldFile
from fastloader.formats.fld.joined import place_of
from fastloader.formats.fld.spans import payload_spans
from fastloader.loader.columns import Column, Source
from fastloader.loader.fetching import Fetcher
from fastloader.loader.finishing import Finishing
from fastloader.loader.making import Coming, Instead, Maker, Orders
from fastloader.loader.reading import Reading, batches_within
from fastloader.loader.resources import usable_cpus
from fastloader.loader.stats import Counters, summary
from fastloader.loader.tuning import Setting, Tuner
from fastloader.threads import DaemonPool
from fastloader.types import distinct

AHEAD_AT_ONCE = 8
"""Batches planned ahead at each step, so that the first does not wait for the planning of all."""
SPARE_SLOTS = 3
"""Slots beyond those being made: the consumer's, the one it is about to get, and one on its way back."""


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
        counters: Counters | None = None,
        reading: Reading | None = None,
        memory_limit: int | None = None,
        helping: bool = True,
        threads_a_batch: int = 0,
        tuner: Tuner | None = None,
        pinning: kernels.Pinning | None = None,
    ) -> None:
        self._process = os.getpid()
        self.counters = counters or Counters(len(columns))
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
        self._asking = threading.Lock()  # for what the engine is told of files and batches
        self._reading = reading or Reading()
        self._memory_limit = memory_limit
        self._helping = helping  # the consumer works along while it waits
        plans = [column.engine_plan() for column in columns]
        self._engine = kernels.Engine(
            plans, threads, depth + SPARE_SLOTS, threads_a_batch, self._reading.engine_options(), pinning
        )
        counting = memory_limit is not None
        self._maker = Maker(self._engine, dataset, columns, on_error, self.counters, counting)
        self._fetcher: Fetcher | None = None
        if self._reading.mode == "remote":
            self._fetcher = Fetcher(self._engine, adapt=tuner is not None)

    def run(
        self,
        batches: Iterator[NDArray[np.int64]],
        finishing: Finishing | None,
        python_threads: int,
        epoch: int = 0,
        instead: Instead | None = None,
    ) -> Generator[tuple[Any, NDArray[np.int64]], None, None]:
        """Each batch, finished, in order, and the samples in it. What can't be asked for is raised when it is its turn.

        With ``python_threads`` the finishing runs in that many threads.
        """
        orders = Orders(epoch, finishing, instead, self._submit)
        self._enter()
        counters = self.counters
        self._python_threads = python_threads
        waiting: deque[Coming] = deque()
        ahead: deque[Coming] = deque()  # only their bytes are fetched yet
        pool = DaemonPool(python_threads, "fastloader-loader") if python_threads else None
        patient = True
        numbered = enumerate(batches)

        def asked(step: int, samples: NDArray[np.int64], *, fill: bool) -> Coming:
            try:
                return Coming(step, samples, self._submit(samples, epoch, fill=fill), None)
            except Exception as error:
                return Coming(step, samples, None, error)

        def top_up() -> None:
            depth = self._allowed_depth()
            while len(waiting) < depth:
                if ahead:
                    one = ahead.popleft()
                    if one.ticket is not None:
                        self._engine.fill(one.ticket)
                elif new := next(numbered, None):
                    one = asked(*new, fill=True)
                else:
                    return
                if pool is not None and one.ticket is not None:
                    one = one._replace(future=pool.submit(self._maker.make, one, orders))
                waiting.append(one)
            for step, samples in islice(numbered, max(0, min(AHEAD_AT_ONCE, self._reading.ahead - len(ahead)))):
                ahead.append(asked(step, samples, fill=False))

        resumed = time.perf_counter()
        try:
            top_up()
            while waiting:
                one = waiting.popleft()
                if one.error is not None:
                    raise one.error
                top_up()
                began = time.perf_counter()
                counters.planning += began - resumed
                if one.future is None:
                    batch, waited = self._maker.make(one, orders, help=self._helping)
                else:
                    batch, _ = one.future.result()
                    waited = time.perf_counter() - began
                counters.waiting += waited
                counters.batches += 1
                counters.samples += len(one.samples)
                if self._tuner is not None:
                    self._tune(self._tuner, waited)
                given = time.perf_counter()
                del one
                yield batch
                resumed = time.perf_counter()
                counters.consumer += resumed - given
                del batch  # while we wait for the next one, only the consumer decides how long this one lives
        except KeyboardInterrupt:
            patient = False  # a transform may be stuck for good
            raise
        finally:
            for one in (*waiting, *ahead):
                if one.ticket is not None and (one.future is None or one.future.cancel()):
                    self._engine.forget(one.ticket)
            if pool is not None:
                pool.shutdown(wait=patient, cancel_futures=True)
            self._leave()

    def _enter(self) -> None:
        """The threads run while any epoch does."""
        with self._lock:
            self._active += 1
            try:
                if self._tuner is not None:
                    self._tuner.begin_epoch()
                self._engine.start()
                if self._fetcher is not None:
                    self._fetcher.start()
            except BaseException:  # some threads may have been started
                self._active -= 1
                if self._active == 0:
                    self.stop()
                raise

    def _leave(self) -> None:
        with self._lock:
            self._active -= 1
            if self._active == 0:
                self.stop()

    def _allowed_depth(self) -> int:
        """How many batches may be in the making. With a limit, one until it is known how large they are."""
        if self._memory_limit is None:
            return self._depth
        if not self._maker.measured:  # the slot alone may be known already, and what functions make of it is not
            return 1
        size = self._engine.slot_bytes + self._maker.made_bytes
        return batches_within(self._memory_limit, self._reading, size, self._depth)

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
        with self._asking:
            return self._submit_one(samples, epoch, fill)

    def _submit_one(self, samples: NDArray[np.int64], epoch: int, fill: bool) -> int:
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
                try:
                    self._add_source(source)
                except FastLoaderError as error:
                    if error.sample is None:
                        error.sample = int(samples[np.argmax(sources == source)])
                    raise
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

    def stats(self) -> dict[str, Any]:
        """What was done and where the time went; ``DataLoader.stats`` describes it."""
        names = [column.name for column in self._columns]
        told = summary(self.counters, dict(zip(names, self._engine.times(), strict=True)), self._engine.usage())
        for column in self._columns:
            told["fields"][column.name]["type"] = column.type
        told["threads"] |= {"python": self._python_threads, "cpus": usable_cpus()}
        told["io"] |= {"mode": self._reading.mode, "window": self._reading.window, **self._engine.reads()}
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
