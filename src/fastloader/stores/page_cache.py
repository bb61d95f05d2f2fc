"""What the kernel keeps of a file in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from fastloader.stores.local import MappedFile

_mincore = ctypes.CDLL(None, use_errno=True).mincore
_mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_PIECE = 1 << 30


def forget(path: Path) -> None:
    """Ask the kernel to drop a file's pages, written out first. Those that someone has mapped and used stay."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def resident_bytes(path: Path) -> int:
    """How much of a file is in memory, in whole pages."""
    view = MappedFile(path).bytes
    found = 0
    for begin in range(0, view.nbytes, _PIECE):
        size = min(_PIECE, view.nbytes - begin)
        pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
        if _mincore(view.ctypes.data + begin, size, pages.ctypes.data):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
        found += int((pages & 1).sum()) * mmap.PAGESIZE
    return found
