"""Barecat archives as sources and sinks of entries, and everything in one checked."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from fastloader.errors import FormatError, StoreError
from fastloader.formats.aside import Aside
from fastloader.formats.barecat import UNLIMITED, VERSION, opened_index, shard_path
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.file_content import pieces_of
from fastloader.formats.objects import Places, open_object
from fastloader.formats.tar_entries import placed
from fastloader.formats.times import kept_time
from fastloader.kernels import crc32c
from fastloader.publishing import Published
from fastloader.stores.local import explain
from fastloader.types import Buffer, key_text

ROWS_AT_ONCE = 10_000
_MOST = 2**63 - 1
_COLUMNS = (
    ("shard", 0, _MOST), ("offset", 0, _MOST), ("size", 0, _MOST), ("crc32c", 0, 2**32 - 1), ("mode", 0, 2**32 - 1),
    ("mtime_ns", -_MOST - 1, _MOST),
)  # fmt: skip
"""Numbers that the index has of a file, and what they may be."""
_OF_FILES = 3
"""So many of them every file has."""


class BarecatSource:
    """The folders and files of an archive, the files in the order in which they lie, each checked. ``checked`` is that
    of ``TarSource``.
    """

    def __init__(self, path: str | os.PathLike[str], places: Places | None = None, *, checked: bool = True) -> None:
        self._checked = checked
        self.path = os.fspath(path)
        self._places = places or Places()
        self._source = self._places.open(self.path)

    def entries(self) -> Iterator[Entry]:
        """All of them."""
        shards: dict[int, Any] = {}
        with opened_index(self._source) as connection:
            for path, mode, mtime in connection.execute("SELECT path, mode, mtime_ns FROM dirs ORDER BY path"):
                self._refuse(wrong_in(path, (None, None, None, None, mode, mtime)))
                found = placed(path, EntryKind.DIRECTORY, self.path, self._checked)
                if found is not None:
                    yield Entry(found, EntryKind.DIRECTORY, _mode(mode, 0o755), mtime or 0)
            rows = connection.execute(
                "SELECT path, shard, offset, size, crc32c, mode, mtime_ns FROM files ORDER BY shard, offset, size, path"
            )
            for path, shard, offset, size, crc, mode, mtime in rows:
                self._refuse(wrong_in(path, (shard, offset, size, crc, mode, mtime), _OF_FILES))
                if shard not in shards:
                    shards[shard] = self._places.open(shard_path(self.path, shard))
                found = placed(path, EntryKind.FILE, self.path, self._checked)
                assert found is not None

                def read(
                    path: bytes = path, shard: int = shard, offset: int = offset, size: int = size, crc: Any = crc
                ) -> Buffer:
                    return checked(shards[shard], path, offset, size, crc)

                def part(begin: int, size: int, shard: int = shard, offset: int = offset) -> Buffer:
                    return bytes(shards[shard].read(offset + begin, size)) if size else b""

                yield Entry(found, EntryKind.FILE, _mode(mode, 0o644), mtime or 0, size, read=read, part=part)

    def _refuse(self, wrong: str | None) -> None:
        if wrong is not None:
            raise FormatError(wrong, path=self.path, hint=f'"fastloader verify {self.path}" tells of all such')


def wrong_in(path: Any, numbers: tuple[Any, ...], needed: int = 0) -> str | None:
    """What can't be in a row of the index: SQLite keeps any kind of value in any column. The first few are needed."""
    if not isinstance(path, bytes):
        return f"the index has a path that is {path!r}"
    for at, (value, (column, least, most)) in enumerate(zip(numbers, _COLUMNS, strict=True)):
        if value is None and at >= needed:
            continue
        if type(value) is not int or not least <= value <= most:
            return f"the index says of {key_text(path)!r} that its {column} is {value!r}, which can't be"
    return None


def _mode(mode: Any, usual: int) -> int:
    return usual if mode is None else stat.S_IMODE(mode)


def checked(shard: Any, path: bytes, offset: int, size: int, crc: int | None) -> bytes:
    """A file's bytes, known to be those that were stored. An empty one's may lie anywhere, also behind its shard."""
    offset = offset if size else 0
    if not (0 <= offset <= shard.size and 0 <= size <= shard.size - offset):
        raise FormatError(
            f"offset {offset}: {key_text(path)!r} should have {size} bytes, and the shard has {shard.size}",
            path=shard.path,
        )  # fmt: skip
    data: bytes = shard.read(offset, size)
    if crc is not None and crc32c(data) != crc:
        raise FormatError(
            f"offset {offset}: {key_text(path)!r} is damaged: crc32c stored 0x{crc:08x}, computed 0x{crc32c(data):08x}",
            path=shard.path,
        )  # fmt: skip
    return data


