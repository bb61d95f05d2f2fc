"""What of an archive is shown: entries by path, what lies in a folder, content to read.

A ``.fld`` archive is looked into as it is, whatever its size. Of archives of others all entries are listed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from fastloader.archive import Archive
from fastloader.archive.conversion import SOURCES, as_named, kind_of
from fastloader.archive.parts import part_of
from fastloader.errors import FormatError
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.objects import Places
from fastloader.formats.tar_entries import TarSource
from fastloader.mount.contents import Content, content_of
from fastloader.stores.urls import is_url, local_path

HARD_LINKS = 40
"""Hard links of hard links that are followed."""


class Shown(Protocol):
    """An archive as a file system shows it. Hard links are the files they name."""

    @property
    def size(self) -> int:
        """Bytes of all of it."""

    @property
    def count(self) -> int:
        """How many files there are."""

    def entry(self, path: bytes) -> Entry | None:
        """What is at a path; the root is ``b""``."""

    def listed(self, folder: bytes) -> Iterator[tuple[bytes, EntryKind]]:
        """What lies right in a folder: names, and what they are."""

    def content(self, entry: Entry) -> Content:
        """A file to read."""


class ShownArchive:
    """A ``.fld`` archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.size = sum(shard.size for shard in archive.dataset.shards)
        self.count = len(archive)

    def entry(self, path: bytes) -> Entry | None:
        """By hash or binary search."""
        return _followed(self._archive.entry, path)

    def listed(self, folder: bytes) -> Iterator[tuple[bytes, EntryKind]]:
        """A run of the sorted paths."""
        cut = len(folder) + 1 if folder else 0
        tree = self._archive.tree
        for row in tree.children(folder):
            path, _, is_node, _ = row
            if path.endswith(b"/"):
                yield path[cut:-1], EntryKind.DIRECTORY
            else:
                kind = tree.entry(row).kind if is_node else EntryKind.FILE
                yield path[cut:], EntryKind.FILE if kind is EntryKind.HARDLINK else kind

    def content(self, entry: Entry) -> Content:
        """Where it lies."""
        entry = replace(entry, read=partial(self._archive.__getitem__, entry.path))
        return content_of(entry, part_of(self._archive, entry.path), self._archive.dataset.is_remote)


class ShownEntries:
    """The entries of any archive, listed once. Of several with one path the last counts, as when they are extracted."""

    def __init__(self, entries: Iterable[Entry], far: bool) -> None:
        self._far = far
        self._entries: dict[bytes, Entry] = {b"": Entry(b"", EntryKind.DIRECTORY, 0o755)}
        self._folders: dict[bytes, dict[bytes, None]] = {b"": {}}
        for entry in entries:
            self._add(entry)
        self._resolve()
        files = [entry for entry in self._entries.values() if entry.is_file]
        self.size = sum(entry.size for entry in files)
        self.count = len(files)

    def _add(self, entry: Entry) -> None:
        if entry.kind is EntryKind.DIRECTORY:
            self._folders.setdefault(entry.path, {})
        elif entry.path in self._folders:
            raise FormatError(f"{entry.name!r} is both a folder and something else")
        self._entries[entry.path] = entry
        path = entry.path
        while path:  # folders that only what lies in them tells of
            parent, _, name = path.rpartition(b"/")
            known = parent in self._folders
            self._folders.setdefault(parent, {})[name] = None
            if known:
                return
            there = self._entries.setdefault(parent, Entry(parent, EntryKind.DIRECTORY, 0o755))
            if there.kind is not EntryKind.DIRECTORY:
                raise FormatError(f"{there.name!r} is both a folder and something else")
            path = parent

    def _resolve(self) -> None:
        """Hard links become the files they name; one that names none is left out."""
        for path in [path for path, entry in self._entries.items() if entry.kind is EntryKind.HARDLINK]:
            found = _followed(self._entries.get, path)
            if found is not None and found.is_file:
                self._entries[path] = replace(found, path=path)
            else:
                parent, _, name = path.rpartition(b"/")
                del self._entries[path], self._folders[parent][name]

    def entry(self, path: bytes) -> Entry | None:
        """From memory."""
        return self._entries.get(path)

    def listed(self, folder: bytes) -> Iterator[tuple[bytes, EntryKind]]:
        """From memory."""
        start = folder + b"/" if folder else b""
        for name in self._folders.get(folder, ()):
            yield name, self._entries[start + name].kind

    def content(self, entry: Entry) -> Content:
        """As its format gives it."""
        return content_of(entry, entry.part, self._far)


def _followed(get: Any, path: bytes) -> Entry | None:
    """An entry by path; of a hard link, the file it names."""
    found: Entry | None = get(path)
    for _ in range(HARD_LINKS):
        if found is None or found.kind is not EntryKind.HARDLINK:
            return found
        found = get(found.target)
    return None


def shown_at(path: str, settings: Mapping[str, Any] | None = None) -> Shown:
    """An archive to show: a ``.fld`` archive, a tar, a zip or one of Barecat, local or in a store."""
    path = as_named(str(local_path(path) or path))
    places = Places(settings)
    kind = kind_of(path, places)
    if kind is None or kind == "folder":
        what = "is a folder already" if kind else "is no archive"
        raise FormatError(what, path=path, hint="a .fld archive, a tar, a zip and a Barecat archive can be mounted")
    if kind == "fld":
        return ShownArchive(Archive(path, settings))
    source = SOURCES[kind](path, places)
    try:
        entries = source.entries_apart() if isinstance(source, TarSource) else source.entries()
        return ShownEntries(entries, is_url(path))
    except FormatError as error:
        error.path = error.path or path
        raise


__all__ = ["Shown", "ShownArchive", "ShownEntries", "shown_at"]
