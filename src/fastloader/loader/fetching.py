"""Fetches what the engine asks for of objects in a store: many ranges in flight, as many as make it faster."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastloader import kernels
from fastloader.errors import FastLoaderError
from fastloader.stores import RemoteFile
from fastloader.stores.cache import BLOCK, LOOK, BlockCache

MOST = 128
IN_FLIGHT, IN_FLIGHT_SMALL = 16, 64
"""Requests at once; ``auto_tune`` begins with the first and finds a better number. Small ones wait more than they
transfer."""
SMALL = 512 << 10
_POLL = 200
DISK_THREADS = 4
"""Threads that read and write blocks of a cache."""


class Concurrency:
    """How many requests are in flight: grown step by step for as long as more bytes come for it.

    Knows no clock: it is told bytes and seconds. A step that brought less than a twentieth is undone, and then it rests
    for a while before it looks again.
    """

    GAIN = 1.05
    REST = 20

    def __init__(self, start: int = IN_FLIGHT, most: int = MOST) -> None:
        self.limit = min(start, most)
        self._most = most
        self._before: float | None = None
        self._previous = self.limit
        self._rest = 0

    def observe(self, size: int, seconds: float) -> int:
        """So much came in a period in which all places were taken; returns the limit from now on."""
        rate = size / max(seconds, 1e-9)
        if self._rest:
            self._rest -= 1
            return self.limit
        if self._before is not None and rate < self.GAIN * self._before:
            self.limit, self._before, self._rest = self._previous, None, self.REST
            return self.limit
        self._before, self._previous = rate, self.limit
        self.limit = min(self._most, max(self.limit + 2, self.limit * 3 // 2))
        if self.limit == self._previous:
            self._before, self._rest = None, self.REST
        return self.limit


_running: weakref.WeakSet[Fetcher] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """A thread that comes back from C++ when there is no interpreter any more would end the process with an abort."""
    for fetcher in list(_running):
        fetcher.stop()


class Fetcher:
    """A thread that takes the engine's reads and has them fetched; it runs from ``start`` to ``stop``."""

    PERIOD = 0.25

    def __init__(self, engine: kernels.Engine | kernels.PlannedReads, *, adapt: bool) -> None:
        self._process = os.getpid()
        self._engine = engine
        self._files: dict[int, RemoteFile] = {}
        self._caches: dict[int, BlockCache] = {}
        self._adapt = Concurrency() if adapt else None
        self._limit = IN_FLIGHT
        self._in_flight = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._ending = False
        self._period_began = 0.0
        self._period_bytes = 0
        self._was_full = False
        self._looked = 0.0
        self._evictions = 0
        self.requests = 0
        self.bytes = 0
        self.most_in_flight = 0

    def add(self, number: int, file: RemoteFile) -> None:
        """The object that the engine knows by this number."""
        self._files[number] = file
        if file.cached is not None:
            self._caches[id(file.cached.cache)] = file.cached.cache

    def start(self) -> None:
        """Begin to fetch."""
        if self._thread is None:
            self._ending = False
            self._period_began = time.monotonic()
            self._thread = threading.Thread(target=self._run, name="fastloader-fetcher", daemon=True)
            self._thread.start()
            _running.add(self)

    def stop(self) -> None:
        """End the thread. What is still under way comes back to an engine that no longer wants it."""
        if self._thread is None or self._process != os.getpid():
            return
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._engine.wake_reads()
        self._thread.join()
        self._thread = None
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def stats(self) -> dict[str, Any]:
        """What was fetched, and how."""
        files = list(self._files.values())
        found = self._engine.blocks_found if isinstance(self._engine, kernels.Engine) else 0
        stores = {id(file.path.store): file.path.store for file in files}
        return {
            "requests": self.requests,
            "fetched_bytes": self.bytes,
            "in_flight": self._limit,
            "most_in_flight": self.most_in_flight,
            "hedged": sum(getattr(store, "hedged", 0) for store in stores.values()),
            "cache_hits": sum(cache.hits for cache in self._caches.values()) + found,
            "cache_misses": sum(cache.misses for cache in self._caches.values()),
        }

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._ending and not self._has_room():
                    self._was_full = True
                    self._changed.wait()
                if self._ending:
                    return
                room = self._limit - self._in_flight
            taken = self._engine.take_reads(room, _POLL)
            with self._changed:
                self._in_flight += len(taken)
                self.most_in_flight = max(self.most_in_flight, self._in_flight)
            if taken and self._adapt is None:
                mean = sum(size for _, _, _, size in taken) // len(taken)
                self._limit = IN_FLIGHT_SMALL if mean < SMALL else IN_FLIGHT
            for ticket, number, begin, size in taken:
                self._fetch(ticket, self._files[number], begin, size)
            self._look()

    def _look(self) -> None:
        """Have the engine look for blocks that were removed: what it has mapped of them takes room on the disk."""
        if not self._caches or not isinstance(self._engine, kernels.Engine):
            return
        now = time.monotonic()
        evictions = sum(cache.evictions for cache in self._caches.values())
        if now - self._looked > (LOOK if evictions == self._evictions else 1.0):
            self._looked, self._evictions = now, evictions
            self._engine.look_at_blocks()

    def _fetch(self, ticket: int, file: RemoteFile, begin: int, size: int) -> None:
        if file.cached is None:

            def done(data: Any, error: BaseException | None) -> None:
                self._came(size)
                self._done(ticket, file, size, data, error)

            file.begin_read(begin, size, done)
            return
        mapped = file.cached.mapped(begin // BLOCK) if begin // BLOCK == (begin + size - 1) // BLOCK else None
        if mapped is not None:
            self._done(ticket, file, size, _part(mapped, begin, size), None, file.cached.stamp(begin // BLOCK))
        else:
            self._on_disk(self._find, ticket, file, begin, size)

    def _on_disk(self, do: Callable[..., None], *arguments: Any) -> None:
        """Have a thread do what may wait for the disk."""
        with self._changed:
            if self._ending:
                return  # the engine no longer wants it
            if self._pool is None:
                self._pool = ThreadPoolExecutor(DISK_THREADS, "fastloader-cache")
            self._pool.submit(do, *arguments)

    def _find(self, ticket: int, file: RemoteFile, begin: int, size: int) -> None:
        """A block, or the part of it that holds payloads, from the cache or else from the store."""
        number = begin // BLOCK
        try:
            assert file.cached is not None
            if number != (begin + size - 1) // BLOCK:  # who asks for parts of several gets them joined
                return self._done(ticket, file, size, file.cached.read(begin, size, self._came), None)
            found = file.cached.find(number)
            if found is None:
                whole = file.cached.place(number)
                file.begin_read(
                    *whole, lambda data, error: self._on_disk(self._keep, ticket, file, begin, size, data, error)
                )
        except BaseException as error:
            self._done(ticket, file, size, None, error)
        else:
            if found is not None:
                self._done(ticket, file, size, _part(found, begin, size), None, file.cached.stamp(number))

    def _keep(
        self, ticket: int, file: RemoteFile, begin: int, size: int, data: memoryview, error: BaseException | None
    ) -> None:
        kept = stamp = None
        assert file.cached is not None
        self._came(file.cached.place(begin // BLOCK)[1])
        if error is None:
            try:
                kept = file.cached.keep(begin // BLOCK, data)
                stamp = None if kept is None else file.cached.stamp(begin // BLOCK)
            except BaseException as found:
                error = found
        part = None if error else _part(data if kept is None else kept, begin, size)
        self._done(ticket, file, size, part, error, stamp)

    def _came(self, size: int) -> None:
        """So many bytes were asked of the server, and it has answered; what the disk had is not counted."""
        with self._changed:
            self.requests += 1
            self.bytes += size

    def _done(
        self, ticket: int, file: RemoteFile, size: int, data: Any, error: BaseException | None,
        stamp: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """``stamp`` tells of a block on the disk, as it was when it was found to be right."""
        with self._changed:
            self._in_flight -= 1
            self._period_bytes += size
            self._observe()
            if self._has_room():
                self._changed.notify_all()
        if error is None:
            self._engine.finish_read(ticket, data, stamp)
        else:
            told = str(error) if isinstance(error, FastLoaderError) else f"{file.path}: {type(error).__name__}: {error}"
            self._engine.fail_read(ticket, told)

    def _has_room(self) -> bool:
        """Whether some more may be asked for; not for each one that comes, for every turn of the thread costs."""
        return self._in_flight <= self._limit - max(1, self._limit // 4)

    def _observe(self) -> None:
        now = time.monotonic()
        if self._adapt is None or now - self._period_began < self.PERIOD:
            return
        if self._was_full:  # else the engine asked for no more, and the number says nothing
            self._limit = self._adapt.observe(self._period_bytes, now - self._period_began)
        self._period_began, self._period_bytes, self._was_full = now, 0, False


def _part(block: memoryview, begin: int, size: int) -> memoryview:
    return block[begin % BLOCK : begin % BLOCK + size]
