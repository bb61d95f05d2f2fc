"""What the kernel has of a file in memory."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fastloader.stores import MappedFile

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


@contextlib.contextmanager
def on_disk(preferred: Path) -> Iterator[Path]:
    """A folder whose files the kernel can forget: the preferred one may be kept in memory, as /tmp sometimes is."""
    for place in (preferred, Path("/var/tmp"), Path.cwd()):
        with tempfile.TemporaryDirectory(prefix=".page-cache-", dir=place) as name:
            probe = Path(name) / "probe"
            probe.write_bytes(bytes(1 << 16))
            drop(probe)
            if not is_resident(MappedFile(probe).bytes).any():
                yield Path(name)
                return
    raise AssertionError(f"the kernel forgets no file in {preferred}, /var/tmp or {Path.cwd()}")


def drop(path: Path) -> None:
    """Write a file's pages out and forget them. Pages that someone has mapped stay."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def is_resident(view: np.ndarray) -> np.ndarray:
    """For each page of a mapped view, whether it is in memory."""
    begin = view.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    size = view.ctypes.data + view.nbytes - begin if view.nbytes else 0
    pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    if size and _libc.mincore(begin, size, pages.ctypes.data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return (pages & 1).astype(bool)
