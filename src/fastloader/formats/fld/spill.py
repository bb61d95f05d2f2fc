"""Columns that grow while a file is written: in memory while small, in an unnamed temporary file beyond that."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fastloader.stores.local import explain
from fastloader.types import Buffer, byte_view

MEMORY_LIMIT = 4 << 20


class Spill:
    """Bytes appended now and read back once, in order."""

    def __init__(self, folder: Path) -> None:
        self.size = 0
        self._folder = folder
        self._memory = bytearray()
        self._file: IO[bytes] | None = None

    def append(self, data: Buffer) -> None:
        """Add bytes at the end."""
        view = byte_view(data)
        self._memory += view
        self.size += view.nbytes
        if len(self._memory) > MEMORY_LIMIT:
            self._flush()

    def _flush(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
            with memoryview(self._memory) as rest:
                written = 0
                while written < len(rest):
                    written += self._file.write(rest[written:])
        except OSError as error:
            raise explain(error, self._folder) from error
        self._memory.clear()

    def chunks(self, size: int) -> Iterator[bytes]:
        """All bytes from the start, ``size`` at a time; the last chunk may be short."""
        for at in range(0, self.size, size):
            yield self.read(at, min(size, self.size - at))

    def read(self, offset: int, size: int) -> bytes:
        """Any bytes appended before."""
        if self._file is None:
            return bytes(self._memory[offset : offset + size])
        if self._memory:
            self._flush()
        return os.pread(self._file.fileno(), size, offset)

    def close(self) -> None:
        """Give back memory and disk."""
        self._memory.clear()
        if self._file is not None:
            self._file.close()
