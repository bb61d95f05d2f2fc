"""Copies of objects on the local disk, in blocks, shared by all processes of a machine.

Each block is a file of its own: the bytes, so that they can be mapped where they lie in the object, then a tail with
their checksum. It is written under another name and renamed, so a process killed at any moment leaves whole blocks, and
at most a file that the next eviction takes away. A block's name holds a hash of the object's URL, version and size: an
object that changes has other blocks. What a block says is checked when it is read, and a damaged one is fetched again.

Only files that have such a name, in the folder that the cache made for itself, and whose tail has its mark, are ever
removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fastloader import kernels
from fastloader.errors import StoreError
from fastloader.stores.base import Store, full_url
from fastloader.stores.local import explain, map_file
from fastloader.types import parse_size

BLOCK = 2 << 20
FOLDER = "fastloader-blocks-2"
"""What the cache calls its folder, in the folder it is given."""

_TAIL = struct.Struct("<8sIIQQ")  # mark, CRC32C of the rest of the tail and of the bytes, zero, begin, size
_MARK = b"FLBLOCK2"
_OBJECT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"\d+\.block|\.\d+\.writing-[0-9a-f]+")
_STALE = 3600.0
"""Seconds after which a file under construction belongs to a process that is no more."""
_TOUCH = 60.0
LOOK = 30.0
"""Seconds between looks for blocks that others have removed."""
_MAPPED = 8192
"""Blocks that stay mapped; the system allows a process some 65,000."""
_WRITABLE = "cache_dir must be a folder that can be written to"
_ROOM = 0.9
"""What part of the limit is left filled by an eviction, so that the next block does not begin another."""


LEAST = 2 * (BLOCK + _TAIL.size)
"""Bytes that a cache must have."""


class BlockCache:
    """A folder of blocks and its limit in bytes. Picklable; forked children share the folder, not the locks."""

    def __init__(self, folder: str | os.PathLike[str], limit: int | str | None = None) -> None:
        self.folder = Path(folder).absolute() / FOLDER
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise explain(error, self.folder, _WRITABLE) from error
        self.limit = free // 2 if limit is None else parse_size(limit, "cache_size")
        if self.limit < LEAST and limit is None:
            raise StoreError(
                f"the disk has too little room for a cache: {free} bytes are free, it takes half, and needs {LEAST}",
                path=self.folder, hint="make room there, or choose another cache_dir",
            )  # fmt: skip
        if self.limit < LEAST:
            raise ValueError(f"cache_size={limit!r}: at least {LEAST} bytes")
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self._checked: dict[Path, tuple[int, int]] = {}  # inode and time of blocks whose checksum was right
        self._mapped: OrderedDict[Path, memoryview] = OrderedDict()
        self._looked = time.monotonic()
        self._process = 0
        self._busy: dict[Path, threading.Event] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[BlockCache], tuple[Path, int]]:
        return BlockCache, (self.folder.parent, self.limit)

    @staticmethod
    def room_for(size: int) -> int:
        """Bytes that an object of this size takes in the cache."""
        return size + -(-size // BLOCK) * _TAIL.size

    def check_room(self, path: object, sizes: Iterable[int], at_once: int | None, what: str, cure: str) -> None:
        """Refuse to be too small for what is read again soon, or the same blocks would be fetched over and over.

        ``sizes`` are those of the objects, ``at_once`` the bytes that come next at any time, if that is not everything.
        """
        needed = sum(map(self.room_for, sizes))
        if at_once is not None:
            needed = min(needed, self.room_for(at_once))
        if self.limit < needed:
            raise ValueError(
                f"cache_size: {path} needs {needed} bytes, the cache may have {self.limit}: {what} read again soon; "
                f"give it more, leave the cache out, or {cure}"
            )

    @property
    def used(self) -> int:
        """Bytes of all blocks there are."""
        return sum(size for _, _, size in self._blocks())

    def load(self, path: Path, begin: int, size: int) -> memoryview | None:
        """A block that is there and intact, mapped. Whoever looks into it keeps its bytes, though it be removed.

        Its checksum is computed when this process sees it for the first time, or after somebody has written to it. Then
        it stays mapped, until it is removed or there are too many.
        """
        mapped = self.mapped(path)
        if mapped is not None:
            return mapped
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                found = os.fstat(fd)
                tail = os.pread(fd, _TAIL.size, size) if stat.S_ISREG(found.st_mode) else b""
                good = len(tail) == _TAIL.size and found.st_size == size + _TAIL.size
                view = map_file(fd, found.st_size) if good else None
            finally:
                os.close(fd)
        except FileNotFoundError:
            self._forget(path)
            return None
        except OSError as error:
            raise explain(error, path, "the cache can't be read; remove its folder or choose another") from error
        if view is not None and self._is_intact(path, tail, begin, view, found):
            self._use(path, found, view)
            return view[:size]
        self._remove(path)
        return None

    def mapped(self, path: Path) -> memoryview | None:
        """A block that this process has mapped, if it is as it was then. Waits for nothing."""
        view = self._mapped.get(path)
        if view is None:
            return None
        try:
            found = os.stat(path)
        except OSError:
            return None
        if not self._was_checked(path, found) or found.st_size != len(view):
            return None
        self._use(path, found, view)
        return view[: -_TAIL.size]

    def stamp(self, path: Path) -> tuple[int, int] | None:
        """Inode and time of a block as it was when its checksum was right."""
        return self._checked.get(path)

    def _is_intact(self, path: Path, tail: bytes, begin: int, view: memoryview, found: os.stat_result) -> bool:
        if self._was_checked(path, found):
            return True
        mark, crc, _, at, length = _TAIL.unpack(tail)
        try:
            computed = kernels.crc32c(view[: -_TAIL.size], kernels.crc32c(tail[12:]))
        except kernels.Failure:  # it became shorter meanwhile
            return False
        return (mark, at, length, crc) == (_MARK, begin, len(view) - _TAIL.size, computed)

    def _use(self, path: Path, found: os.stat_result, view: memoryview) -> None:
        """Keep it mapped; and who was used lately is removed last."""
        written, now = found.st_mtime_ns, time.time_ns()
        if now - written > _TOUCH * 1e9:
            with contextlib.suppress(OSError):
                os.utime(path, ns=(now, now))
                written = now
        self._checked[path] = (found.st_ino, written)
        self._mapped[path] = view
        if len(self._mapped) > _MAPPED:
            with contextlib.suppress(KeyError):
                self._mapped.popitem(last=False)
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            # A file that another process has removed takes room on the disk for as long as it is mapped.
            for known in list(self._mapped):
                if not known.exists():
                    self._forget(known)

    def _was_checked(self, path: Path, found: os.stat_result) -> bool:
        return self._checked.get(path) == (found.st_ino, found.st_mtime_ns)

    def _forget(self, path: Path) -> None:
        self._checked.pop(path, None)
        self._mapped.pop(path, None)

    def keep(self, path: Path, begin: int, data: memoryview) -> None:
        """Write a block. A disk that is full keeps nothing, and that is all."""
        rest = struct.pack("<IQQ", 0, begin, len(data))
        tail = _MARK + struct.pack("<I", kernels.crc32c(data, kernels.crc32c(rest))) + rest
        aside = path.with_name(f".{path.stem}.writing-{secrets.token_hex(8)}")
        try:
            self._make_room(len(data) + len(tail))
            path.parent.mkdir(exist_ok=True)
            with aside.open("xb", buffering=0) as file:
                # The mark comes first: what a killed process leaves is known by it.
                written = os.pwrite(file.fileno(), tail, len(data)) + os.pwrite(file.fileno(), data, 0)
                if written != len(data) + len(tail):
                    raise OSError(errno.ENOSPC, "a short write")
                made = os.fstat(file.fileno())
            os.replace(aside, path)
            self._checked[path] = (made.st_ino, made.st_mtime_ns)
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink()
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ENOENT):
                raise explain(error, path, _WRITABLE) from error

    @contextlib.contextmanager
    def alone(self, path: Path) -> Iterator[None]:
        """One thread of this process at a time fetches a block; the others wait until it is done."""
        if self._process != os.getpid():
            self._process, self._busy, self._lock = os.getpid(), {}, threading.Lock()
        with self._lock:
            event = self._busy.get(path)
            mine = event is None
            if event is None:
                event = self._busy[path] = threading.Event()
        if not mine:
            event.wait()
            yield
            return
        try:
            yield
        finally:
            with self._lock:
                self._busy.pop(path, None)
            event.set()

    def _make_room(self, size: int) -> None:
        """Count these bytes in; past the limit, remove what was not used for the longest time.

        The count is in a file that processes take turns with. One that was killed leaves it a little too high or too
        low; the next eviction counts again.
        """
        with self._turn() as counter:
            try:
                used = int(os.pread(counter, 20, 0) or b"x")
            except ValueError:
                used = self.used
            used += size
            if used > self.limit:
                used = self._evict(size) + size
            os.pwrite(counter, b"%020d" % used, 0)

    def _evict(self, size: int) -> int:
        """Bytes that are left."""
        self.evictions += 1
        blocks = sorted(self._blocks())
        left = sum(one for _, _, one in blocks)
        goal = min(int(self.limit * _ROOM), self.limit - size)
        now = time.time()
        for used_at, path, bytes_ in blocks:
            unfinished = path.name.startswith(".")
            if left <= goal and not unfinished:
                break
            if unfinished and now - used_at < _STALE:
                continue
            if self._remove(path):
                left -= bytes_
                with contextlib.suppress(OSError):
                    path.parent.rmdir()  # when it was the last
        return left

    def _blocks(self) -> Iterator[tuple[float, Path, int]]:
        """When it was last used, where it is, its size."""
        with os.scandir(self.folder) as objects:
            for entry in objects:
                if not _OBJECT.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
                    continue
                with contextlib.suppress(FileNotFoundError), os.scandir(entry.path) as files:
                    for file in files:
                        if _NAME.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                            with contextlib.suppress(FileNotFoundError):
                                status = file.stat(follow_symlinks=False)
                                yield status.st_mtime, Path(file.path), status.st_size

    def _remove(self, path: Path) -> bool:
        """Remove a file of ours; whatever else lies under such a name stays."""
        self._forget(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return False
            if found.st_size and os.pread(fd, len(_MARK), max(0, found.st_size - _TAIL.size)) != _MARK:
                return False
        finally:
            os.close(fd)
        with contextlib.suppress(OSError):
            path.unlink()
            return True
        return False

    @contextlib.contextmanager
    def _turn(self) -> Iterator[int]:
        fd = os.open(self.folder / "used", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)


def cache_at(folder: str | os.PathLike[str] | None, size: int | str | None) -> BlockCache | None:
    """The cache that was asked for, if one was."""
    if folder is not None:
        return BlockCache(folder, size)
    if size is not None:
        raise ValueError("cache_size without cache_dir: say where to keep the copies")
    return None


class CachedObject:
    """One object's blocks: from the disk where they are there, else from the store and then kept."""

    def __init__(self, cache: BlockCache, store: Store, key: str, size: int, version: str) -> None:
        self.cache = cache
        self._store, self._key, self._size, self._version = store, key, size, version
        named = f"{full_url(store.url, key)}\n{version}\n{size}"
        self.folder = cache.folder / hashlib.sha256(named.encode()).hexdigest()[:40]
        self._paths: dict[int, Path] = {}  # to make one, and to compare it with its like, takes longer than all else

    def read(self, begin: int, size: int, fetched: Callable[[int], None] = lambda size: None) -> memoryview:
        """A range of the object; ``fetched`` is told the bytes of each block that the store was asked for."""
        if begin < 0 or size < 0 or begin + size > self._size:
            raise StoreError(f"has {self._size} bytes; {size} from {begin} on were asked for", path=self._key)
        first, last = begin // BLOCK, -(-(begin + size) // BLOCK)
        blocks = [self._block(number, fetched) for number in range(first, last)]
        if len(blocks) == 1:
            return blocks[0][begin - first * BLOCK : begin - first * BLOCK + size]
        whole = memoryview(b"".join(blocks))
        return whole[begin - first * BLOCK : begin - first * BLOCK + size]

    def find(self, number: int) -> memoryview | None:
        """A block that is on the disk."""
        begin, size = self.place(number)
        found = self.cache.load(self._path(number), begin, size)
        self.cache.hits += found is not None
        return found

    def mapped(self, number: int) -> memoryview | None:
        """The same, if it can be had at once."""
        found = self.cache.mapped(self._path(number))
        self.cache.hits += found is not None
        return found

    def keep(self, number: int, data: memoryview) -> memoryview | None:
        """A block that was fetched is written. The same bytes mapped from the disk, if it has room for them."""
        begin, size = self.place(number)
        self.cache.misses += 1
        self.cache.keep(self._path(number), begin, data)
        return self.cache.load(self._path(number), begin, size)

    def stamp(self, number: int) -> tuple[int, int] | None:
        """Inode and time of a block that was found or kept."""
        return self.cache.stamp(self._path(number))

    def place(self, number: int) -> tuple[int, int]:
        """Where a block begins, and its size."""
        begin = number * BLOCK
        return begin, min(BLOCK, self._size - begin)

    def _path(self, number: int) -> Path:
        found = self._paths.get(number)
        if found is None:
            if len(self._paths) >= _MAPPED:
                self._paths.clear()
            found = self._paths[number] = self.folder / f"{number}.block"
        return found

    def _block(self, number: int, fetched: Callable[[int], None]) -> memoryview:
        begin, size = self.place(number)
        path = self._path(number)
        found = self.find(number)
        if found is not None:
            return found
        with self.cache.alone(path):
            # Another thread may have fetched it while this one waited, or just before it came here.
            found = self.cache.load(path, begin, size)
            if found is not None:
                return found
            data = self._store.read(self._key, begin, size, version=self._version)
            fetched(size)
            self.keep(number, data)
            return data
