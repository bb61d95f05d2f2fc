"""Objects in stores, for formats to read: the seam of ``objects`` filled by ``fastloader.stores``."""

from __future__ import annotations

import contextlib
import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from os.path import commonprefix
from typing import Any

from fastloader.errors import NotFoundError, StoreError
from fastloader.stores import BlockCache, ObjectPath, Store, open_store
from fastloader.stores.base import ChangedError, Stat, full_url
from fastloader.stores.cache import CachedObject
from fastloader.stores.remote import or_empty
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
    """Objects by URL. There is one store a bucket: it keeps connections, and learns how many at once serve best.

    ``versions`` are those of objects that were listed or read: whoever opens a dataset sees one of each to the end.
    """

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        cache: BlockCache | None = None,
        versions: dict[str, str] | None = None,
    ) -> None:
        self._options, self.cache = storage_options, cache
        self._versions = {} if versions is None else versions
        self._stores: dict[str, Store] = {}
        self._begun: dict[str, Iterator[Stat]] = {}  # lists of folders, of which the first was looked at

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteObjects, (self._options, self.cache, self._versions)

    def connected(self, url: str) -> tuple[Store, str]:
        """The store that a URL is in, and the key there."""
        location = parse_url(url)
        store = self._stores.get(location.root)
        if store is None:
            store = self._stores.setdefault(location.root, open_store(location.root, self._options)[0])
        return store, location.key

    def locate(self, path: str) -> ObjectPath:
        """One of them, as readers of datasets know it."""
        return ObjectPath(*self.connected(path), self.cache)

    def open(self, path: str) -> RemoteObject:
        """One of them."""
        store, key = self.connected(path)
        return RemoteObject(path, store, key, self._the_same(path, store.stat(key)), self.cache)

    def _the_same(self, path: str, found: Stat) -> Stat:
        """An object that is the one it was; the first that is found counts, where it was not listed."""
        known = self._versions.setdefault(path, found.version)
        if known != found.version:
            raise ChangedError(
                f"is not the object it was when the dataset was opened: its version is {found.version}, not {known}",
                path=path, hint="open the dataset anew",
            )  # fmt: skip
        return found

    def fetch(self, path: str) -> FetchedObject:
        """One that will be read whole."""
        return FetchedObject(path, lambda: self._whole(path))

    @property
    def begins(self) -> bool:
        """Whether they can be asked for before their turn: what goes through a cache is looked for there first."""
        return self.cache is None

    def begin(self, path: str) -> FetchedObject | None:
        """The same, asked for now; nothing where there is no way to."""
        store, key = self.connected(path)
        begin = getattr(store, "begin_whole", None)
        if self.cache is not None or begin is None:
            return None
        coming = begin(key, LARGEST)
        return FetchedObject(path, lambda: self._checked(path, coming.result))

    def _whole(self, path: str) -> tuple[bytes, str]:
        store, key = self.connected(path)
        with_stat = getattr(store, "read_with_stat", None)
        if self.cache is not None or with_stat is None:
            found = self.open(path)
            return found.read(0, found.size), found.identity
        return self._checked(path, lambda: with_stat(key, 0, LARGEST))

    def _checked(self, path: str, read: Callable[[], tuple[memoryview, Stat]]) -> tuple[bytes, str]:
        data, told = or_empty(*self.connected(path), read)
        return bytes(data), self._the_same(path, told).version

    def within(self, folder: str) -> list[str]:
        """All below a folder, hidden ones left out."""
        return self._listed(folder, lambda path: True)

    def match(self, pattern: str) -> list[str]:
        """Those that a pattern fits; ``*`` stays within a folder, ``**`` does not."""
        fixed = pattern[: re.search(r"[*?[]", pattern).start()]  # type: ignore[union-attr]
        *folders, last = pattern.split("/")
        parts = ["(?:.*/)?" if part == "**" else _pattern(part) + "/" for part in folders]
        wanted = re.compile("".join(parts) + (".+" if last == "**" else _pattern(last)))
        return self._listed(posixpath.dirname(fixed), lambda path: wanted.fullmatch(path) is not None)

    def _listed(self, folder: str, wanted: Callable[[str], bool]) -> list[str]:
        """Those below a folder that are wanted, of versions that are remembered."""
        store, key = self.connected(folder)
        skip = len(key.rstrip("/") + "/") if key else 0
        paths = []
        for found in self._begun.pop(folder, None) or store.list(key):
            path = full_url(store.url, found.key)
            if re.search(r"(^|/)\.", found.key[skip:]) or not wanted(path):
                continue
            paths.append(path)
            if found.etag is not None:  # the times in lists may be finer than those that come with the object
                self._versions[path] = found.version
        return sorted(paths)

    def version(self, path: str) -> str:
        """What tells the bytes of an object from others."""
        store, key = self.connected(path)
        return store.stat(key).version

    def listed(self, paths: Sequence[str]) -> dict[str, str]:
        """The same of those that a list of their folder tells; it ends where most of what it has is something else."""
        wanted, found = set(paths), dict[str, str]()
        folder = posixpath.dirname(commonprefix(paths))  # noqa: RUF071  commonpath takes the slashes out of s3://
        if not folder.startswith(parse_url(paths[0]).root):
            return found
        store, key = self.connected(folder)
        with contextlib.suppress(StoreError):  # a web server does not list
            for one in islice(store.list(key), 8 * len(wanted)):
                path = full_url(store.url, one.key)
                if path in wanted:
                    found[path] = one.version
        return found

    def is_folder(self, path: str) -> bool:
        """Whether there is no such object, and objects below it; ``within`` goes on with the list."""
        store, key = self.connected(path)
        if key and not key.endswith("/"):
            try:
                self._versions[path] = store.stat(key).version
            except NotFoundError:
                pass
            else:
                return False
        listed = iter(store.list(key))
        try:
            first = next(listed, None)
        except StoreError:
            if getattr(store, "kind", None) == "http":  # a web server does not list
                return False
            raise
        if first is not None:
            self._begun[path] = chain([first], listed)
        return first is not None


def _pattern(part: str) -> str:
    """One part of a pattern, without what ``fnmatch`` puts around it."""
    return fnmatch.translate(part)[len("(?s:") : -len(r")\Z")].replace(".*", "[^/]*")
