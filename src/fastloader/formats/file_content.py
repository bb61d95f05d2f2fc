"""Content of files on disk, which others may change at any time: whatever is stored of them was read once."""

from __future__ import annotations

import mmap
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import StoreError
from fastloader.stores.local import explain
from fastloader.types import Buffer, byte_view

Warn = Callable[[str], None]

PIECE = 4 << 20
IN_MEMORY = 64 << 20
"""Files up to this size are taken into memory where they are wanted whole; of larger ones there is a copy on disk."""


class FileContent:
    """The content of a file, read when it is asked for.

    It is never mapped: a mapping changes between two looks at it, and ends the process where the file became shorter.
    It has ``size`` bytes whatever becomes of the file; those that are gone when it is read are zeros, as in a tar.
    ``warn`` is told if the file is not as it was; where nobody listens, that is an error.
    """

    __slots__ = ("_mtime", "_place", "_told", "_warn", "size")

    def __init__(self, place: bytes, size: int, mtime: int, warn: Warn | None = None) -> None:
        self.size = size
        self._place, self._mtime, self._warn, self._told = place, mtime, warn, False

    def __len__(self) -> int:
        return self.size

    def __call__(self, near: Path | None = None) -> Buffer:
        """All of it: in memory, or in a file without a name, in the folder ``near``, that nobody else can change."""
        if self.size <= IN_MEMORY:
            memory = np.empty(self.size, np.uint8)
            filled = 0

            def room(size: int) -> NDArray[np.uint8]:
                nonlocal filled
                filled += size
                return memory[filled - size : filled]

            for _ in self.pieces(room):
                pass
            return memory.data
        try:
            with tempfile.TemporaryFile(dir=near, buffering=0) as copy:
                for piece in self.pieces():
                    view = piece.data
                    while len(view):
                        view = view[copy.write(view) :]
                return memoryview(mmap.mmap(copy.fileno(), self.size, access=mmap.ACCESS_READ))
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise explain(error, near or Path(tempfile.gettempdir())) from error

    def starts_with(self, head: bytes) -> bool:
        """Whether it begins so. The rest is asked of the disk, so that it comes while others are at work."""
        fd = self._open()
        try:
            os.posix_fadvise(fd, 0, min(self.size, IN_MEMORY), os.POSIX_FADV_WILLNEED)
            return os.pread(fd, len(head), 0) == head
        except OSError as error:
            raise self._explained(error) from error
        finally:
            os.close(fd)

    def pieces(self, room: Callable[[int], NDArray[np.uint8]] | None = None) -> Iterator[NDArray[np.uint8]]:
        """All of it, in order, in memory that ``room`` gives; or else in memory that the next piece takes again."""
        if not self.size:
            return
        memory = np.empty(min(self.size, PIECE) if room is None else 0, np.uint8)
        fd = self._open()
        try:
            missing = 0
            for at in range(0, self.size, PIECE):
                size = min(PIECE, self.size - at)
                piece = memory[:size] if room is None else room(size)
                got = self._read(fd, at, piece)
                piece[got:] = 0
                missing += size - got
                yield piece
            self._compare(os.fstat(fd), missing)
        finally:
            os.close(fd)

    def _open(self) -> int:
        try:
            fd = os.open(self._place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            raise self._explained(error) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StoreError("is no file any more", path=os.fsdecode(self._place), hint="leave it out with --exclude")
        return fd

    def _read(self, fd: int, at: int, piece: NDArray[np.uint8]) -> int:
        """Fill a piece, as far as there are bytes; returns how many."""
        done = 0
        try:
            while done < len(piece):
                got = os.preadv(fd, [piece[done:].data], at + done)
                if not got:
                    break
                done += got
        except OSError as error:
            raise self._explained(error) from error
        return done

    def _compare(self, now: os.stat_result, missing: int) -> None:
        if self._told or (now.st_size == self.size and now.st_mtime_ns == self._mtime and not missing):
            return
        gone = f"; {missing:,} bytes of it were gone and are zeros" if missing else ""
        place = os.fsdecode(self._place)
        if self._warn is None:
            raise StoreError(
                f"file changed as it was read{gone}", path=place, hint="try again when it is at rest, or leave it out"
            )
        self._told = True
        self._warn(f"{place}: file changed as it was read{gone}")

    def _explained(self, error: OSError) -> StoreError:
        return explain(error, Path(os.fsdecode(self._place)), "leave it out with --exclude")


def pieces_of(read: Callable[[], Buffer]) -> Iterator[memoryview]:
    """What ``read`` of an entry gives: a file on disk in pieces, each to be used before the next, all else at once."""
    if isinstance(read, FileContent):
        for piece in read.pieces():
            yield piece.data
    else:
        yield byte_view(read())
