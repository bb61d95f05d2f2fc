"""Bringing the pages of a mapped file into memory before they are needed."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_PIECE = 8 << 20
_WILLNEED = mmap.MADV_WILLNEED
_POPULATE_READ = 22  # since Linux 5.14; the mmap module does not name it

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def populate(view: NDArray[np.uint8], stopped: Callable[[], bool]) -> None:
    """Read all pages of a mapped view from disk and map them, without the GIL, until done or ``stopped()``.

    An OSError where bytes can't be read: the file has become shorter, or the disk fails.
    """
    address = view.__array_interface__["data"][0]
    begin = address - address % mmap.PAGESIZE
    end = address + view.nbytes
    for piece in range(begin, end if view.nbytes else begin, _PIECE):
        if stopped():
            return
        # The kernel queues reads of this piece and the next at once; populating then waits for them in turn.
        _advise(piece, min(2 * _PIECE, end - piece), _WILLNEED)
        failure = _advise(piece, min(_PIECE, end - piece), _POPULATE_READ)
        if failure == errno.EINVAL:  # a kernel that does not know it: look at each page ourselves
            pages = view[max(piece - address, 0) : piece - address + _PIECE]
            pages[:: mmap.PAGESIZE].max()
            pages[-1:].max()  # the last page, where the view begins in the middle of one
        elif failure:
            raise OSError(failure, os.strerror(failure))


def _advise(address: int, size: int, advice: int) -> int:
    """What madvise says: 0 or an error number."""
    return ctypes.get_errno() if _madvise(address, size, advice) else 0
