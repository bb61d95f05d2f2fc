"""Objects in stores, for formats to read: the seam of ``objects`` filled by ``fastloader.stores``."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
from itertools import islice

from fastloader.errors import NotFoundError, StoreError
from fastloader.stores import Store, open_store
from fastloader.stores.base import Stat, full_url
from fastloader.stores.urls import parse_url

_stores: dict[tuple[int, str], Store] = {}
"""One a bucket and process: it keeps connections, and learns how many at once serve best."""


def connected(url: str) -> tuple[Store, str]:
    """The store that a URL is in, and the key there. Credentials and endpoint come from the environment."""
    location = parse_url(url)
    place = (os.getpid(), location.root)
    if place not in _stores:
        _stores[place] = open_store(url)[0]
    return _stores[place], location.key


class RemoteObject:
    """An object of one version: another one under its name is an error."""

    __slots__ = ("_key", "identity", "path", "size")

    def __init__(self, path: str, key: str, found: Stat) -> None:
        self.path, self._key = path, key
        self.size, self.identity = found.size, found.version

    def read(self, offset: int, size: int) -> bytes:
        """A range, known to be whole and of this version."""
        if not size:
            return b""
        return bytes(connected(self.path)[0].read(self._key, offset, size, version=self.identity))


class RemoteObjects:
    """Objects by URL."""

    def open(self, path: str) -> RemoteObject:
        """One of them."""
        store, key = connected(path)
        return RemoteObject(path, key, store.stat(key))

    def within(self, folder: str) -> list[str]:
        """All below a folder, hidden ones left out."""
        store, key = connected(folder)
        keys = [found.key for found in store.list(key) if not found.key.endswith("/")]
        skip = len(key.rstrip("/") + "/") if key else 0
        return sorted(full_url(store.url, one) for one in keys if not re.search(r"(^|/)\.", one[skip:]))

    def match(self, pattern: str) -> list[str]:
        """Those that a pattern fits; ``*`` stays within a folder, ``**`` does not."""
        fixed = pattern[: re.search(r"[*?[]", pattern).start()]  # type: ignore[union-attr]
        parts = ["(?:.*/)?" if part == "**" else _pattern(part) + "/" for part in pattern.split("/")]
        wanted = re.compile("".join(parts).removesuffix("/"))
        return [path for path in self.within(posixpath.dirname(fixed)) if wanted.fullmatch(path)]

    def is_folder(self, path: str) -> bool:
        """Whether there is no such object, and objects below it."""
        store, key = connected(path)
        if key and not key.endswith("/"):
            try:
                store.stat(key)
            except NotFoundError:
                pass
            else:
                return False
        try:
            return bool(list(islice(store.list(key), 1)))
        except StoreError:  # a web server does not list
            return False


def _pattern(part: str) -> str:
    """One part of a pattern, without what ``fnmatch`` puts around it."""
    return fnmatch.translate(part)[len("(?s:") : -len(r")\Z")].replace(".*", "[^/]*")
