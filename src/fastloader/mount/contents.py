"""The bytes of a file that somebody has open: read where they are asked for, as little as its format allows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Protocol

from fastloader.formats.entries import Entry
from fastloader.types import Buffer, byte_view

CHECKED = 1 << 20
"""Files up to this many bytes are read whole and checked, which costs no more than a part of them."""
BLOCK = 4 << 20
"""What is asked of a store at once: as much as one request is good for."""
KEPT_BLOCKS = 4

Part = Callable[[int, int], Buffer]
"""Bytes from an offset on."""


class Content(Protocol):
    """An open file. Any number of threads may read it."""

    def read(self, offset: int, size: int) -> Buffer:
        """Bytes from an offset on; fewer where the file ends."""


class Whole:
    """Read, unpacked and checked when the first byte is asked for, and kept until the file is closed."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._data: memoryview | None = None
        self._lock = Lock()

    def read(self, offset: int, size: int) -> Buffer:
        """Out of memory."""
        with self._lock:
            if self._data is None:
                self._data = byte_view(self._entry.read())
        return self._data[offset : offset + size]


class Parts:
    """Read at the place that is asked for."""

    def __init__(self, part: Part, size: int) -> None:
        self._part, self._size = part, size

    def read(self, offset: int, size: int) -> Buffer:
        """Just these."""
        return self._part(offset, min(size, self._size - offset)) if offset < self._size else b""


class Blocks:
    """Fetched in blocks that are as large as a request is good for; the last ones are kept."""

    def __init__(self, part: Part, size: int) -> None:
        self._part, self._size = part, size
        self._blocks: OrderedDict[int, tuple[Lock, list[memoryview]]] = OrderedDict()
        self._lock = Lock()

    def read(self, offset: int, size: int) -> Buffer:
        """Out of one block, or the ends of several."""
        end = min(offset + size, self._size)
        if offset >= end:
            return b""
        parts = []
        for number in range(offset // BLOCK, (end - 1) // BLOCK + 1):
            begin = number * BLOCK
            parts.append(self._block(number)[max(offset - begin, 0) : end - begin])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _block(self, number: int) -> memoryview:
        with self._lock:
            lock, found = self._blocks.setdefault(number, (Lock(), []))
            self._blocks.move_to_end(number)
            if len(self._blocks) > KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        with lock:  # who comes second waits for the first, rather than to fetch it again
            if not found:
                begin = number * BLOCK
                found.append(byte_view(self._part(begin, min(BLOCK, self._size - begin))))
            return found[0]


def content_of(entry: Entry, part: Part | None, far: bool) -> Content:
    """A file to read; ``part`` reads some of it where it is stored as it is, ``far`` if a server is asked for it."""
    if part is None or entry.size <= CHECKED:
        return Whole(entry)
    return Blocks(part, entry.size) if far else Parts(part, entry.size)
