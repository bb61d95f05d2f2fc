"""Reading shards ahead: one background thread, which lives only while there is something to read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from fastloader.errors import StoreError
from fastloader.formats.zc import ZCShard
from fastloader.stores.populate import populate


class Prefetcher:
    """Brings shards into memory one after the other, in the order they were asked for."""

    def __init__(self) -> None:
        self.process = os.getpid()  # a forked child has a copy of this, but not the thread
        self._lock = threading.Lock()
        self._waiting: dict[int, ZCShard] = {}
        self._thread: threading.Thread | None = None
        self._running = False
        self._stopped = False
        self._failure: Exception | None = None

    def add(self, shards: Iterable[tuple[int, ZCShard]]) -> None:
        """Ask for shards by number. One that is waiting or being read already is not read again."""
        with self._lock:
            for number, shard in shards:
                self._waiting.setdefault(number, shard)
            if self._waiting and not self._running and not self._stopped:
                self._join()  # the last one has nothing left to do
                thread = threading.Thread(target=self._run, name="fastloader-prefetch", daemon=True)
                thread.start()
                self._thread, self._running = thread, True

    def wait(self) -> None:
        """Return when all that was asked for is in memory; raise the first failure since the last time."""
        self._join()
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Let the thread end soon. Takes no lock, so it may be called while another call is under way."""
        self._stopped = True

    def stop(self) -> None:
        """End the thread, within the few megabytes it is reading, and wait for that."""
        self.abandon()
        self._join()
        self._waiting.clear()

    def _join(self) -> None:
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._stopped or not self._waiting:
                    self._running = False
                    return
                number, shard = next(iter(self._waiting.items()))
            try:
                populate(shard.data, lambda: self._stopped)
            except Exception as error:
                self._keep(_explain(error, shard))
            finally:
                with self._lock:
                    del self._waiting[number]

    def _keep(self, failure: Exception) -> None:
        with self._lock:
            self._failure = self._failure or failure


def _explain(error: Exception, shard: ZCShard) -> Exception:
    if not isinstance(error, OSError):
        return error
    failure = StoreError(
        f"reading ahead failed: {error.strerror}", path=shard.path,
        hint="the file became shorter since it was opened, or the disk can't read it",
    )  # fmt: skip
    failure.errno = error.errno
    failure.__cause__ = error
    return failure