@dataclass
class Folder:
    """What the index says of a folder."""

    num_subdirs: int = 0
    num_files: int = 0
    num_files_tree: int = 0
    size_tree: int = 0
    mode: int | None = None
    mtime: int | None = None


@dataclass
class Folders:
    """All folders of an archive, with their statistics."""

    by_path: dict[str, Folder] = field(default_factory=lambda: {"": Folder()})

    def have(self, path: str) -> Folder:
        """A folder, made with those it lies in."""
        found = self.by_path.get(path)
        if found is None:
            self.have(path.rpartition("/")[0]).num_subdirs += 1
            found = self.by_path[path] = Folder()
        return found

    def add_file(self, path: str, size: int) -> None:
        """A file counts in all folders above it."""
        parent = path.rpartition("/")[0]
        self.have(parent).num_files += 1
        while True:
            folder = self.by_path[parent]
            folder.num_files_tree += 1
            folder.size_tree += size
            if not parent:
                return
            parent = parent.rpartition("/")[0]


class BarecatSink(Published):
    """Writes an archive of schema 0.3: ``X.barecat`` and ``X.barecat-shard-00000``, of ``shard_size`` bytes at most.

    Nothing of it appears before all of it is written; the index comes last.
    """

    def __init__(self, path: str | os.PathLike[str], shard_size: int | None = None) -> None:
        self.path = Path(path)
        self._limit = UNLIMITED if shard_size is None else shard_size
        self._folders = Folders()
        self._shards: list[Aside] = []
        self._filled = 0
        self._rows: list[tuple[Any, ...]] = []
        self._index = Aside(self.path)
        self._index.file.close()
        self._connection = sqlite3.connect(self._index.place, isolation_level=None)
        try:
            with self._told():
                self._connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
                self._connection.executescript(_sql("barecat_tables"))
                self._connection.execute("BEGIN")
            self._new_shard()
        except BaseException:
            self.abort()
            raise

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What SQLite says when it can't write names the archive, and is an error of files as any other."""
        try:
            yield
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise explain(OSError(errno.ENOSPC, str(error)), self.path) from error
            raise StoreError(
                f"the index can't be written: {error}", path=self.path, hint="check its folder, or write elsewhere"
            ) from error

    def _new_shard(self) -> None:
        if self._shards:
            self._shards[-1].close()
        self._shards.append(Aside(Path(shard_path(str(self.path), len(self._shards)))))
        self._filled = 0

    def add(self, entry: Entry) -> None:
        """A folder or a file. Of a hard link there is a copy; symbolic links have no place in an archive of Barecat."""
        try:
            path = entry.path.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"the path {entry.name!r} is no UTF-8, as Barecat needs it", path=self.path) from error
        if entry.kind is EntryKind.SYMLINK:
            raise FormatError(
                f"{entry.name!r} is a symbolic link, and Barecat keeps none", path=self.path, hint="leave it out"
            )
        mtime = kept_time(entry.mtime, entry.path)
        if entry.kind is EntryKind.DIRECTORY:
            folder = self._folders.have(path)
            folder.mode, folder.mtime = stat.S_IFDIR | entry.mode, mtime
            return
        data = self._written(entry) if entry.kind is EntryKind.HARDLINK else None
        pieces = pieces_of(entry.read) if data is None else iter([memoryview(data)])
        first = next(pieces, memoryview(b""))
        size = max(entry.size, len(first)) if data is None else len(data)
        if size > self._limit:
            raise FormatError(
                f"{entry.name!r} has {size} bytes, and a shard {self._limit}", path=self.path,
                hint="choose larger shards",
            )  # fmt: skip
        if self._filled + size > self._limit:
            self._new_shard()
        written = crc = 0
        for piece in chain([first], pieces):
            with self._shards[-1].written():
                self._shards[-1].file.write(piece)
            crc = crc32c(piece, crc)
            written += len(piece)
        self._folders.add_file(path, written)
        self._rows.append((path, len(self._shards) - 1, self._filled, written, crc,
                           stat.S_IFREG | entry.mode, mtime))  # fmt: skip
        self._filled += written
        if len(self._rows) >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        with self._told():
            self._connection.executemany(
                "INSERT INTO files (path, shard, offset, size, crc32c, mode, mtime_ns) VALUES (?, ?, ?, ?, ?, ?, ?)",
                self._rows,
            )
        self._rows.clear()

    def _written(self, entry: Entry) -> bytes:
        self._flush()
        row = self._connection.execute(
            "SELECT shard, offset, size FROM files WHERE path = ? LIMIT 1", (os.fsdecode(entry.target),)
        ).fetchone()
        if row is None:
            raise FormatError(f"{entry.name!r} is a hard link to what does not come before it", path=self.path)
        shard = self._shards[row[0]]
        if not shard.file.closed:
            with shard.written():
                shard.file.flush()
        return open_object(str(shard.place)).read(row[1], row[2])

    def close(self) -> None:
        """Statistics, indexes, triggers; publish shards, then the index."""
        try:
            self._finish()
        except BaseException:
            self.abort()
            raise

    def _finish(self) -> None:
        self._flush()
        with self._told():
            self._finish_index()
        self._shards[-1].close()
        for shard in self._shards:
            shard.publish()
        with self._index.written(), open(self._index.place, "rb") as index:
            os.fsync(index.fileno())
        self._index.publish()

    def _finish_index(self) -> None:
        found = self._folders.by_path
        self._connection.executemany(
            "INSERT INTO dirs (path, num_subdirs, num_files, num_files_tree, size_tree, mode, mtime_ns) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            ((path, one.num_subdirs, one.num_files, one.num_files_tree, one.size_tree, one.mode, one.mtime)
             for path, one in found.items()),
        )  # fmt: skip
        both = self._connection.execute("SELECT path FROM files WHERE path IN (SELECT path FROM dirs)").fetchone()
        if both is not None:
            raise FormatError(f"{both[0]!r} is both a file and a folder", path=self.path)
        self._connection.executemany(
            "INSERT INTO config (key, value_int) VALUES (?, ?)",
            [("use_triggers", 1), ("shard_size_limit", self._limit), ("schema_version_major", VERSION[0]),
             ("schema_version_minor", VERSION[1])],
        )  # fmt: skip
        self._connection.execute("COMMIT")
        try:
            self._connection.executescript(_sql("barecat_upkeep"))
        except sqlite3.IntegrityError as error:
            raise FormatError("two entries have the same path", path=self.path) from error
        self._connection.close()

    def abort(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        for one in (*self._shards, self._index):
            one.discard()


def _sql(name: str) -> str:
    return files("fastloader.formats").joinpath("sql", f"{name}.sql").read_text()


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong: in which file, and what."""

    path: str
    message: str


def faults_of(path: str) -> Iterator[Fault | int]:
    """Everything in an archive checked: files against their checksums, statistics against files, the index by SQLite.

    Gives what is wrong, and between that the size of each file that was read.
    """
    source = open_object(path)
    folders = Folders()
    shards: dict[int, Any] = {}
    with opened_index(source) as connection:
        for (said,) in connection.execute("PRAGMA integrity_check"):
            if said != b"ok":
                yield Fault(path, f"SQLite says: {key_text(said)}")
        stored = {}
        for name, mode, mtime, *counted in connection.execute(
            "SELECT path, mode, mtime_ns, num_subdirs, num_files, num_files_tree, size_tree FROM dirs"
        ):
            wrong = wrong_in(name, (None, None, None, None, mode, mtime))
            if wrong is not None:
                yield Fault(path, wrong)
            if isinstance(name, bytes):
                stored[key_text(name)] = tuple(counted)
        for name in sorted(stored):
            folders.have(name)
        rows = connection.execute(
            "SELECT path, shard, offset, size, crc32c, mode, mtime_ns FROM files ORDER BY shard, offset"
        )
        for name, shard, offset, size, crc, mode, mtime in rows:
            wrong = wrong_in(name, (shard, offset, size, crc, mode, mtime), _OF_FILES)
            if wrong is not None:
                yield Fault(path, wrong)
                continue
            text = key_text(name)
            folders.add_file(text, size)
            try:
                if shard not in shards:
                    shards[shard] = open_object(shard_path(path, shard))
                checked(shards[shard], name, offset, size, crc)
                yield int(size)
            except (FormatError, OSError) as error:
                message = error.message if isinstance(error, FormatError) else str(error)
                yield Fault(shard_path(path, shard), message)
    for name, one in folders.by_path.items():
        counted = (one.num_subdirs, one.num_files, one.num_files_tree, one.size_tree)
        if stored.get(name) != counted:
            yield Fault(path, f"the folder {name!r} has (subdirs, files, files below, bytes below) {counted}, and the "
                              f"index says {stored.get(name)}")  # fmt: skip
