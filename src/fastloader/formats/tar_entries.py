"""Tars, packed or not, as sources and sinks of entries. What is written depends on the entries alone."""

from __future__ import annotations

import gzip
import os
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.formats.aside import Aside
from fastloader.formats.entries import Entry, EntryKind, UnsafePathError, checked_path
from fastloader.formats.file_content import Warn, pieces_of
from fastloader.formats.objects import Places
from fastloader.formats.tar import TarIndex, index_of_tar
from fastloader.formats.tar_packed import FRAME, SEEK_MAGIC, SEEK_TABLE, gone_through, gunzipped, unzstd, with_index
from fastloader.publishing import Published
from fastloader.stores import MappedFile
from fastloader.stores.urls import is_url
from fastloader.types import Buffer, byte_view, key_bytes

GZIP = b"\x1f\x8b"
RECORD = 20 * 512
"""A tar is filled up to whole records, as tar does it."""
FRAME_BYTES = 4 << 20
LEVELS = {".gz": 6, ".zst": 3}
_KINDS = {
    ord("0"): EntryKind.FILE, ord("1"): EntryKind.HARDLINK, ord("2"): EntryKind.SYMLINK, ord("5"): EntryKind.DIRECTORY,
}  # fmt: skip
_SECOND = 1_000_000_000


def placed(path: bytes, kind: EntryKind, source: str, checked: bool = True) -> bytes | None:
    """A member's path as entries have it; ``None`` for the folder that all lie in. One that leads out names its tar, or
    is left to who asked for them unchecked.
    """
    if kind is EntryKind.DIRECTORY and path.strip(b"./") == b"" and b".." not in path:
        return None
    try:
        return checked_path(path)
    except UnsafePathError as error:
        if not checked:
            return path
        error.path = source
        raise


class TarSource:
    """The members of a tar, of one packed with gzip, or with zstd. Paths that lead out are an error, unless they are
    not to be ``checked`` here; so are devices and pipes, unless there is someone to ``warn``: then they are left out.
    """

    def __init__(
        self, path: str | os.PathLike[str], places: Places | None = None, *, checked: bool = True,
        warn: Warn | None = None,
    ) -> None:  # fmt: skip
        self._checked, self._warn = checked, warn
        self.path = os.fspath(path)
        self._places = places or Places()
        self._source = self._places.open(self.path)
        self._head = self._source.read(0, min(4, self._source.size))

    def entries(self) -> Iterator[Entry]:
        """All but devices, in order."""
        if self._head.startswith(GZIP):
            yield from self._gone_through(gunzipped(self._source))
        elif self._head.startswith(FRAME):
            yield from self._gone_through(unzstd(self._source))
        else:
            yield from self._mapped(index_of_tar(self._source, self._places))

    def entries_apart(self) -> Iterator[Entry]:
        """The same, of a packed one too with content that may be read at any time, in any order."""
        format = "tar.gz" if self._head.startswith(GZIP) else "tar.zst" if self._head.startswith(FRAME) else "tar"
        if format == "tar":  # not mapped: a file may become shorter in the meantime
            yield from self._listed(index_of_tar(self._source, self._places), self._source.read)
            return
        opened = with_index(self._source, format)
        if opened is None:
            raise FormatError(
                "has no frames to go to, and is read from front to back", path=self.path,
                hint='"fastloader convert" packs it in frames, or into a .fld archive',
            )  # fmt: skip
        index, unpacked = opened
        yield from self._listed(index, unpacked.read)

    def _kind(self, name: bytes, kind: int) -> EntryKind | None:
        """What a member is; ``None`` where it is left out."""
        if kind in _KINDS:
            return _KINDS[kind]
        said = f"{name.decode('utf-8', 'backslashreplace')!r} is a device or a pipe, which archives do not hold"
        if self._warn is None:
            raise FormatError(said, path=self.path)
        self._warn(f"{self.path}: {said}; left out")
        return None

    def _mapped(self, index: TarIndex) -> Iterator[Entry]:
        if is_url(self.path):
            return self._listed(index, self._source.read)
        data = MappedFile(Path(self.path)).bytes
        return self._listed(index, lambda offset, size: data[offset : offset + size].data)

    def _listed(self, index: TarIndex, bytes_at: Callable[[int, int], Buffer]) -> Iterator[Entry]:
        for member in range(len(index)):
            name = index.name(member)
            kind = self._kind(name, int(index.types[member]))
            path = None if kind is None else placed(name, kind, self.path, self._checked)
            if kind is None or path is None:
                continue
            offset = int(index.offsets[member])
            size = int(index.sizes[member]) if kind is EntryKind.FILE else 0
            target = (
                placed(index.link(member), kind, self.path, self._checked)
                if kind is EntryKind.HARDLINK
                else index.link(member)
            )

            def read(offset: int = offset, size: int = size) -> Buffer:
                return bytes_at(offset, size)

            def part(begin: int, size: int, offset: int = offset) -> Buffer:
                return bytes_at(offset + begin, size)

            mode, mtime = int(index.modes[member]), int(index.times[member])
            yield Entry(path, kind, mode, mtime, size, target or b"", read, part)

    def _gone_through(self, pieces: Iterator[bytes]) -> Iterator[Entry]:
        for member in gone_through(self.path, pieces):
            kind = self._kind(member.name, member.kind)
            path = None if kind is None else placed(member.name, kind, self.path, self._checked)
            if kind is None or path is None:
                continue
            target = placed(member.link, kind, self.path, self._checked) if kind is EntryKind.HARDLINK else member.link
            data = member.data
            yield Entry(path, kind, member.mode, member.mtime, len(data), target or b"", lambda data=data: data)  # type: ignore[misc]


