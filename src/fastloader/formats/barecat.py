"""Barecat: an SQLite index of files that lie one behind the other in shards beside it (schema 0.3)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import quote

import numpy as np

from fastloader.errors import FormatError, NotFoundError
from fastloader.formats.decoding import Decode
from fastloader.formats.extents import Column, ExtentDataset, Extents, Part
from fastloader.formats.members import DATA, dataset_of
from fastloader.formats.objects import Files, Object, Places
from fastloader.stores.urls import is_url
from fastloader.types import key_text

OLD_ENDING = "-sqlite-index"
VERSION = (0, 3)
UNLIMITED = 2**63 - 1
_FILES = "SELECT path, shard, offset, size, crc32c FROM files ORDER BY shard, offset, size, path"


def shard_path(index: str, number: int) -> str:
    """The path of a shard, told from that of the index."""
    return f"{index.removesuffix(OLD_ENDING)}-shard-{number:05d}"


@contextlib.contextmanager
def opened_index(source: Object) -> Iterator[sqlite3.Connection]:
    """The index, to be read; whatever SQLite says of it names the file."""
    with contextlib.ExitStack() as stack:
        try:
            if is_url(source.path):
                connection = stack.enter_context(contextlib.closing(sqlite3.connect(":memory:")))
                data = bytearray(source.read(0, source.size))
                data[18:20] = b"\1\1"  # in memory there is no log to write ahead to
                connection.deserialize(data)
            else:
                connection = stack.enter_context(contextlib.closing(_connected(source.path)))
            connection.text_factory = bytes
            connection.execute("PRAGMA trusted_schema = OFF")
            check_schema(connection, source.path)
            yield connection
        except sqlite3.Error as error:
            raise FormatError(f"the index can't be read: {error}", path=source.path) from error


def _connected(path: str) -> sqlite3.Connection:
    place = f"file:{quote(os.path.abspath(path))}?mode=ro"
    connection = sqlite3.connect(place, uri=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:  # in a folder that can't be written to there is no room for SQLite's locks
        connection.close()
        connection = sqlite3.connect(f"{place}&immutable=1", uri=True)
    return connection


def check_schema(connection: sqlite3.Connection, path: str) -> None:
    """Raise unless the tables are those of a version that is known."""
    kinds = dict(connection.execute("SELECT name, type FROM sqlite_master WHERE name IN ('files', 'dirs', 'config')"))
    if kinds != dict.fromkeys((b"files", b"dirs", b"config"), b"table"):
        raise FormatError("is no index of a Barecat archive: it lacks the tables files, dirs and config", path=path)
    found = dict(connection.execute("SELECT key, value_int FROM config WHERE key LIKE 'schema_version_%'"))
    version = (found.get(b"schema_version_major"), found.get(b"schema_version_minor"))
    if version[0] != VERSION[0] or not isinstance(version[1], int) or version[1] < VERSION[1]:
        raise FormatError(
            f"has schema version {version[0]}.{version[1]} of Barecat; {VERSION[0]}.{VERSION[1]} is read", path=path,
            hint='"barecat upgrade" makes it that',
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """What the index says of a file."""

    path: bytes
    shard: int
    offset: int
    size: int
    crc32c: int | None


def rows_of(connection: sqlite3.Connection, source: Object, places: Places | None = None) -> Iterator[Row]:
    """All files, in the order in which they lie; each known to lie within a shard that is there."""
    sizes: dict[int, int] = {}
    for values in connection.execute(_FILES):
        row = Row(*values)
        name = key_text(row.path) if isinstance(row.path, bytes) else row.path
        numbers = (row.shard, row.offset, row.size)
        if not isinstance(row.path, bytes) or not all(isinstance(one, int) and one >= 0 for one in numbers):
            raise FormatError(f"the index says of {name!r} that it lies at {numbers}", path=source.path)
        if row.crc32c is not None and not (isinstance(row.crc32c, int) and 0 <= row.crc32c < 2**32):
            raise FormatError(f"the index has a checksum of {name!r} that is none", path=source.path)
        if not row.size:  # it lies nowhere: barecat cuts a shard whose last file is deleted, and leaves it the offset
            row = replace(row, offset=0)
        if row.shard not in sizes:
            try:
                sizes[row.shard] = (places or Places()).open(shard_path(source.path, row.shard)).size
            except NotFoundError as error:
                error.message += f", and {name!r} lies in it"
                raise
        if row.offset + row.size > sizes[row.shard]:
            raise FormatError(
                f"offset {row.offset}: {name!r} should have {row.size} bytes, and the shard has {sizes[row.shard]}",
                path=shard_path(source.path, row.shard),
            )  # fmt: skip
        yield row


def barecat_parts(path: str, places: Places) -> list[Part]:
    """The files of each shard."""
    source = places.open(path)
    shards: dict[int, ShardFiles] = {}
    with opened_index(source) as connection:
        for row in rows_of(connection, source, places):
            if row.shard not in shards:
                shards[row.shard] = ShardFiles()
            shards[row.shard].add(row)
    if not shards:
        raise FormatError("holds no files", path=path)
    return [files.part(shard_path(path, number), places) for number, files in sorted(shards.items())]


class ShardFiles:
    """Those of one shard, in as little memory as there may be millions of them."""

    def __init__(self) -> None:
        self._names, self._ends = bytearray(), array("q")
        self._ranges, self._sums = array("q"), array("q")

    def add(self, row: Row) -> None:
        """The next one."""
        self._names += row.path
        self._ends.append(len(self._names))
        self._ranges.extend((row.offset, row.size))
        self._sums.append(-1 if row.crc32c is None else row.crc32c)

    def part(self, path: str, places: Places) -> Part:
        """All of them."""
        shard = places.open(path)
        sums = np.array(self._sums, np.int64)
        known = None if (sums < 0).any() else sums.astype(np.uint32)
        columns: dict[str, Column] = {DATA: Extents(np.array(self._ranges, np.int64).reshape(-1, 2), known)}
        return Part(
            path, places, shard.size, shard.identity, columns, bytes(self._names), np.array(self._ends, np.int64)
        )


def all_parts(files: Files) -> list[Part]:
    """The files of several archives."""
    return [part for path in files.paths for part in barecat_parts(path, files.places)]


def open_barecat(files: Files, decode: Decode) -> ExtentDataset:
    """Each file a sample."""
    return dataset_of("barecat", all_parts, (files,), False, decode)
