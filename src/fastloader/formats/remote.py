"""Objects in stores, for formats to read: the seam of ``objects`` filled by ``fastloader.stores``."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from fastloader.errors import NotFoundError, StoreError
from fastloader.stores import BlockCache, ChangedError, ObjectPath, RefusedError, Store, open_store
from fastloader.stores.base import Stat, full_url
from fastloader.stores.cache import CachedObject
from fastloader.stores.urls import parse_url

LARGEST = 1 << 40
"""Asked for where all of an object is wanted: a range makes the server tell the whole size, which is then checked."""


NEAR = 32 << 10
"""Bytes that a small read brings along: what is told before data comes in small parts, one beside the other."""


class RemoteObject:
    """An object of one version: another one under its name is an error."""

    def __init__(self, path: str, store: Store, key: str, found: Stat, cache: BlockCache | None) -> None:
        self.path, self._store, self._key = path, store, key
        self.size, self.identity = found.size, found.version
        self._cached = None if cache is None else CachedObject(cache, store, key, self.size, self.identity)
        self._near = (0, b"")

    def read(self, offset: int, size: int) -> bytes:
        """A range, known to be whole and of this version."""
        if not 0 <= offset <= offset + size <= self.size:  # what a damaged file points to; no server need be asked
            raise StoreError(f"ends {offset + size - self.size} bytes before offset {offset + size}", path=self.path)
        if not size:
            return b""
        if self._cached is not None:
            return bytes(self._cached.read(offset, size))
        if size >= NEAR:
            return self._fetched(offset, size)
        begin, near = self._near  # one assignment, so that threads need no lock
        if not begin <= offset <= offset + size <= begin + len(near):
            begin = max(0, min(offset, self.size - NEAR))
            near = self._fetched(begin, min(NEAR, self.size - begin))
            self._near = begin, near
        return near[offset - begin : offset - begin + size]

    def _fetched(self, offset: int, size: int) -> bytes:
        return bytes(self._store.read(self._key, offset, size, version=self.identity))


class FetchedObject:
    """An object that is wanted whole: fetched in one request, when it is first looked at, or already on its way."""

    def __init__(self, path: str, fetch: Callable[[], tuple[bytes, str]]) -> None:
        self.path = path
        self._fetch = fetch
        self._found: tuple[bytes, str] | None = None

    def _all(self) -> tuple[bytes, str]:
        if self._found is None:
            self._found = self._fetch()
        return self._found

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self._all()[0])

    @property
    def here(self) -> int:
        """Its bytes, if it has come; else 0."""
        return 0 if self._found is None else len(self._found[0])

    @property
    def identity(self) -> str:
        """Its version."""
        return self._all()[1]

    def read(self, offset: int, size: int) -> bytes:
        """A part of what was fetched."""
        data = self._all()[0]
        return data if size == len(data) else data[offset : offset + size]


class RemoteObjects:
    """Objects by URL. There is one store a bucket: it keeps connections, and learns how many at once serve best."""

    def __init__(self, storage_options: Mapping[str, Any] | None = None, cache: BlockCache | None = None) -> None:
        self._options, self._cache = storage_options, cache
        self._stores: dict[str, Store] = {}
        self._begun: dict[str, Iterator[Stat]] = {}  # lists of folders, of which the first was looked at

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteObjects, (self._options, self._cache)

    def connected(self, url: str) -> tuple[Store, str]:
        """The store that a URL is in, and the key there."""
        location = parse_url(url)
        store = self._stores.get(location.root)
        if store is None:
            store = self._stores.setdefault(location.root, open_store(location.root, self._options)[0])
        return store, location.key

    def locate(self, path: str) -> ObjectPath:
        """One of them, as readers of datasets know it."""
        return ObjectPath(*self.connected(path), self._cache)

    def open(self, path: str) -> RemoteObject:
        """One of them."""
        store, key = self.connected(path)
        return RemoteObject(path, store, key, store.stat(key), self._cache)

    def fetch(self, path: str) -> FetchedObject:
        """One that will be read whole."""
        return FetchedObject(path, lambda: self._whole(path))

    @property
    def begins(self) -> bool:
        """Whether they can be asked for before their turn: what goes through a cache is looked for there first."""
        return self._cache is None

    def begin(self, path: str) -> FetchedObject | None:
        """The same, asked for now; nothing where there is no way to."""
        store, key = self.connected(path)
        begin = getattr(store, "begin_whole", None)
        if self._cache is not None or begin is None:
            return None
        coming = begin(key, LARGEST)
        return FetchedObject(path, lambda: self._checked(store, key, coming.result))

    def _whole(self, path: str) -> tuple[bytes, str]:
        store, key = self.connected(path)
        with_stat = getattr(store, "read_with_stat", None)
        if self._cache is not None or with_stat is None:
            found = self.open(path)
            return found.read(0, found.size), found.identity
        return self._checked(store, key, lambda: with_stat(key, 0, LARGEST))

    def _checked(self, store: Store, key: str, read: Callable[[], tuple[memoryview, Stat]]) -> tuple[bytes, str]:
        try:
            data, told = read()
        except (NotFoundError, RefusedError, ChangedError):
            raise
        except StoreError as error:
            if "416" not in error.message:  # what an empty object says to whoever asks for a range of it
                raise
            told = store.stat(key)
            if told.size:
                raise
            return b"", told.version
        return bytes(data), told.version

    def within(self, folder: str) -> list[str]:
        """All below a folder, hidden ones left out."""
        store, key = self.connected(folder)
        listed = self._begun.pop(folder, None) or store.list(key)
        keys = [found.key for found in listed if not found.key.endswith("/")]
        skip = len(key.rstrip("/") + "/") if key else 0
        return sorted(full_url(store.url, one) for one in keys if not re.search(r"(^|/)\.", one[skip:]))

    def match(self, pattern: str) -> list[str]:
        """Those that a pattern fits; ``*`` stays within a folder, ``**`` does not."""
        fixed = pattern[: re.search(r"[*?[]", pattern).start()]  # type: ignore[union-attr]
        parts = ["(?:.*/)?" if part == "**" else _pattern(part) + "/" for part in pattern.split("/")]
        wanted = re.compile("".join(parts).removesuffix("/"))
        return [path for path in self.within(posixpath.dirname(fixed)) if wanted.fullmatch(path)]

    def is_folder(self, path: str) -> bool:
        """Whether there is no such object, and objects below it; ``within`` goes on with the list."""
        store, key = self.connected(path)
        if key and not key.endswith("/"):
            try:
                store.stat(key)
            except NotFoundError:
                pass
            else:
                return False
        listed = iter(store.list(key))
        try:
            first = next(listed, None)
        except StoreError:  # a web server does not list
            return False
        if first is not None:
            self._begun[path] = chain([first], listed)
        return first is not None


def _pattern(part: str) -> str:
    """One part of a pattern, without what ``fnmatch`` puts around it."""
    return fnmatch.translate(part)[len("(?s:") : -len(r")\Z")].replace(".*", "[^/]*")
