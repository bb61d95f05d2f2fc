"""Runs the engine for a loader: batches submitted ahead, waited for in order, turned into values."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError, ShapeError
from fastloader.formats.fld import Dataset, explain
from fastloader.loader.columns import Column, Fault
from fastloader.loader.policy import settle
from fastloader.loader.reading import Reading, batches_within
from fastloader.types import Batch

MOST_LISTED = 1000
AHEAD_AT_ONCE = 8
"""Batches planned ahead at each step, so that the first does not wait for the planning of all."""
_MAPPED = Reading()
SPARE_SLOTS = 3
"""Slots beyond those being made: the consumer's, the one it is about to get, and one on its way back."""

_MISFITS = {
    "length": "give pad a greater length, or Pad(..., truncate=True)",
    "shape": "leave the field out of pad=, or on_error='skip' leaves out the sample",
}
"""What to do about a sound sample that can't be padded."""


@dataclass(slots=True)
class Counters:
    """What a loader has done so far."""

    batches: int = 0
    samples: int = 0
    waiting: float = 0.0
    python: float = 0.0
    faults: int = 0
    listed: list[dict[str, Any]] = field(default_factory=list)


class Runner:
    """The engine of one loader in one process, its threads and its memory; made when first needed."""

    def __init__(
        self,
        dataset: Dataset,
        columns: list[Column],
        threads: int,
        depth: int,
        on_error: str,
        reading: Reading = _MAPPED,
        memory_limit: int | None = None,
    ) -> None:
        self._process = os.getpid()
        self.counters = Counters()
        self._dataset = dataset
        self._columns = columns
        self._on_error = on_error
        self._depth = depth
        self._sources: dict[int, int] = {}  # shard -> the engine's number for it
        self._active = 0
        self._lock = threading.Lock()
        self._reading = reading
        self._memory_limit = memory_limit
        self._engine = kernels.Engine(
            [column.engine_plan() for column in columns], threads, depth + SPARE_SLOTS, reading.engine_options()
        )

    def run(
        self,
        batches: Iterator[NDArray[np.int64]],
        finish: Callable[[Batch, NDArray[np.int64]], Any],
        python_threads: int,
    ) -> Generator[Any, None, None]:
        """Each batch, finished, in order. With ``python_threads`` the finishing runs in that many threads."""
        self._enter()
        waiting: deque[tuple[int, Future[Any] | None, NDArray[np.int64]]] = deque()
        ahead: deque[tuple[int, NDArray[np.int64]]] = deque()  # only their bytes are fetched yet
        pool = ThreadPoolExecutor(python_threads, "fastloader-loader") if python_threads else None
        patient = True

        def top_up() -> None:
            depth = self._allowed_depth()
            while len(waiting) < depth:
                if ahead:
                    ticket, samples = ahead.popleft()
                    self._engine.fill(ticket)
                elif new := next(((self._submit(one, fill=True), one) for one in batches), None):
                    ticket, samples = new
                else:
                    return
                future = None if pool is None else pool.submit(self._make, ticket, samples, finish)
                waiting.append((ticket, future, samples))
            for samples in islice(batches, max(0, min(AHEAD_AT_ONCE, self._reading.ahead - len(ahead)))):
                ahead.append((self._submit(samples, fill=False), samples))

        try:
            top_up()
            while waiting:
                ticket, future, samples = waiting.popleft()
                top_up()
                began = time.perf_counter()
                batch = self._make(ticket, samples, finish) if future is None else future.result()
                self.counters.waiting += time.perf_counter() - began
                self.counters.batches += 1
                self.counters.samples += len(samples)
                yield batch
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
            self._engine.start()

    def _leave(self) -> None:
        with self._lock:
            self._active -= 1
            if self._active == 0:
                self.stop()

    def _allowed_depth(self) -> int:
        """How many batches may be in the making. With a limit, one until it is known how large they are."""
        if self._memory_limit is None:
            return self._depth
        size = self._engine.slot_bytes
        return batches_within(self._memory_limit, self._reading, size, self._depth) if size else 1

    def _submit(self, samples: NDArray[np.int64], *, fill: bool) -> int:
        starts = self._dataset.starts
        if len(starts) == 2:
            if not self._sources:
                self._add_source(0)
            return self._engine.submit(None, samples, fill)
        shards = np.searchsorted(starts, samples, "right") - 1
        for shard in np.unique(shards).tolist():
            if shard not in self._sources:
                self._add_source(shard)
        which = np.fromiter((self._sources[s] for s in shards.tolist()), np.int32, len(shards))
        return self._engine.submit(which, samples - starts[shards], fill)

    def _add_source(self, shard: int) -> None:
        tables = [column.source(self._dataset, shard) for column in self._columns]
        file = self._dataset.file(shard)
        self._sources[shard] = self._engine.add_source(tables, (os.fspath(file.path), *file.inode))

    def _make(self, ticket: int, samples: NDArray[np.int64], finish: Callable[[Batch, NDArray[np.int64]], Any]) -> Any:
        parts, failures = self._engine.wait(ticket)
        began = time.perf_counter()
        faults = [
            Fault(row, self._columns[number].name, self._explain(samples, number, row, kind, message, stored, computed))
            for number, kind, message, row, stored, computed in failures
        ]
        for fault in faults:
            if self._on_error == "raise" or isinstance(fault.error, MemoryError):
                raise fault.error  # they come ordered by row; without memory there is nothing to decode
        count = len(samples)
        values = {
            column.name: column.values(part, count, faults) for column, part in zip(self._columns, parts, strict=True)
        }
        for fault in faults:
            self._locate(fault, int(samples[fault.row]))
        if faults:
            self._count(faults, samples)
        batch = finish(settle(values, count, faults, self._on_error, self._columns), samples)
        self.counters.python += time.perf_counter() - began
        return batch

    def _explain(
        self, samples: NDArray[np.int64], number: int, row: int, kind: str, message: str, stored: int, computed: int
    ) -> Exception:
        sample = int(samples[row])
        if kind == "memory":
            return MemoryError(f"sample {sample}, field {self._columns[number].name!r}: {message}")
        if kind in _MISFITS:
            place = {"path": self._path(sample), "sample": sample, "field": self._columns[number].name}
            return ShapeError(message, **place, hint=_MISFITS[kind])
        failure = kernels.Failure(kind, message, row, stored, computed)
        return explain(failure, self._path(sample), sample, self._columns[number].name)

    def _locate(self, fault: Fault, sample: int) -> None:
        error = fault.error
        if isinstance(error, FastLoaderError) and error.sample is None:
            path = self._path(sample)
            error.path, error.sample, error.field = str(path), sample, fault.field
            error.hint = error.hint or f'run "fastloader verify --decode {path}"'

    def _path(self, sample: int) -> Any:
        number, _ = self._dataset.where(sample)
        return self._dataset.file(number).path

    def _count(self, faults: list[Fault], samples: NDArray[np.int64]) -> None:
        self.counters.faults += len(faults)
        room = MOST_LISTED - len(self.counters.listed)
        self.counters.listed += [
            {"sample": int(samples[fault.row]), "field": fault.field, "error": str(fault.error)}
            for fault in faults[: max(room, 0)]
        ]

    def times(self) -> dict[str, dict[str, float]]:
        """Seconds of the engine's threads by field: looking up, and reading with decoding."""
        seconds = zip(self._columns, self._engine.times(), strict=True)
        return {column.name: {"lookup": lookup, "read": read} for column, (lookup, read) in seconds}

    def reads(self) -> dict[str, Any]:
        """What was read, by which means, and how long batches waited for it (seconds, summed over batches)."""
        reads, size, asked, mapped, given_up, waiting = self._engine.reads()
        return {
            "mode": self._reading.mode,
            "reads": reads,
            "bytes": size,
            "payload_bytes": asked,
            "batches_in_memory": mapped,
            "given_up": given_up,
            "waiting": waiting,
        }

    @property
    def mine(self) -> bool:
        """Whether the threads are in this process: a forked child has the object without them."""
        return self._process == os.getpid()

    @property
    def needs_python(self) -> bool:
        """Whether some field is decoded by Python, a sample at a time."""
        return any(column.needs_python for column in self._columns)

    @property
    def slots_made(self) -> int:
        """How many batches' memory was ever allocated."""
        return self._engine.slots_made

    def stop(self) -> None:
        """End the engine's threads."""
        if self.mine:
            self._engine.stop()
