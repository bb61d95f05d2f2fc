"""An archive open for reading: a mapping from path to bytes, a tree of folders, and a dataset."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import IO, Any, Literal, NoReturn, Self, overload

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.archive.content import content_of
from fastloader.archive.encoding import DATA, IMAGE, is_archive
from fastloader.archive.patterns import compiled, fixed_part
from fastloader.archive.tree import Row, Tree
from fastloader.dataset import MapDataset, ReaderDataset
from fastloader.dataset.base import Node
from fastloader.dataset.dataset import Steps
from fastloader.dataset.sources import FromReader
from fastloader.errors import FormatError, KeyNotFoundError
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.extractable import LINKS
from fastloader.formats.fld import Dataset, explain
from fastloader.formats.fld.layout import NO_FIELD, Kind
from fastloader.reader import dataset_at
from fastloader.types import Key, key_bytes, key_text

_LOOKED_UP = (
    *((kind, NO_FIELD) for kind in (Kind.KEY_SLOTS, Kind.KEY_OFFSETS, Kind.KEY_BYTES)),
    *((kind, field) for field in (IMAGE, DATA) for kind in (Kind.VALIDITY, Kind.EXTENTS)),
)
"""The tables on the way from a path to what a file holds."""


class Archive(Steps[MapDataset], Mapping[str, bytes]):
    """A folder in one ``.fld`` file, or a folder of shards: ``archive["train/cats/1.jpg"]`` gives a file's bytes.

    It is a mapping from the paths of files to their content, in the order of paths. Links are followed within the
    archive: ``in`` and ``[]`` find their names, hard links' too, but each file is counted and listed once. Paths are
    relative, with ``/`` between names; bytes that are no UTF-8 are surrogates in text, as Python has them in file
    names, and paths may be given as bytes.

    It is a dataset too, whose samples are the files: ``archive.shuffle(seed=1).batch(32)``, ``DataLoader(archive)``.
    JPEG files are in the field ``image``, all others in ``data``.

    It may be used from many threads and in forked processes, and be pickled. ``path`` may be a URL; the options are
    those of ``DatasetReader``. Every byte is checked against its CRC32C before it is given out.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
    ) -> None:
        self._open(dataset_at(path, storage_options, cache_dir=cache_dir, cache_size=cache_size))

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """The archive that a dataset is, which is open already."""
        archive = cls.__new__(cls)
        archive._open(dataset)
        return archive

    def _open(self, dataset: Dataset) -> None:
        if not is_archive(dataset):
            raise FormatError(
                "is a dataset and no archive", path=dataset.path,
                hint='fastloader.open reads it; "fastloader create" makes archives, of files',
            )  # fmt: skip
        self.dataset = dataset
        # Made when first needed. Two threads may make one at the same time, and either will do: there is no lock.
        self._known_tree: Tree | None = None
        self._known_lookup: kernels.ArchiveLookup | None = None
        self._known_reader: ReaderDataset | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (self.dataset,)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what was looked up. The files are held open by nothing else."""
        self._known_tree = self._known_lookup = self._known_reader = None

    def __repr__(self) -> str:
        return f"Archive({str(self.dataset.path)!r}, {len(self)} files)"

    @property
    def path(self) -> Any:
        """Where it is."""
        return self.dataset.path

    @property
    def tree(self) -> Tree:
        """Its paths."""
        if self._known_tree is None:
            self._known_tree = Tree(self.dataset)
        return self._known_tree

    @property
    def reader(self) -> ReaderDataset:
        """Its files as samples, numbered as they are stored; ``DataLoader`` takes it."""
        if self._known_reader is None:
            self._known_reader = ReaderDataset.of(self.dataset)
        return self._known_reader

    @property
    def node(self) -> Node:
        """Its files as samples."""
        return FromReader(self.reader)

    def __len__(self) -> int:
        return self.tree.num_files

    def __iter__(self) -> Iterator[str]:
        for path, _, is_node, _ in self.tree.below():
            if not is_node:
                yield key_text(path)

    def __getitem__(self, path: Key) -> bytes:
        try:
            lookup = self._known_lookup or self._lookup()
            found = None if lookup is None else lookup[path]
        except kernels.Failure as failure:
            self._blame(failure, path)
        return bytes(self.view(path)) if found is None else found

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str | bytes):
            return False
        entry = self._resolved(path)
        return entry is not None and entry.is_file

    def read_many(self, paths: Sequence[Key]) -> list[bytes]:
        """The content of many files, which is brought from disk all at the same time."""
        paths = list(paths)
        lookup = self._known_lookup or self._lookup()
        if lookup is None:
            return [self[path] for path in paths]
        try:
            found, missing = lookup.get_many(paths)
        except kernels.Failure:  # whose it was is told by one after the other
            return [self[path] for path in paths]
        for number in missing:
            found[number] = self[paths[number]]
        return found  # type: ignore[return-value]  # none is missing any more

    def _lookup(self) -> kernels.ArchiveLookup | None:
        """Finds files of mapped shards; objects in a store have to be asked for what is needed."""
        if self.dataset.is_remote:
            return None
        shards = []
        for shard in self.tree.shards:
            shard.file.expect(_LOOKED_UP)
        for shard in self.tree.shards:
            file, keys = shard.file, shard.file.keys()
            assert keys is not None
            images = file.payloads(IMAGE), file.table(Kind.VALIDITY, IMAGE)
            data = file.payloads(DATA), file.table(Kind.VALIDITY, DATA)
            shards.append((keys, *images, *data, list(shard.removed[0]), shard.files.order))
        lookup = kernels.ArchiveLookup(shards)
        lookup.prepare()
        self._known_lookup = lookup
        return lookup

    def _blame(self, failure: kernels.Failure, path: Key) -> NoReturn:
        file = self.dataset.file(failure.args[2])
        error = explain(failure, file.path)
        error.message = f"{_shown(path)!r}: {error.message}"
        raise error from failure

    def view(self, path: Key) -> memoryview:
        """A file's content without a copy where it is stored as it is; links are followed."""
        entry = self._resolved(path)
        if entry is None or not entry.is_file:
            self._missing(path, entry)
        return self._content(entry.path)

    def _content(self, path: bytes) -> memoryview:
        for shard in self.tree.shards:
            row = shard.file.find(path)
            if row is not None and not shard.is_removed(False, row):
                return content_of(shard.file, row, path)
        raise KeyNotFoundError(f"no file {key_text(path)!r}", path=self.path)

    def _missing(self, path: Key, entry: Entry | None) -> NoReturn:
        at = self.entry(path) if entry is None and self._plain(path) else None
        if entry is not None:
            raise KeyNotFoundError(f"{_shown(path)!r} is a folder", path=self.path, hint="listdir lists it")
        if at is not None:
            said = f"{_shown(path)!r} is a link to {key_text(at.target)!r}, which is not in the archive"
            raise KeyNotFoundError(said, path=self.path)
        raise KeyNotFoundError(f"no file {_shown(path)!r}", path=self.path, hint="paths are relative, like 'a/b.jpg'")

    def _plain(self, path: Key) -> bytes | None:
        """The path as stored; ``None`` for text that no path can be."""
        try:
            return key_bytes(path).strip(b"/")
        except UnicodeEncodeError:
            return None

    def entry(self, path: Key) -> Entry | None:
        """What is at a path: a file, a folder or a link, which is not followed; ``None`` if nothing is."""
        plain = self._plain(path)
        try:
            found = None if plain is None else self.tree.find(plain)
        except kernels.Failure as failure:
            raise explain(failure, self.path) from failure
        return self._readable(found) if found is not None and found.is_file else found

    def _readable(self, entry: Entry) -> Entry:
        read = partial(self._content, entry.path)
        return Entry(entry.path, entry.kind, entry.mode, entry.mtime, entry.size, entry.target, read)

    def _resolved(self, path: Key) -> Entry | None:
        """What is at a path, links followed within the archive."""
        plain = self._plain(path)
        found = None if plain is None else self.entry(plain)
        if plain is None or (found is not None and found.kind in (EntryKind.FILE, EntryKind.DIRECTORY)):
            return found
        left = [name for name in plain.split(b"/") if name not in (b"", b".")][::-1]
        at: list[bytes] = []
        hops = 0
        while left:
            name = left.pop()
            if name == b"..":
                if not at:
                    return None  # it leads out
                at.pop()
                continue
            here = self.entry(b"/".join([*at, name]))
            if here is None:
                return None
            if here.kind is EntryKind.HARDLINK:
                at, left = [], left + here.target.split(b"/")[::-1]
            elif here.kind is EntryKind.SYMLINK:
                if here.target.startswith(b"/"):
                    return None
                left += [part for part in here.target.split(b"/") if part not in (b"", b".")][::-1]
            else:
                at.append(name)
                continue
            hops += 1
            if hops > LINKS:
                return None
        return self.entry(b"/".join(at))

    def isdir(self, path: Key) -> bool:
        """Whether a folder is at a path; links are followed."""
        entry = self._resolved(path)
        return entry is not None and entry.kind is EntryKind.DIRECTORY

    def listdir(self, path: Key = "") -> list[str]:
        """The names in a folder, in their order. It takes as long as the folder is large, however large the archive."""
        folder = self._folder(path)
        cut = len(folder) + 1 if folder else 0
        return [key_text(found[cut:].removesuffix(b"/")) for found, *_ in self.tree.children(folder)]

    def scandir(self, path: Key = "") -> Iterator[Entry]:
        """The entries in a folder, in the order of their names."""
        return map(self._entry_of, self.tree.children(self._folder(path)))

    def _folder(self, path: Key) -> bytes:
        """The path of a folder; links are followed."""
        folder = self._resolved(path)
        if folder is None or folder.kind is not EntryKind.DIRECTORY:
            raise KeyNotFoundError(f"no folder {_shown(path)!r}", path=self.path)
        return folder.path

    def _entry_of(self, row: Row) -> Entry:
        entry = self.tree.entry(row)
        return self._readable(entry) if entry.is_file else entry

    def walk(self, top: Key = "") -> Iterator[tuple[str, list[str], list[str]]]:
        """Folders from the top down, as ``os.walk`` gives them: path, names of folders, names of all else.

        Names taken out of the list of folders are not entered.
        """
        waiting = [key_text(self._folder(top))]
        while waiting:
            folder = waiting.pop()
            folders: list[str] = []
            others: list[str] = []
            for path, *_ in self.tree.children(key_bytes(folder)):
                name = key_text(path.removesuffix(b"/")).rpartition("/")[2]
                (folders if path.endswith(b"/") else others).append(name)
            yield folder, folders, others
            waiting += [f"{folder}/{name}" if folder else name for name in reversed(folders)]

    def glob(self, pattern: str) -> Iterator[str]:
        """The paths that fit a pattern, such as ``train/*/*.jpg`` or ``**/*.json``, in their order.

        ``*``, ``?`` and ``[...]`` stand for characters of a name, ``**`` for any number of folders, none too. Links to
        folders are followed where the pattern names them.
        """
        if "**" not in pattern:
            return self._glob("", [name for name in pattern.split("/") if name])
        return self._glob_below(pattern)

    def _glob(self, folder: str, names: list[str]) -> Iterator[str]:
        if not names:
            return
        name, *rest = names
        real = self._folder(folder)
        if not any(mark in name for mark in "*?["):
            path = f"{folder}/{name}" if folder else name
            if not rest and self.entry(real + b"/" + key_bytes(name) if real else name) is not None:
                yield path
            elif rest and self.isdir(path):
                yield from self._glob(path, rest)
            return
        fits = compiled(name).fullmatch
        for found, *_ in self.tree.children(real):
            last = key_text(found.removesuffix(b"/")).rpartition("/")[2]
            if fits(last):
                text = f"{folder}/{last}" if folder else last
                if not rest:
                    yield text
                elif found.endswith(b"/"):
                    yield from self._glob(text, rest)

    def _glob_below(self, pattern: str) -> Iterator[str]:
        fits = compiled(pattern).fullmatch
        top = fixed_part(pattern).rstrip("/")
        if top and not self.isdir(top):
            return
        real = key_text(self._folder(top))
        for found in self._paths(key_bytes(real)):
            text = key_text(found.removesuffix(b"/"))
            if real != top:  # by the name that the pattern has for it
                text = f"{top}/{text[len(real) :].lstrip('/')}"
            if fits(text):
                yield text

    def _paths(self, top: bytes) -> Iterator[bytes]:
        """Everything below a folder, with folders that only what lies in them tells of."""
        told = top + b"/" if top else b""
        for path, *_ in self.tree.below(top):
            slash = path.find(b"/", _common(told, path))
            while slash >= 0:
                if path[: slash + 1] != told[: slash + 1]:
                    yield path[: slash + 1]
                slash = path.find(b"/", slash + 1)
            told = path[: path.rfind(b"/") + 1]
            if not path.endswith(b"/"):
                yield path

    @overload
    def open(self, path: Key, mode: Literal["rb"] = "rb") -> IO[bytes]: ...
    @overload
    def open(
        self, path: Key, mode: Literal["r"], encoding: str | None = None, errors: str | None = None,
        newline: str | None = None,
    ) -> IO[str]: ...  # fmt: skip
    def open(
        self, path: Key, mode: str = "rb", encoding: str | None = None, errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:  # fmt: skip
        """A file to read, in bytes ("rb") or as text ("r"), like the builtin ``open``."""
        if mode not in ("rb", "r", "rt"):
            raise ValueError(f"mode={mode!r}: archives are read with 'rb' or 'r', and written by ArchiveWriter")
        if mode == "rb" and (encoding, errors, newline) != (None, None, None):
            raise ValueError("encoding, errors and newline are for text, which mode='r' reads")
        file = io.BufferedReader(_Content(self.view(path)))
        return file if mode == "rb" else io.TextIOWrapper(file, encoding or "utf-8", errors, newline)

    def entries(self, top: Key = "") -> Iterator[Entry]:
        """All entries below a folder, files with their content, in the order of paths. A hard link may come before
        the file it names where that was added later.
        """
        return map(self._entry_of, self.tree.below(key_bytes(top).strip(b"/")))

    def indices(self, pattern: str = "**", *, images: bool = False) -> NDArray[np.int64]:
        """The numbers of the files that fit a pattern, or of those that are images, for ``DataLoader(indices=...)``."""
        fits = compiled(pattern).fullmatch
        starts, found = self.dataset.row_starts, []
        for path, number, is_node, row in self.tree.below(key_bytes(fixed_part(pattern)).rstrip(b"/")):
            if is_node or not fits(key_text(path)):
                continue
            if not images or not self.tree.shards[number].file.is_missing(IMAGE, row):
                found.append(int(starts[number]) + row)
        return self.dataset.runs.rank(np.array(found, np.int64))


class _Content(io.RawIOBase):
    """A view as a file."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._view)}[whence]
        if begin + offset < 0:
            raise ValueError(f"a position of {begin + offset}")
        self._at = begin + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._view[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def _common(one: bytes, other: bytes) -> int:
    """Where the last slash of what two paths have in common ends."""
    end = 0
    while (at := one.find(b"/", end)) >= 0 and other.startswith(one[: at + 1]):
        end = at + 1
    return end


def _shown(path: Key) -> str:
    return key_text(path) if isinstance(path, bytes) else path
