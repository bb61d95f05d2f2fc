"""Where foreign formats get their bytes: objects that have a size and give ranges, and lists of them.

Local files fill it here, objects of stores in ``remote``.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, Protocol, TypeVar

from fastloader.errors import NotFoundError, StoreError
from fastloader.formats.remote import RemoteObjects
from fastloader.stores import BlockCache, ObjectPath
from fastloader.stores.local import explain
from fastloader.stores.urls import is_url
from fastloader.types import Buffer, byte_view

T = TypeVar("T")

KEPT_OPEN = 64
PIECE = 1 << 20
"""Bytes that are read at once by whoever goes through an object from front to back."""


class Object(Protocol):
    """Bytes under a name. It holds nothing open, so it pickles, forks and serves any number of threads."""

    @property
    def path(self) -> str:
        """What errors call it."""

    @property
    def size(self) -> int:
        """In bytes, when it was opened."""

    @property
    def identity(self) -> str:
        """Another one when the bytes may have changed."""

    def read(self, offset: int, size: int) -> bytes:
        """These bytes, all of them, of the object that was opened; if it is another one now, an error."""


class Store(Protocol):
    """Objects by path."""

    def open(self, path: str) -> Object:
        """One of them."""

    def fetch(self, path: str) -> Object:
        """One that will be read whole, if at all."""

    def within(self, folder: str) -> list[str]:
        """The paths of all objects in a folder and in those within it, sorted."""

    def match(self, pattern: str) -> list[str]:
        """The paths of objects that a pattern with ``*``, ``?``, ``[]`` or ``**`` fits, sorted."""

    def is_folder(self, path: str) -> bool:
        """Whether there is something in it."""


class Fetched(Object, Protocol):
    """One that comes whole."""

    @property
    def here(self) -> int:
        """Its bytes, if it has come; else 0."""


class Handle:
    """An open file, closed when nobody holds it any more: one thread may still read what another has let go of."""

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.fd = _open(path)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Handles:
    """The files read last, kept open."""

    def __init__(self) -> None:
        self.forget()
        os.register_at_fork(after_in_child=self.forget)  # the lock may be held by a thread that is not there

    def forget(self) -> None:
        """Let go of all."""
        self._lock = Lock()
        self._open: OrderedDict[tuple[str, str], Handle] = OrderedDict()

    def get(self, path: str, identity: str) -> Handle:
        """The file that was opened as this one; who changes it in place is found when it is read."""
        with self._lock:
            handle = self._open.get((path, identity))
            if handle is None:
                handle = self._open[path, identity] = Handle(path)
                if len(self._open) > KEPT_OPEN:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end((path, identity))
            return handle


_HANDLES = Handles()


class LocalObject:
    """A file. A few are kept open, so that no number of files is too many."""

    __slots__ = ("identity", "path", "size")

    def __init__(self, path: str) -> None:
        self.path = path
        fd = _open(path)
        try:
            status = os.fstat(fd)
        finally:
            os.close(fd)
        if not stat.S_ISREG(status.st_mode):
            raise StoreError("is no regular file", path=path, hint="check the path")
        self.size = status.st_size
        self.identity = _identity(status)

    def read(self, offset: int, size: int) -> bytes:
        """These bytes."""
        # Who reads a file whole reads it once, and other files after it.
        handle = Handle(self.path) if size == self.size else _HANDLES.get(self.path, self.identity)
        fd = handle.fd
        try:
            if _identity(os.fstat(fd)) != self.identity:
                raise StoreError("changed since it was opened", path=self.path, hint="open the dataset anew")
            data = os.pread(fd, size, offset)
            while 0 < len(data) < size and (more := os.pread(fd, size - len(data), offset + len(data))):
                data += more
        except OSError as error:
            raise error if isinstance(error, StoreError) else explain(error, Path(self.path)) from error
        if len(data) < size:
            raise StoreError(f"ends {size - len(data)} bytes before offset {offset + size}", path=self.path)
        return data


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not make us wait
    except FileNotFoundError as error:
        raise NotFoundError("there is no such file or folder", path=path, hint="check the path") from error
    except OSError as error:
        raise explain(error, Path(path), "check the path and who may read it") from error


def _identity(status: os.stat_result) -> str:
    return f"{_origin(status)}-{status.st_ino}"


def _origin(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"


def origin_of(path: str, identity: str) -> str:
    """What tells an object's bytes from others also another day: the inode of a file is not kept by every mount."""
    return identity if is_url(path) else identity.rpartition("-")[0]


def digest_of(texts: Iterable[str | Buffer]) -> str:
    """One text that stands for many."""
    digest = blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else byte_view(text)
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class LocalFiles:
    """Files of this machine."""

    def open(self, path: str) -> LocalObject:
        """A file."""
        return LocalObject(path)

    fetch = open

    def within(self, folder: str) -> list[str]:
        """Its files, at any depth; links to folders are followed, hidden ones left out."""
        found, seen = [], set()
        for at, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
            real = os.path.realpath(at)
            folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
            if real not in seen:
                found += [os.path.join(at, name) for name in names if not name.startswith(".")]
            seen.add(real)
        return sorted(found)

    def match(self, pattern: str) -> list[str]:
        """Files alone."""
        return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))

    def is_folder(self, path: str) -> bool:
        """Whether it is a directory."""
        return os.path.isdir(path)


