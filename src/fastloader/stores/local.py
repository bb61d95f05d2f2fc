"""Local files. A file is either whole or not there: written under another name, synced, then renamed."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import mmap
import os
import secrets
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import StoreError
from fastloader.types import Buffer, byte_view

DIRECT_ALIGNMENT = 4096
"""What offsets, sizes and addresses are multiples of when the page cache is passed by. Few disks ask for more."""

_ASIDE = ".writing-"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_SYNC_FILE_RANGE_WRITE = 2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
]  # fmt: skip
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
_MAP_FAILED = ctypes.c_void_p(-1).value
_SMALL = 4 << 20


class MappedFile:
    """A file mapped read-only. The mapping lives as long as anything still looks into it.

    ``inode`` is by what the system knows the file, whatever its name means later.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._asked = (0, 0)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not make us wait
        except FileNotFoundError:
            raise
        except OSError as error:
            raise explain(error, path, "check the path and who may read it") from error
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise StoreError("is no regular file", path=path, hint="check the path")
            self.size = status.st_size
            self.inode = (status.st_dev, status.st_ino)
            self.bytes: NDArray[np.uint8] = np.frombuffer(map_file(fd, self.size) if self.size else b"", np.uint8)
            self._address = self.bytes.__array_interface__["data"][0]
        except OSError as error:
            raise error if isinstance(error, StoreError) else explain(error, path) from error
        finally:
            os.close(fd)

    def ensure(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Ask the system for these bytes alone: with whatever is only touched, it brings megabytes around it.

        They are there as soon as they are touched, asked for or not. Of a small file that is not worth the call, nor
        is it for what lies in the pages that were asked for last.
        """
        if self.size < _SMALL:
            return
        for offset, size in ranges:
            begin, end = offset // mmap.PAGESIZE * mmap.PAGESIZE, offset + size
            if size and not (self._asked[0] <= begin and end <= self._asked[1]):
                _libc.madvise(self._address + begin, end - begin, mmap.MADV_WILLNEED)
                self._asked = begin, -(-end // mmap.PAGESIZE) * mmap.PAGESIZE


def map_file(fd: int, size: int) -> memoryview:
    """The file's bytes. Unlike mmap.mmap it holds no descriptor: there may be more shards than files may be open."""
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    # Where the kernel keeps file pages in 2 MiB pieces, random reads then cost far fewer page-table walks.
    _libc.madvise(address, size, mmap.MADV_HUGEPAGE)
    mapping = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(mapping, _libc.munmap, address, size).atexit = False  # someone may look into it until the very end
    return memoryview(mapping).toreadonly()


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}{_ASIDE}{os.getpid()}-{secrets.token_hex(4)}")


def _create_locked(path: Path) -> tuple[Path, int]:
    """A new file aside, and its descriptor. Another writer may sweep it away before it is locked; then once more."""
    while True:
        aside = _aside(path)
        fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return aside, fd
        os.close(fd)


def _make_locked(path: Path) -> tuple[Path, int]:
    """The same with a folder."""
    while True:
        aside = _aside(path)
        aside.mkdir(parents=False)
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(aside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if aside.exists():  # its name is nobody else's
                return aside, fd
            os.close(fd)


def explain(error: OSError, path: Path, hint: str | None = None) -> StoreError:
    """What the system said, with the file it concerns and, for a full disk, what to do."""
    if error.errno == errno.ENOSPC:
        hint = "the disk is full; nothing was published. Free some space or write elsewhere"
    raised = StoreError(os.strerror(error.errno or 0), path=path, hint=hint)
    raised.errno = error.errno
    return raised


def sync_directory(path: Path) -> None:
    """Make the names in a folder outlive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sweep(path: Path) -> None:
    """Remove what a killed writer of ``path`` left aside. What a living one holds is locked and stays."""
    for left in path.parent.glob(f".{glob.escape(path.name)}{_ASIDE}*"):
        with contextlib.suppress(OSError):
            fd = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()
            finally:
                os.close(fd)


class AtomicFile:
    """A file under construction beside ``path``; ``publish`` makes it appear there, whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        sweep(path)
        try:
            self._aside, self._fd = _create_locked(path)
        except OSError as error:
            raise explain(error, path) from error
        self._direct: int | None = None
        self._open = True

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write all of ``data`` at ``offset``."""
        view = byte_view(data)
        try:
            while len(view):
                written = os.pwrite(self._fd, view, offset)
                view = view[written:]
                offset += written
        except OSError as error:
            raise explain(error, self.path) from error

    def begin_sync(self, offset: int, size: int) -> None:
        """Have the system begin to bring a part to the disk, which it would else put off until the end.

        It only saves time: ``publish`` syncs all of the file and tells what went wrong, so refusals don't matter here.
        """
        _libc.sync_file_range(self._fd, offset, size, _SYNC_FILE_RANGE_WRITE)

    def write_directly(self, offset: int, data: Buffer) -> None:
        """Like ``write_at``, past the page cache, where the file system can do that and with less work for the CPU.

        ``offset`` and the address and size of ``data`` are multiples of ``DIRECT_ALIGNMENT``.
        """
        view = byte_view(data)
        written = 0
        try:
            if self._direct is None:
                self._direct = os.open(self._aside, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
            written = os.pwrite(self._direct, view, offset)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system that can't, or wants more than our alignment
                raise explain(error, self.path) from error
        if written < len(view):
            self.write_at(offset + written, view[written:])
            self.begin_sync(offset + written, len(view) - written)

    def publish(self, size: int) -> None:
        """Sync and rename into place, replacing what was there."""
        try:
            os.ftruncate(self._fd, size)
            os.fsync(self._fd)
            os.replace(self._aside, self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise explain(error, self.path) from error
        self._close()

    def discard(self) -> None:
        """Remove what was written; harmless after ``publish``."""
        if self._open:
            with contextlib.suppress(FileNotFoundError):
                self._aside.unlink()
            self._close()

    def _close(self) -> None:
        self._open = False
        os.close(self._fd)
        if self._direct is not None:
            os.close(self._direct)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a small file in one step."""
    file = AtomicFile(path)
    try:
        file.write_at(0, data)
        file.publish(len(data))
    finally:
        file.discard()


def exchange(one: Path, other: Path) -> None:
    """Swap two paths, of any kind, in one step."""
    if _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        raise explain(error, one, "this file system can't swap two names in one step") from error


class Directory:
    """A folder under construction beside ``path``; ``publish`` makes it appear there with all its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        sweep(path)
        try:
            self.aside, self._lock = _make_locked(path)
        except OSError as error:
            raise explain(error, path) from error
        self._open = True

    def publish(self) -> None:
        """Rename into place. What was there is swapped out first, so a reader always finds one or the other."""
        try:
            sync_directory(self.aside)
            if self.path.exists():
                exchange(self.aside, self.path)
                remove(self.aside)
            else:
                os.rename(self.aside, self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise explain(error, self.path) from error
        self._close()

    def discard(self) -> None:
        """Remove the folder; harmless after ``publish``."""
        if self._open:
            remove(self.aside)
            self._close()

    def _close(self) -> None:
        self._open = False
        os.close(self._lock)


class Scratch:
    """A folder within the temporary one (``TMPDIR``), for files on their way to a store.

    It goes with ``discard``, or behind a ``with`` block. That of a process that was killed goes when another is made.
    """

    def __init__(self) -> None:
        made = Directory(Path(tempfile.gettempdir()) / "fastloader")
        made.aside.chmod(0o700)  # others of this machine have no business there
        self._made, self.path = made, made.aside

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Remove it, if that was not done before."""
        self._made.discard()


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: one process at a time changes it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
