"""Columns that grow while a file is written: in memory while all are small, then in one unnamed temporary file."""

from __future__ import annotations

import os
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fastloader.errors import StoreError
from fastloader.stores.local import explain
from fastloader.types import Buffer, byte_view

MEMORY_LIMIT = 32 << 20
"""Bytes that all columns of a file hold in memory together."""


class SpillFile:
    """The columns of one file under construction: however many, they share one memory budget and one descriptor."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns: list[Spill] = []
        self._held = 0
        self._file: IO[bytes] | None = None
        self._end = 0

    def column(self) -> Spill:
        """A new column."""
        self._columns.append(Spill(self))
        return self._columns[-1]

    def hold(self, size: int) -> None:
        """A column took that many bytes more. When it is too much, the largest columns go to disk: long pieces."""
        self._held += size
        if self._held > MEMORY_LIMIT:
            for column in sorted(self._columns, key=Spill.held, reverse=True):
                if self._held <= MEMORY_LIMIT // 2:
                    break
                self._held -= column.held()
                column.flush()

    def write(self, data: bytearray) -> int:
        """Put a piece at the file's end; returns where it begins."""
        begin = self._end
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._path.parent, buffering=0)  # noqa: SIM115
            with memoryview(data) as view:
                while self._end < begin + len(view):
                    self._end += self._file.write(view[self._end - begin :])
        except OSError as error:
            raise explain(error, self._path) from error
        return begin

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file."""
        assert self._file is not None
        try:
            data = os.pread(self._file.fileno(), size, offset)
        except OSError as error:
            raise explain(error, self._path) from error
        if not data:
            raise StoreError("the temporary file beside it was cut short", path=self._path, hint="write it again")
        return data

    def close(self) -> None:
        """Give back memory and disk."""
        self._columns.clear()
        self._held = 0
        if self._file is not None:
            self._file.close()


class Spill:
    """One column: bytes appended now and read back later."""

    def __init__(self, file: SpillFile) -> None:
        self.size = 0
        self._file = file
        self._memory = bytearray()
        # Where each piece on disk begins, in the column and in the file. Arrays: there may be millions of pieces.
        self._begins = array("Q")
        self._places = array("Q")

    def held(self) -> int:
        """Bytes in memory."""
        return len(self._memory)

    def append(self, data: Buffer) -> None:
        """Add bytes at the end."""
        view = byte_view(data)
        self._memory += view
        self.size += view.nbytes
        self._file.hold(view.nbytes)

    def flush(self) -> None:
        """Move what is in memory to disk."""
        if self._memory:
            self._places.append(self._file.write(self._memory))
            self._begins.append(self.size - len(self._memory))
            self._memory = bytearray()

    def chunks(self, size: int) -> Iterator[bytes]:
        """All bytes from the start, ``size`` at a time; the last chunk may be short."""
        for at in range(0, self.size, size):
            yield self.read(at, min(size, self.size - at))

    def read(self, offset: int, size: int) -> bytes:
        """Any bytes appended before."""
        parts = []
        end = offset + size
        on_disk = self.size - len(self._memory)
        piece = bisect_right(self._begins, offset) - 1
        while offset < min(end, on_disk):
            begin = self._begins[piece]
            stop = self._begins[piece + 1] if piece + 1 < len(self._begins) else on_disk
            parts.append(self._file.read(self._places[piece] + offset - begin, min(end, stop) - offset))
            offset += len(parts[-1])
            piece += offset == stop
        if offset < end:
            parts.append(bytes(self._memory[offset - on_disk : end - on_disk]))
        return parts[0] if len(parts) == 1 else b"".join(parts)
