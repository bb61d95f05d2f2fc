"""Stores that need no client: a folder, and memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastloader.errors import NotFoundError, StoreError
from fastloader.stores.base import ChangedError, Done, Stat, UploadBlock, full_url
from fastloader.stores.local import AtomicFile, explain, locked
from fastloader.types import Buffer, byte_view


class _Plain:
    """What is the same for stores that answer at once."""

    url: str

    def read(self, key: str, begin: int = 0, size: int | None = None, *, version: str | None = None) -> memoryview:
        """A range."""
        raise NotImplementedError

    def read_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[memoryview]:
        """Several ranges."""
        return [self.read(key, begin, size, version=version) for begin, size in ranges]

    def begin_read(self, key: str, begin: int, size: int, version: str | None, done: Done) -> None:
        """A range, at once."""
        try:
            data = self.read(key, begin, size, version=version)
        except Exception as error:
            done(None, error)
        else:
            done(data, None)

    def _check(self, found: Stat, begin: int, size: int | None, version: str | None) -> int:
        """The size that is meant, known to be there."""
        where = full_url(self.url, found.key)
        if version is not None and found.version != version:
            raise ChangedError(
                f"has changed: its version is {found.version}, not {version}", path=where, hint="open it again"
            )
        wanted = found.size - begin if size is None else size
        if begin < 0 or wanted < 0 or begin + wanted > found.size:
            raise StoreError(f"has {found.size} bytes; {wanted} from {begin} on were asked for", path=where)
        return wanted

    def _check_condition(self, found: Stat | None, key: str, if_absent: bool, if_match: str | None) -> None:
        where = full_url(self.url, key)
        if if_absent and found is not None:
            raise ChangedError("is there already", path=where)
        if if_match is not None and (found is None or found.version != if_match):
            raise ChangedError("was changed by another writer in the meantime", path=where, hint="read it again")


class LocalStore(_Plain):
    """A folder. Keys are paths below it."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()
        self.url = str(self.root)

    def __reduce__(self) -> tuple[type[LocalStore], tuple[Path]]:
        return LocalStore, (self.root,)

    def _path(self, key: str) -> Path:
        path = self.root / key if key else self.root
        if ".." in Path(key).parts or Path(key).is_absolute():
            raise ValueError(f"{key!r}: a key leads nowhere outside its store")
        return path

    def stat(self, key: str) -> Stat:
        """Size and version of a file."""
        path = self._path(key)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFoundError("there is no such file", path=path) from error
        if not path.is_file():
            raise NotFoundError("is no file", path=path)
        return _stat(key, status)

    def read(self, key: str, begin: int = 0, size: int | None = None, *, version: str | None = None) -> memoryview:
        """A range of a file."""
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                wanted = self._check(_stat(key, os.fstat(file.fileno())), begin, size, version)
                data = bytearray(wanted)
                done = 0
                while done < wanted and (got := os.preadv(file.fileno(), [memoryview(data)[done:]], begin + done)):
                    done += got
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFoundError("there is no such file", path=path) from error
        except StoreError:
            raise
        except OSError as error:
            raise explain(error, path) from error
        if done < wanted:
            raise StoreError("became shorter while it was read", path=path)
        return memoryview(data).toreadonly()

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """The files below a folder; what is being written aside is left out, and so are links to folders."""
        for key in self._below(prefix, follow=False):
            with contextlib.suppress(NotFoundError):
                yield self.stat(key)

    def followed(self, prefix: str = "") -> Iterator[Stat]:
        """The same with what links to folders lead to; a link that leads nowhere is an error."""
        return map(self.stat, self._below(prefix, follow=True))

    def _below(self, prefix: str, *, follow: bool) -> Sequence[str]:
        top = self._path(prefix)
        if top.is_file():
            return [prefix]
        found, above = [], dict[str, frozenset[str]]()
        for folder, folders, files in os.walk(top, followlinks=follow, onerror=_refused):
            real, over = os.path.realpath(folder), above.get(os.path.dirname(folder), frozenset())
            if real in over:  # a link that leads back
                folders.clear()
                continue
            above[folder] = over | {real}
            found += [
                Path(folder, name).relative_to(self.root).as_posix()
                for name in files
                if not (name.startswith(".") and ".writing-" in name)
            ]
        return sorted(found)

    def put(self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None) -> Stat:
        """Write a file in one step."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent) if if_absent or if_match is not None else contextlib.nullcontext():
            there = None
            with contextlib.suppress(NotFoundError):
                there = self.stat(key)
            self._check_condition(there, key, if_absent, if_match)
            with self.upload(key) as upload:
                upload.write(data)
        return self.stat(key)

    def upload(self, key: str) -> LocalUpload:
        """Write a file front to back, aside."""
        return LocalUpload(self, key)

    def delete(self, key: str) -> None:
        """Remove a file."""
        try:
            self._path(key).unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise explain(error, self._path(key)) from error


class LocalUpload(UploadBlock):
    """A file written aside."""

    def __init__(self, store: LocalStore, key: str) -> None:
        self._store, self._key = store, key
        path = store._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = AtomicFile(path)
        self._at = 0

    def write(self, data: Buffer) -> None:
        """Add bytes."""
        self._file.write_at(self._at, data)
        self._at += len(byte_view(data))

    def finish(self) -> Stat:
        """Publish the file."""
        self._file.publish(self._at)
        return self._store.stat(self._key)

    def abort(self) -> None:
        """Remove what was written."""
        self._file.discard()


def _refused(error: OSError) -> None:
    """A folder that can't be read is an error; one that is not there has nothing in it."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise explain(error, Path(error.filename), "check the path and who may read it") from error


