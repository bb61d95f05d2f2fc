"""Zips as sources and sinks of entries. What is written depends on the entries alone."""

from __future__ import annotations

import os
import stat
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from fastloader.errors import FormatError
from fastloader.formats.aside import Aside
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.file_content import pieces_of
from fastloader.formats.objects import Object, Places, open_object
from fastloader.formats.tar_entries import placed
from fastloader.formats.zips import data_offsets, infos_of, readable
from fastloader.publishing import Published
from fastloader.types import Buffer, byte_view, key_bytes

UNIX = 3
_FIRST, _LAST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)
_SECOND = 1_000_000_000


class ZipSource:
    """The members of a zip, in the order in which they lie. ``checked`` is that of ``TarSource``."""

    def __init__(self, path: str | os.PathLike[str], places: Places | None = None, *, checked: bool = True) -> None:
        self._checked = checked
        self.path = os.fspath(path)
        self._source = (places or Places()).open(self.path)

    def entries(self) -> Iterator[Entry]:
        """Files, folders and symbolic links."""
        infos = infos_of(self._source)
        files = readable(self._source, infos)
        for info in (one for one in infos if one.is_dir()):
            path = placed(key_bytes(info.filename), EntryKind.DIRECTORY, self.path, self._checked)
            if path is not None:
                mode = _permissions(info.external_attr >> 16, 0o755)
                yield Entry(path, EntryKind.DIRECTORY, mode, _nanoseconds(info))
        for info, offset in zip(files, data_offsets(self._source, files), strict=True):
            mode = info.external_attr >> 16 if info.create_system == UNIX else 0
            link = stat.S_ISLNK(mode)
            kind = EntryKind.SYMLINK if link else EntryKind.FILE
            path = placed(key_bytes(info.filename), kind, self.path, self._checked)
            assert path is not None

            def read(info: zipfile.ZipInfo = info, offset: int = offset) -> bytes:
                return unzipped(self._source, info, offset)

            def part(begin: int, size: int, offset: int = offset) -> bytes:
                return self._source.read(offset + begin, size)

            target = read() if link else b""
            size = 0 if link else info.file_size
            stored = info.compress_type == zipfile.ZIP_STORED
            mode = _permissions(mode, 0o644)
            yield Entry(path, kind, mode, _nanoseconds(info), size, target, read, part if stored else None)


def _permissions(mode: int, usual: int) -> int:
    """What is usual where nothing is said, not even the kind of file; else what is said, be it no permission at all."""
    return stat.S_IMODE(mode) if mode else usual


def unzipped(source: Object, info: zipfile.ZipInfo, offset: int) -> bytes:
    """A member's content, checked."""
    data = source.read(offset, info.compress_size)
    if info.compress_type == zipfile.ZIP_DEFLATED:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = stream.decompress(data, info.file_size + 1)
        except zlib.error as error:
            raise FormatError(f"offset {offset}: {info.filename!r}: {error}", path=source.path) from error
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise FormatError(
            f"offset {offset}: {info.filename!r} is damaged: crc32 stored 0x{info.CRC:08x}, computed "
            f"0x{zlib.crc32(data):08x}",
            path=source.path,
        )  # fmt: skip
    return data


def _nanoseconds(info: zipfile.ZipInfo) -> int:
    try:
        return int(datetime(*info.date_time, tzinfo=UTC).timestamp()) * _SECOND
    except ValueError:  # a day that no month has
        return 0


class ZipSink(Published):
    """Writes a zip: deflated where that makes it smaller, times in UTC. It appears when it is whole."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._aside = Aside(self.path)
        self._zip = zipfile.ZipFile(self._aside.file, "w")

    def add(self, entry: Entry) -> None:
        """A file, a folder, a link. Of a hard link there is a copy, as zips know none."""
        try:
            name = entry.path.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"the name {entry.name!r} is no UTF-8, as names in a zip are", path=self.path) from error
        if entry.kind is EntryKind.DIRECTORY:
            self._write(name + "/", [], 0, stat.S_IFDIR | entry.mode, entry.mtime)
        elif entry.kind is EntryKind.SYMLINK:
            self._write(name, [entry.target], len(entry.target), stat.S_IFLNK | 0o777, entry.mtime)
        elif entry.kind is EntryKind.HARDLINK:
            data = self._written(entry)
            self._write(name, [data], len(data), stat.S_IFREG | entry.mode, entry.mtime)
        else:
            self._write(name, pieces_of(entry.read), entry.size, stat.S_IFREG | entry.mode, entry.mtime)

    def _write(self, name: str, data: Iterable[Buffer], size: int, mode: int, mtime: int) -> None:
        when = max(_FIRST, min(_LAST, time.gmtime(max(0, mtime) // _SECOND)[:6]))
        info = zipfile.ZipInfo(name, when)
        info.create_system, info.external_attr = UNIX, mode << 16 | (0x10 if stat.S_ISDIR(mode) else 0)
        if info.filename in self._zip.NameToInfo:
            raise FormatError(f"two entries are called {name!r}", path=self.path)
        pieces = map(byte_view, data)
        first = next(pieces, memoryview(b""))
        info.file_size = max(size, len(first))  # by which room is left for its size; the true one is counted
        packs = len(first) > 64 and len(zlib.compress(first[: 64 << 10], 1)) < 0.95 * min(len(first), 64 << 10)
        info.compress_type = zipfile.ZIP_DEFLATED if packs else zipfile.ZIP_STORED
        with self._aside.written(), self._zip.open(info, "w") as member:
            member.write(first)
            for piece in pieces:
                member.write(piece)

    def _written(self, entry: Entry) -> bytes:
        info = self._zip.NameToInfo.get(os.fsdecode(entry.target))
        if info is None:
            raise FormatError(f"{entry.name!r} is a hard link to what does not come before it", path=self.path)
        self._aside.file.flush()
        source = open_object(str(self._aside.place))
        return unzipped(source, info, data_offsets(source, [info])[0])

    def close(self) -> None:
        """The directory at the end; publish it."""
        try:
            with self._aside.written():
                self._zip.close()
            self._aside.publish()
        except BaseException:
            self._aside.discard()
            raise

    def abort(self) -> None:
        """Leave nothing behind."""
        self._zip._didModify = False  # type: ignore[attr-defined]  # else it would write its directory now
        self._zip.close()
        self._aside.discard()