class Output(Protocol):
    """Where the bytes of a tar go."""

    def write(self, data: memoryview) -> object:
        """Behind what is there."""

    def finish(self) -> None:
        """No more follow."""


class Plain:
    """As they are."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: memoryview) -> None:
        """Behind what is there."""
        self._file.write(data)

    def finish(self) -> None:
        """Nothing is missing."""


class Gzip:
    """One gzip member without a name and a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = gzip.GzipFile("", "wb", LEVELS[".gz"], file, mtime=0)

    def write(self, data: memoryview) -> None:
        """Packed."""
        self._file.write(data)

    def finish(self) -> None:
        """The checksum."""
        self._file.close()


class Framed:
    """zstd frames of 4 MiB each, and behind them the table of the seekable format: any zstd reads it, and any part."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._held, self._sizes = file, bytearray(), bytearray()

    def write(self, data: memoryview) -> None:
        """Held until there are enough for a frame."""
        for at in range(0, len(data), FRAME_BYTES):
            self._held += data[at : at + FRAME_BYTES]
            while len(self._held) >= FRAME_BYTES:
                self._frame(self._held[:FRAME_BYTES])
                del self._held[:FRAME_BYTES]

    def _frame(self, data: bytearray) -> None:
        packed = kernels.compress(data, kernels.ZSTD, LEVELS[".zst"])
        self._file.write(packed)
        self._sizes += struct.pack("<II", len(packed), len(data))

    def finish(self) -> None:
        """The last frame, and the table."""
        if self._held:
            self._frame(self._held)
        foot = struct.pack("<IBI", len(self._sizes) // 8, 0, SEEK_MAGIC)
        self._file.write(struct.pack("<II", SEEK_TABLE, len(self._sizes) + len(foot)) + self._sizes + foot)


_TYPES = {
    EntryKind.FILE: tarfile.REGTYPE, EntryKind.DIRECTORY: tarfile.DIRTYPE, EntryKind.SYMLINK: tarfile.SYMTYPE,
    EntryKind.HARDLINK: tarfile.LNKTYPE,
}  # fmt: skip


def header(entry: Entry) -> bytes:
    """A member's headers: ustar where that has room, pax where it has not. Owners are left out."""
    info = tarfile.TarInfo(os.fsdecode(entry.path))
    info.type, info.mode = _TYPES[entry.kind], entry.mode
    info.size = entry.size if entry.kind is EntryKind.FILE else 0
    info.linkname = os.fsdecode(entry.target)
    info.mtime = entry.mtime // _SECOND
    if entry.mtime % _SECOND or not 0 <= info.mtime < 8**11:
        sign, (whole, part) = ("-" if entry.mtime < 0 else ""), divmod(abs(entry.mtime), _SECOND)
        info.pax_headers = {"mtime": f"{sign}{whole}" + (f".{part:09d}".rstrip("0") if part else "")}
        info.mtime = max(0, min(info.mtime, 8**11 - 1))
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


class TarSink(Published):
    """Writes a tar; how the path ends says whether it is packed. It appears when it is whole."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._aside = Aside(self.path)
        ending = self.path.suffix.lower()
        kind: Callable[[BinaryIO], Output] = Plain
        if ending in (".gz", ".tgz", ".zst", ".tzst"):
            kind = Gzip if ending in (".gz", ".tgz") else Framed
        self._out = kind(self._aside.file)
        self._size = 0

    def add(self, entry: Entry) -> None:
        """Headers, content, filling."""
        head = header(entry)
        self._write(head)
        if entry.is_file:
            size = 0
            for piece in pieces_of(entry.read):
                self._write(piece)
                size += len(piece)
            if size != entry.size:
                raise FormatError(f"{entry.name!r} has {size} bytes, and {entry.size} were told", path=self.path)
            self._write(bytes(-size % 512))

    def add_file(self, path: str, data: Buffer) -> None:
        """A file of this name and content."""
        self.add(Entry.of(key_bytes(path), data))

    @property
    def size(self) -> int:
        """Bytes of the tar so far, unpacked."""
        return self._size

    def _write(self, data: Buffer) -> None:
        view = byte_view(data)
        with self._aside.written():
            self._out.write(view)
        self._size += len(view)

    def close(self) -> None:
        """The end of the tar; publish it."""
        try:
            self._write(bytes(2 * 512))
            self._write(bytes(-self._size % RECORD))
            with self._aside.written():
                self._out.finish()
            self._aside.publish()
        except BaseException:
            self._aside.discard()
            raise

    def abort(self) -> None:
        """Leave nothing behind."""
        self._aside.discard()