def status_of(path: str) -> os.stat_result:
    """What the system says of a file that was there when a dataset was opened."""
    try:
        return os.stat(path)
    except OSError as error:
        raise explain(error, Path(path), "it was there when the dataset was opened") from error


def _raise(error: OSError) -> None:
    raise explain(error, Path(error.filename), "check the path and who may read it") from error


_LOCAL = LocalFiles()
AT_ONCE = 32
"""Objects that are asked for at the same time."""
LISTED = 64
"""As many are rather looked for in a list of their folder, which tells of a thousand at a time."""


class Places:
    """Where paths lead: local files, and objects in stores, whose clients get these options."""

    def __init__(self, storage_options: Mapping[str, Any] | None = None, cache: BlockCache | None = None) -> None:
        self._remote = RemoteObjects(storage_options, cache)

    def of(self, path: str) -> Store:
        """What holds an object of this path."""
        return self._remote if is_url(path) else _LOCAL

    def open(self, path: str) -> Object:
        """The object at a path."""
        return self.of(path).open(path)

    @property
    def cache(self) -> BlockCache | None:
        """Where copies of objects in stores are kept."""
        return self._remote.cache

    @property
    def begins(self) -> bool:
        """Whether objects in stores can be asked for before their turn."""
        return self._remote.begins

    def begin(self, url: str) -> Fetched | None:
        """An object in a store, asked for now."""
        return self._remote.begin(url)

    def origins(self, paths: Sequence[str]) -> list[str]:
        """What tells the bytes of each object from others, as it is now. None is opened, for there may be millions."""
        remote = [path for path in paths if is_url(path)]
        told = self._remote.listed(remote) if len(remote) >= LISTED else {}
        missing = [path for path in remote if path not in told]
        versions = at_once(lambda number: self._remote.version(missing[number]), range(len(missing)))
        told.update(zip(missing, versions, strict=True))
        return [told[path] if path in told else _origin(status_of(path)) for path in paths]

    def locate(self, path: str) -> Path | ObjectPath:
        """Where it is; objects of one bucket share its client."""
        return self._remote.locate(path) if is_url(path) else Path(path)


def open_object(path: str) -> Object:
    """The object at a path, with what the environment says of its store."""
    return Places().open(path)


@dataclass(frozen=True)
class Files:
    """Files or objects, in their order."""

    paths: tuple[str, ...]
    places: Places

    def __getitem__(self, number: int) -> Object:
        return self.places.open(self.paths[number])

    def fetch(self, number: int) -> Object:
        """One that will be read whole, if at all."""
        path = self.paths[number]
        return self.places.of(path).fetch(path)

    @property
    def cache(self) -> BlockCache | None:
        """The copies on disk that objects of stores are read through, if they are."""
        return self.places.cache if self.paths and is_url(self.paths[0]) else None

    @property
    def ahead(self) -> bool:
        """Whether it helps to ask for them before their turn: those of a store, unless a cache has them."""
        return bool(self.paths) and is_url(self.paths[0]) and self.places.begins

    def begin(self, number: int) -> Fetched | None:
        """The same, asked for now; nothing where there is no way to."""
        return self.places.begin(self.paths[number])

    def each(self, function: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
        """What a function makes of some of them; of objects in stores many at a time, for each waits for a server."""
        if len(numbers) < 2 or not is_url(self.paths[numbers[0]]):
            return [function(number) for number in numbers]
        return at_once(function, numbers)


def at_once(function: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
    """What a function makes of numbers, of several at a time; or what it raised for the first that failed.

    Threads that wait for a server keep nobody: neither who presses Ctrl-C, nor the end of the program.
    """
    waiting: deque[int] = deque(range(len(numbers)))
    told: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                at = waiting.popleft()
                try:
                    told.put((at, function(numbers[at]), None))
                except BaseException as error:
                    told.put((at, None, error))

    for _ in range(min(AT_ONCE, len(numbers))):
        threading.Thread(target=work, name="fastloader-objects", daemon=True).start()
    found: dict[int, T] = {}
    failed: dict[int, BaseException] = {}
    given_up = 0
    try:
        while len(found) + len(failed) + given_up < len(numbers):
            at, value, error = told.get()
            if error is None:
                found[at] = value
                continue
            failed[at] = error
            with contextlib.suppress(IndexError):
                while True:
                    waiting.pop()
                    given_up += 1
    finally:
        waiting.clear()
    if failed:
        raise failed[min(failed)]
    return [found[at] for at in range(len(numbers))]


class Reading(io.RawIOBase):
    """An object as a file, for libraries that want one."""

    def __init__(self, source: Object) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Where the next byte comes from."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go on elsewhere."""
        self._at = max(0, offset + (0, self._at, self._source.size)[whence])
        return self._at

    def readinto(self, buffer: object) -> int:
        """Bytes into memory that is there."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        size = max(0, min(len(view), self._source.size - self._at))
        if size:
            view[:size] = self._source.read(self._at, size)
            self._at += size
        return size


def buffered(source: Object) -> io.BufferedReader:
    """An object to go through from front to back."""
    return io.BufferedReader(Reading(source), PIECE)
