"""From what a user names to a store and a key in it."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastloader.stores.base import Store, full_url
from fastloader.stores.cache import BlockCache
from fastloader.stores.plain import LocalStore, MemoryStore
from fastloader.stores.urls import is_url, parse_url


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """An object or a folder of objects in a store: what ``pathlib.Path`` is for local files, as far as needed."""

    store: Store
    key: str
    cache: BlockCache | None = None

    def __str__(self) -> str:
        return full_url(self.store.url, self.key)

    def __truediv__(self, name: str) -> ObjectPath:
        if is_url(name):  # an absolute one, as absolute local paths are taken
            if not name.startswith(f"{self.store.url}/"):
                raise ValueError(f"{self}: {name!r} is in another store")
            return replace(self, key=parse_url(name).key)
        joined = posixpath.normpath(posixpath.join(self.key, name)) if name else self.key
        if joined.startswith(("../", "/")) or joined == "..":
            raise ValueError(f"{self}: {name!r} leads out of the store")
        return replace(self, key=joined)

    def beside(self, name: str) -> ObjectPath:
        """Another one in the same folder."""
        return replace(self, key=posixpath.join(posixpath.dirname(self.key), name))

    @property
    def name(self) -> str:
        """The last part of the key."""
        return posixpath.basename(self.key)


def open_store(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> tuple[Store, str]:
    """The store that a URL or a local path is in, and the key there.

    Of a local path the store is its folder. ``storage_options`` are for the store's client.
    """
    where = locate(url, storage_options)
    if isinstance(where, ObjectPath):
        return where.store, where.key
    absolute = where.absolute()
    return LocalStore(absolute.parent), absolute.name


def locate(path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Path | ObjectPath:
    """A local path, or an object in a store."""
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise TypeError(
            f"storage_options is a dictionary, as in {{'region': 'us-west-2'}}, not a {type(storage_options).__name__}"
        )
    location = parse_url(str(path)) if is_url(path) else None
    if location is None or location.kind == "file":
        if storage_options:
            raise ValueError(f"{os.fspath(path)}: storage_options are for URLs; this is a local path")
        return Path(path) if location is None else Path(location.key)
    if location.kind == "memory":
        if storage_options:
            raise ValueError(f"{path}: memory:// takes no storage_options")
        return ObjectPath(MemoryStore(location.root.partition("://")[2]), location.key)
    from fastloader.stores.cloud import CloudStore  # needs obstore, which may not be there

    return ObjectPath(CloudStore(location.root, storage_options), location.key)
