"""Data on its way to the file: gathered in aligned pieces and written behind the caller's back."""

from __future__ import annotations

import mmap
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from fastloader.stores import DIRECT_ALIGNMENT, AtomicFile

PIECE = 4 << 20
"""What is written through the page cache begins and ends at multiples of this, so that it is kept in huge pages."""

CACHED = 256 << 20
"""Files up to about this size are in memory once written, for who reads them at once. What lies beyond goes past the
page cache: writing it there costs more than all else, and would drive out what others keep in it.
"""

_ROOM = 3 * PIECE
_IN_FLIGHT = 2


class Staging:
    """Takes data front to back; a thread of its own writes it, so that the next is prepared meanwhile."""

    def __init__(self, file: AtomicFile, at: int) -> None:
        self._file = file
        self._at = at
        self._buffer: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._used = 0
        self._spare: list[NDArray[np.uint8]] = []
        self._writing: deque[tuple[Future[None], NDArray[np.uint8]]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def room(self, size: int) -> NDArray[np.uint8]:
        """The next ``size`` bytes, for the caller to fill before the next call. Raises what went wrong in writing."""
        if self._used + size > len(self._buffer):
            end = self._at + self._used
            self._hand_over(self._used - end % (PIECE if self._at < CACHED else DIRECT_ALIGNMENT), size)
        self._used += size
        return self._buffer[self._used - size : self._used]

    def flush(self) -> None:
        """Have all of it written."""
        self._hand_over(self._used, 0)
        while self._writing:
            self._finish_oldest()
        self.close()

    def close(self) -> None:
        """Wait for what is being written, whatever becomes of it, and give back thread and memory."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._writing.clear()
        self._spare.clear()
        self._buffer = np.empty(0, np.uint8)
        self._used = 0

    def _hand_over(self, size: int, wanted: int) -> None:
        """Give the first ``size`` bytes to the thread and go on in another buffer, with room for ``wanted`` more."""
        full, rest = self._buffer, max(self._used - max(size, 0), 0)
        if size <= 0 and len(full) >= self._used + wanted:
            return
        need = max(_ROOM, rest + wanted)
        if size > 0:
            while len(self._writing) >= _IN_FLIGHT:
                self._finish_oldest()
        fresh = self._spare.pop() if self._spare and len(self._spare[-1]) >= need else _aligned(need)
        fresh[:rest] = full[self._used - rest : self._used]
        if size > 0:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "fastloader-disk")
            self._writing.append((self._pool.submit(self._write, self._at, full[:size]), full))
            self._at += size
        self._buffer, self._used = fresh, rest

    def _write(self, at: int, data: NDArray[np.uint8]) -> None:
        if at < CACHED or at % DIRECT_ALIGNMENT or len(data) % DIRECT_ALIGNMENT:
            self._file.write_at(at, data)
            self._file.begin_sync(at, len(data))  # or the disk would rest now and have all the work at the end
        else:
            self._file.write_directly(at, data)

    def _finish_oldest(self) -> None:
        future, buffer = self._writing.popleft()
        future.result()
        if len(buffer) == _ROOM:  # an outsized sample's is not kept
            self._spare.append(buffer)


def _aligned(size: int) -> NDArray[np.uint8]:
    """Memory that begins with a page."""
    return np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
