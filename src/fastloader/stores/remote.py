"""An object opened for reading, as a mapped file is: its bytes at their places, as far as they were fetched.

The memory is that of an anonymous mapping as large as the object, of which only pages that were written to exist. So
whoever works on mapped files works on objects too, once the ranges it looks at have been asked for.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import NotFoundError, StoreError
from fastloader.stores.base import ChangedError, Done, RefusedError, Stat, Store
from fastloader.stores.cache import CachedObject
from fastloader.stores.opening import ObjectPath

HEAD = 4096
TAIL = 256 << 10
"""Bytes of an object's end that are fetched when it is opened, unless less will do: tables lie there, and small ones
come along."""
GAP = 16 << 10
"""Ranges of one call with less than this between them are one request."""
LONGEST = 8 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_NORESERVE = 0x4000
_MAP_FAILED = ctypes.c_void_p(-1).value

Range = tuple[int, int]
"""Where it begins and how many bytes it has."""


class RemoteFile:
    """An object's bytes. Every one that is fetched is of the version that was found when it was opened.

    ``tail`` tells from the first bytes and the size how many of the last bytes are needed at once. Who knows the size
    and that number before says so by ``told``: then both ends are asked for at the same time.
    """

    def __init__(
        self, path: ObjectPath, tail: Callable[[bytes, int], int] = lambda head, size: TAIL, told: Range | None = None
    ) -> None:
        self.path = path
        head, found, last = _ends(path, told)
        self.size = found.size
        self.version = found.version
        self.inode = (0, 0)
        self._cached = None
        if path.cache is not None:
            self._cached = CachedObject(path.cache, path.store, path.key, self.size, self.version)
        self._writable = _blank(self.size)
        self._writable[: len(head)] = np.frombuffer(head, np.uint8)
        self._writable[self.size - len(last) :] = np.frombuffer(last, np.uint8)
        self._there: tuple[Range, ...] = tuple(_joined([(0, len(head)), (self.size - len(last), len(last))], 0))
        self.bytes = self._writable.view()
        self.bytes.flags.writeable = False
        needed = min(TAIL, self.size, tail(bytes(head), self.size))
        self.ensure([(self.size - needed, needed)])

    def ensure(self, ranges: Iterable[Range]) -> None:
        """Have these ranges in ``bytes``; what is there already is not fetched again.

        Two threads may fetch the same bytes at once, and write the same: no lock is needed, and none outlives a fork.
        """
        there = self._there
        missing = _joined([gap for begin, size in ranges for gap in _gaps(begin, begin + size, there)], 0)
        if missing:
            self._fetch_into(self._writable, missing)
            self._there = tuple(_joined([*self._there, *missing], 0))

    def fetched(self, ranges: Sequence[Range], known: Sequence[Range] = ()) -> NDArray[np.uint8]:
        """Memory like ``bytes`` that has just these ranges; it goes with the last array that looks into it.

        ``known`` are ranges of ``bytes`` that it shall have, too.
        """
        memory = _blank(self.size)
        self._fetch_into(memory, _joined(ranges, GAP))
        for begin, size in known:
            memory[begin : begin + size] = self.bytes[begin : begin + size]
        memory.flags.writeable = False
        return memory

    def begin_read(self, begin: int, size: int, done: Done) -> None:
        """Ask for a range and go on; ``done`` is told."""
        self.path.store.begin_read(self.path.key, begin, size, self.version, done)

    @property
    def cached(self) -> CachedObject | None:
        """The copies on disk, where there is a cache."""
        return self._cached

    def _fetch_into(self, memory: NDArray[np.uint8], ranges: Sequence[Range]) -> None:
        if self._cached is not None:
            for begin, size in ranges:
                memory[begin : begin + size] = np.frombuffer(self._cached.read(begin, size), np.uint8)
            return
        pieces = [piece for one in ranges for piece in _pieces(*one)]
        read = self.path.store.read_ranges(self.path.key, pieces, version=self.version)
        for (begin, size), data in zip(pieces, read, strict=True):
            memory[begin : begin + size] = np.frombuffer(data, np.uint8)


def _ends(path: ObjectPath, told: Range | None) -> tuple[memoryview, Stat, memoryview]:
    """The first bytes, what the object is, and the last bytes as far as they were told of and it is of that size."""
    store = path.store
    read_ends = getattr(store, "read_ends", None)
    if told is not None and read_ends is not None and path.cache is None:
        size, tail = told
        try:
            head, last, found = read_ends(path.key, HEAD, size, min(TAIL, size, tail))
            return head, found, last if found.size == size else memoryview(b"")
        except StoreError as error:
            if not _is_out_of_range(error):  # a smaller object is there now: it is looked at from the front, then
                raise
    with_stat = getattr(store, "read_with_stat", None)
    if with_stat is not None:
        head, found = or_empty(store, path.key, lambda: with_stat(path.key, 0, HEAD))
    else:
        found = store.stat(path.key)
        head = store.read(path.key, 0, min(HEAD, found.size), version=found.version)
    return head, found, memoryview(b"")


def or_empty(store: Store, key: str, read: Callable[[], tuple[memoryview, Stat]]) -> tuple[memoryview, Stat]:
    """What reading from the beginning on gives; of an empty object, which refuses every range, nothing."""
    try:
        return read()
    except StoreError as error:
        if not _is_out_of_range(error):
            raise
        found = store.stat(key)
        if found.size:
            raise
        return memoryview(b""), found


def _is_out_of_range(error: StoreError) -> bool:
    """Whether an object ends before the range that was asked for."""
    return "416" in error.message and not isinstance(error, NotFoundError | RefusedError | ChangedError)


def _blank(size: int) -> NDArray[np.uint8]:
    """Zeros that take no memory until they are written to."""
    if size == 0:
        return np.zeros(0, np.uint8)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address == _MAP_FAILED:
        error = ctypes.get_errno()
        raise StoreError(
            f"no room in the address space for an object of {size} bytes: {os.strerror(error)}",
            hint="write the dataset in shards, or raise the limit (ulimit -v)",
        )
    mapping = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(mapping, _libc.munmap, address, size).atexit = False  # someone may look into it until the very end
    return np.frombuffer(memoryview(mapping), np.uint8)


def _gaps(begin: int, end: int, there: Sequence[Range]) -> list[Range]:
    """What of ``begin`` to ``end`` is not among the ranges, which ascend."""
    gaps = []
    for first, size in there:
        if first + size <= begin:
            continue
        if first >= end:
            break
        if first > begin:
            gaps.append((begin, first - begin))
        begin = first + size
    if begin < end:
        gaps.append((begin, end - begin))
    return gaps


def _joined(ranges: Iterable[Range], gap: int) -> list[Range]:
    """The ranges in order, those with at most ``gap`` between them as one."""
    joined: list[Range] = []
    for begin, size in sorted(ranges):
        if size <= 0:
            continue
        if joined and begin <= sum(joined[-1]) + gap:
            first, before = joined[-1]
            joined[-1] = (first, max(before, begin + size - first))
        else:
            joined.append((begin, size))
    return joined


def _pieces(begin: int, size: int) -> list[Range]:
    """A long range as several that are fetched at the same time."""
    return [(at, min(LONGEST, begin + size - at)) for at in range(begin, begin + size, LONGEST)]