def _stat(key: str, status: os.stat_result) -> Stat:
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return Stat(key, status.st_size, etag, status.st_mtime_ns / 1e9)


_shelves: dict[str, dict[str, tuple[bytes, Stat]]] = {}
_shelves_lock = threading.Lock()


class MemoryStore(_Plain):
    """Objects in this process's memory, under a name: for tests and for small things. A spawned process has its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.url = f"memory://{name}"
        with _shelves_lock:
            self._objects = _shelves.setdefault(name, {})

    def __reduce__(self) -> tuple[type[MemoryStore], tuple[str]]:
        return MemoryStore, (self.name,)

    def _find(self, key: str) -> tuple[bytes, Stat]:
        found = self._objects.get(key)
        if found is None:
            raise NotFoundError("there is no such object", path=full_url(self.url, key))
        return found

    def stat(self, key: str) -> Stat:
        """Size and version."""
        return self._find(key)[1]

    def read(self, key: str, begin: int = 0, size: int | None = None, *, version: str | None = None) -> memoryview:
        """A range."""
        data, found = self._find(key)
        wanted = self._check(found, begin, size, version)
        return memoryview(data)[begin : begin + wanted]

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """Objects below a folder."""
        folder = prefix.rstrip("/") + "/"
        for key in sorted(self._objects):
            if not prefix or key == prefix or key.startswith(folder):
                with contextlib.suppress(NotFoundError):
                    yield self.stat(key)

    def put(self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None) -> Stat:
        """Keep a copy of the bytes."""
        content = bytes(byte_view(data))
        stat = Stat(key, len(content), hashlib.blake2b(content, digest_size=16).hexdigest(), time.time())
        with _shelves_lock:
            there = self._objects.get(key)
            self._check_condition(None if there is None else there[1], key, if_absent, if_match)
            self._objects[key] = (content, stat)
        return stat

    def upload(self, key: str) -> MemoryUpload:
        """Gather an object."""
        return MemoryUpload(self, key)

    def delete(self, key: str) -> None:
        """Forget an object."""
        self._objects.pop(key, None)


class MemoryUpload(UploadBlock):
    """Bytes gathered until they become an object."""

    def __init__(self, store: MemoryStore, key: str) -> None:
        self._store, self._key = store, key
        self._data = bytearray()

    def write(self, data: Buffer) -> None:
        """Add bytes."""
        self._data += byte_view(data)

    def finish(self) -> Stat:
        """Publish."""
        return self._store.put(self._key, self._data)

    def abort(self) -> None:
        """Forget."""
        self._data.clear()
