"""Tars packed with gzip or zstd: random access by restart points or by frames; other zstd files as a stream."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError, FormatError
from fastloader.fields import Field
from fastloader.formats.decoding import KEY, Decode, decoded, field_of, fields_by_name
from fastloader.formats.extents import Extents
from fastloader.formats.extras import required
from fastloader.formats.indexes import kept_index
from fastloader.formats.members import DATA, OPENED_AT_ONCE, PATH, Names, grouped
from fastloader.formats.objects import PIECE, Files, Object, Reading, buffered
from fastloader.formats.records import Kept, Records, Stream
from fastloader.formats.records import Names as Chosen
from fastloader.formats.tar import TarIndex
from fastloader.types import Sample, key_text

SPACING = 4 << 20
"""Bytes of a gzipped tar from one restart point to the next: each costs 32 KiB of its index, less as it is packed."""
SEEK_TABLE, SEEK_MAGIC, FRAME = 0x184D2A5E, 0x8F92EAB1, b"\x28\xb5\x2f\xfd"
_FOOT = struct.Struct("<IBI")
_SKIPPED = struct.Struct("<II")
MOST_FRAME = 256 << 20
MOST_FRAMES = 1 << 24
_LENGTH = struct.Struct("<Q")
FILE, HARD_LINK = ord("0"), ord("1")


class Unpacked(Protocol):
    """The bytes that a packed file stands for."""

    def read(self, offset: int, size: int) -> bytes:
        """These of them, all of them."""


class Scan:
    """The headers of a tar whose bytes come one after the other."""

    def __init__(self) -> None:
        self._scanner = kernels.TarScanner()
        self._held, self._base = b"", 0

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        self._held += data
        scanner = self._scanner
        scanner.feed(self._held, self._base)
        skip = min(scanner.next - self._base, len(self._held)) if not scanner.done else len(self._held)
        self._held, self._base = self._held[skip:], self._base + skip

    def finish(self) -> TarIndex:
        """All of it was given."""
        return TarIndex.of(self._scanner.finish(self._base + len(self._held)))


class Gzipped:
    """A gzip file with restart points, by indexed_gzip. One thread at a time."""

    def __init__(self, source: Object, points: bytes | None = None) -> None:
        library = required("indexed_gzip", "random access to gzipped tars", source.path)
        self._errors = (library.ZranError, library.NotCoveredError, OSError, EOFError)
        self._path, self._source = source.path, source
        self._lock = Lock()
        self._file = library.IndexedGzipFile(
            fileobj=io.BufferedReader(Reading(source), PIECE), spacing=SPACING, skip_crc_check=points is not None
        )
        if points is not None:
            self._file.import_index(fileobj=io.BytesIO(points))

    def read(self, offset: int, size: int) -> bytes:
        """From the restart point before it."""
        try:
            with self._lock:
                self._file.seek(offset)
                data: bytes = self._file.read(size)
        except self._errors as error:
            _raise_theirs(error)
            raise FormatError(f"offset {offset} of what is packed: {error}", path=self._path) from error
        if len(data) < size:
            raise FormatError(f"offset {offset} of what is packed: it ends within {size} bytes", path=self._path)
        return data

    def all(self) -> Iterator[bytes]:
        """From front to back, with the checksum at the end."""
        try:
            self._file.seek(0)
            crc = size = 0
            while data := self._file.read(PIECE):
                yield data
                crc, size = zlib.crc32(data, crc), size + len(data)
            # The library takes a file that was cut for one that ends there. Its end tells, or else all of it.
            foot = self._source.read(max(0, self._source.size - 8), min(8, self._source.size))
            if foot != struct.pack("<II", crc, size % 2**32):
                for _ in gunzipped(self._source):
                    pass
        except self._errors as error:
            _raise_theirs(error)
            raise FormatError(f"the gzip stream is damaged or was cut short: {error}", path=self._path) from error

    def points(self) -> bytes:
        """The restart points, once all was gone through."""
        out = io.BytesIO()
        self._file.export_index(fileobj=out)
        return out.getvalue()


def _raise_theirs(error: BaseException) -> None:
    """Raise what was no damage: an error of ours, or what ended a read of the packed bytes, be it Ctrl-C or a store
    that does not answer, which the library has as the cause of its own.
    """
    if isinstance(error, FastLoaderError):
        raise error
    if error.__cause__ is not None:
        raise error.__cause__


def gunzipped(source: Object) -> Iterator[bytes]:
    """What a gzip file stands for, gone through, with all its checksums."""
    try:
        with gzip.GzipFile(fileobj=buffered(source)) as file:
            while data := file.read(PIECE):
                yield data
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, FastLoaderError):
            raise
        raise FormatError(f"the gzip stream is damaged or was cut short: {error}", path=source.path) from error


class Frames:
    """A zstd file of several frames, with the table of them at its end that the seekable format has."""

    def __init__(self, source: Object, table: NDArray[np.int64]) -> None:
        self._source = source
        self._at = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(table, axis=0)])
        self._kept = Kept()

    def read(self, offset: int, size: int) -> bytes:
        """From the frames that hold them."""
        out = []
        number = int(np.searchsorted(self._at[:, 1], offset, "right")) - 1
        while size:
            if number >= len(self._at) - 1:
                raise FormatError(f"offset {offset} of what is packed: it ends before", path=self._source.path)
            frame = self._kept.get(number, lambda number=number: self._frame(number))  # type: ignore[misc]
            begin = offset - int(self._at[number, 1])
            part = frame[begin : begin + size]
            out.append(part)
            offset, size, number = offset + len(part), size - len(part), number + 1
        return b"".join(out)

    def _frame(self, number: int) -> tuple[bytes, int]:
        at, size = int(self._at[number, 0]), int(self._at[number + 1, 0] - self._at[number, 0])
        made = np.empty(int(self._at[number + 1, 1] - self._at[number, 1]), np.uint8)
        try:
            kernels.decompress(self._source.read(at, size), kernels.ZSTD, made)
        except kernels.Failure as failure:
            raise FormatError(f"frame {number} at offset {at}: {failure.args[1]}", path=self._source.path) from failure
        return made.tobytes(), made.nbytes


def seek_table(source: Object) -> NDArray[np.int64] | None:
    """Packed and unpacked sizes of the frames of a zstd file; ``None`` where it has no table of them."""
    if source.size < _FOOT.size + _SKIPPED.size:
        return None
    count, flags, magic = _FOOT.unpack(source.read(source.size - _FOOT.size, _FOOT.size))
    row = 12 if flags & 0x80 else 8
    size = count * row + _FOOT.size
    if magic != SEEK_MAGIC or flags & 0x7C or count > MOST_FRAMES or size + _SKIPPED.size > source.size:
        return None
    data = source.read(source.size - size - _SKIPPED.size, size + _SKIPPED.size - _FOOT.size)
    if _SKIPPED.unpack_from(data) != (SEEK_TABLE, size):
        return None
    table = np.frombuffer(data, np.uint8, offset=_SKIPPED.size).reshape(-1, row)[:, :8].copy().view("<u4")
    packed, made = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    if packed.sum() + size + _SKIPPED.size != source.size or (made > MOST_FRAME).any():
        raise FormatError("the table of frames does not fit the file: it is damaged", path=source.path)
    return np.stack([packed, made], 1)


@dataclass(frozen=True, eq=False)
class Opened:
    """A packed tar: its members as samples, and its bytes."""

    unpacked: Unpacked
    columns: dict[str, NDArray[np.int64]]
    keys: Names


def ranges_of(index: TarIndex) -> NDArray[np.int64]:
    """Where the data of members lies."""
    return np.stack([index.offsets, index.sizes], 1)


def samples_of(path: str, index: TarIndex, group: bool) -> tuple[dict[str, NDArray[np.int64]], Names]:
    """Where the values of samples lie in what is packed."""
    names, there = Names(index.names, index.name_ends), index.has_data
    ranges = ranges_of(index)
    if not group:
        return {DATA: ranges[there]}, names.chosen(there)
    columns, keys = grouped(path, names, ranges, there, index.headers)
    return {name: one.ranges for name, one in columns.items() if isinstance(one, Extents)}, keys


def scanned(path: str, pieces: Iterator[bytes]) -> TarIndex:
    """The headers of a tar that is unpacked piece by piece."""
    scan = Scan()
    try:
        for data in pieces:
            scan.feed(data)
        return scan.finish()
    except kernels.Failure as failure:
        raise FormatError(f"what is packed: {failure.args[1]}", path=path) from failure


def gzip_index(source: Object) -> tuple[TarIndex, bytes]:
    """The headers of a gzipped tar and its restart points, found once and kept."""

    def build() -> bytes:
        file = Gzipped(source)
        index = scanned(source.path, file.all()).pack()
        points = kernels.compress(file.points(), kernels.ZSTD, 3)
        return _LENGTH.pack(len(index)) + index + points

    def parts(data: memoryview) -> tuple[TarIndex, bytes] | None:
        if len(data) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(data)
        index = TarIndex.unpack(data[_LENGTH.size : _LENGTH.size + size])
        return None if index is None else (index, bytes(data[_LENGTH.size + size :]))

    found = parts(kept_index(source, "tar.gz", build, lambda data: parts(data) is not None))
    assert found is not None
    stream = kernels.Unzstd()
    return found[0], stream.feed(found[1])


def index_of_packed(source: Object, format: str) -> TarIndex | None:
    """The headers of a packed tar; ``None`` where there is no random access to it."""
    if format == "tar.gz":
        return gzip_index(source)[0]
    table = seek_table(source)
    return None if table is None else _framed(source, Frames(source, table), table)


def with_index(source: Object, format: str) -> tuple[TarIndex, Unpacked] | None:
    """The headers of a packed tar, and what reads anywhere in it; ``None`` where there is no random access to it."""
    if format == "tar.gz":
        index, points = gzip_index(source)
        return index, Gzipped(source, points)
    table = seek_table(source)
    if table is None:
        return None
    frames = Frames(source, table)
    return _framed(source, frames, table), frames


class PackedTar(Records):
    """Samples of packed tars, with random access."""

    def __init__(self, files: Files, format: str, group: bool, decode: Decode) -> None:
        super().__init__(files)
        self.format = format  # type: ignore[misc]
        self._group = group
        with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(files.paths)), "fastloader-index") as pool:
            opened = list(pool.map(self.file, range(len(files.paths))))
        first = KEY if group else PATH
        names = list(dict.fromkeys([first, *(name for one in opened for name in one.columns)]))
        self.fields: dict[str, Field] = fields_by_name(names, decode)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all files."""
        return tuple(self.fields)

    def begin(self, number: int) -> Opened:
        """The index, and what reads by it."""
        source = self.source(number)
        try:
            opened = with_index(source, self.format)
            assert opened is not None
        except FastLoaderError as error:
            error.path = error.path or source.path
            raise
        index, unpacked = opened
        return Opened(unpacked, *samples_of(source.path, index, self._group))

    def count(self, file: Opened) -> int:
        """All samples."""
        return len(file.keys)

    def samples(self, number: int, file: Opened, rows: Sequence[int], names: Chosen) -> list[Sample]:
        """Read in the order in which they lie."""
        found: dict[int, Sample] = {}
        for row in sorted(set(rows)):
            found[row] = {name: self._value(file, name, row) for name in names or self.names}
        return [found[row] for row in rows]

    def _value(self, file: Opened, name: str, row: int) -> Any:
        if name in (KEY, PATH) and name == self.names[0]:
            return key_text(file.keys[row])
        ranges = file.columns.get(name)
        if ranges is None or ranges[row, 0] < 0:
            return None
        offset, size = ranges[row].tolist()
        return decoded(self.fields[name], file.unpacked.read(offset, size), name)


def _framed(source: Object, unpacked: Unpacked, table: NDArray[np.int64]) -> TarIndex:
    """The headers of a tar in frames; only frames that hold some are unpacked."""

    def build() -> bytes:
        total = int(table[:, 1].sum())
        scanner = kernels.TarScanner(total)
        try:
            while not scanner.done and scanner.next < total:
                begin = scanner.next
                scanner.feed(unpacked.read(begin, min(max(PIECE, scanner.needed), total - begin)), begin)
            return TarIndex.of(scanner.finish(total)).pack()
        except kernels.Failure as failure:
            raise FormatError(f"what is packed: {failure.args[1]}", path=source.path) from failure

    index = TarIndex.unpack(kept_index(source, "tar.zst", build, lambda data: TarIndex.unpack(data) is not None))
    assert index is not None
    return index


class TarStream(Stream):
    """Samples of tars in one zstd frame, gone through: members of one sample must follow each other."""

    format = "tar.zst"

    def __init__(self, files: Files, group: bool, decode: Decode) -> None:
        super().__init__(files)
        self._group, self._decode = group, decode

    @property
    def names(self) -> None:
        """Each sample has its own."""

    def samples(self, source: Object, start: int, names: Chosen) -> Iterator[Sample]:
        """Sample by sample; those before ``start`` are unpacked and left out."""
        for number, sample in enumerate(self._grouped(source)):
            if number >= start:
                wanted = list(sample) if names is None else names
                yield {name: self._value(name, sample.get(name)) for name in wanted}

    def _value(self, name: str, data: Any) -> Any:
        if data is None or isinstance(data, str):
            return data
        return decoded(field_of(name, self._decode), data, name)

    def _grouped(self, source: Object) -> Iterator[dict[str, Any]]:
        sample: dict[str, Any] = {}
        for name, data in files_of(source):
            if not self._group:
                yield {PATH: key_text(name), DATA: data}
                continue
            _, kinds, fields, key, _ = kernels.tar_samples(name, np.array([len(name)]), np.ones(1, np.uint8))
            if kinds[0] < 0:
                continue
            text, field = key_text(key), key_text(fields[0])
            if sample and sample[KEY] != text:
                yield sample
                sample = {}
            if field in sample:
                raise FormatError(f"{key_text(name)!r} comes twice in one sample", path=source.path)
            sample = sample or {KEY: text}
            sample[field] = data
        if sample:
            yield sample


def unzstd(source: Object) -> Iterator[bytes]:
    """What a zstd file stands for."""
    stream = kernels.Unzstd()
    try:
        for at in range(0, source.size, PIECE):
            data = stream.feed(source.read(at, min(PIECE, source.size - at)))
            if data:
                yield data
    except kernels.Failure as failure:
        raise FormatError(failure.args[1], path=source.path) from failure
    if not stream.whole:
        raise FormatError("the zstd stream was cut short", path=source.path)


class Forward:
    """Bytes that come one after the other, of which only those still wanted are held."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held, self._base = bytearray(), 0

    def look(self, offset: int, size: int) -> bytes:
        """Bytes that were not dropped; fewer at the end."""
        while self.end < offset + size and (more := next(self._pieces, None)) is not None:
            self._held += more
        return bytes(self._held[offset - self._base : offset - self._base + size])

    def drop(self, offset: int) -> None:
        """Nothing before it is wanted any more."""
        while self.end < offset and (more := next(self._pieces, None)) is not None:
            self._base, self._held = self.end, bytearray(more)
        skip = min(offset, self.end) - self._base
        del self._held[:skip]
        self._base += skip

    @property
    def end(self) -> int:
        """Behind what came so far."""
        return self._base + len(self._held)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a tar that is gone through."""

    name: bytes
    kind: int
    mode: int
    mtime: int
    link: bytes
    data: bytes


def gone_through(path: str, pieces: Iterator[bytes]) -> Iterator[Member]:
    """The members of a tar whose bytes come one after the other."""
    stream, scanner = Forward(pieces), kernels.TarScanner()
    try:
        while not scanner.done:
            begin, needed, count = scanner.next, scanner.needed, scanner.count
            head = stream.look(begin, needed)
            if len(head) < needed:
                scanner.finish(stream.end)
            scanner.feed(head, begin)
            if scanner.count > count:
                name, kind, offset, size, mode, mtime, link = scanner.last
                data = stream.look(offset, size) if offset >= 0 else b""
                if len(data) < size:
                    raise FormatError(f"offset {begin} of what is packed: it ends within a member", path=path)
                yield Member(name, kind, mode, mtime, link, data)
            if not scanner.done:
                stream.drop(scanner.next)
        for _ in pieces:
            pass  # a checksum may be at its end
    except kernels.Failure as failure:
        raise FormatError(f"what is packed: {failure.args[1]}", path=path) from failure


def files_of(source: Object) -> Iterator[tuple[bytes, bytes]]:
    """Files of a tar in a zstd stream, one after the other: name and content."""
    for member in gone_through(source.path, unzstd(source)):
        if member.kind == HARD_LINK:
            raise FormatError(
                f"{key_text(member.name)!r} is a hard link, which a stream can't follow back", path=source.path,
                hint='unpack the tar, or pack it in frames by "fastloader convert"',
            )  # fmt: skip
        if member.kind == FILE:
            yield member.name, member.data


def open_packed(files: Files, format: str, group: bool | None, decode: Decode) -> Records | Stream:
    """The samples of packed tars: with random access, but for zstd files without a table of frames."""
    grouping = group is not False
    if format == "tar.zst":
        sources = [files[number] for number in range(len(files.paths))]
        for source in sources:
            if not source.size:
                raise FormatError("is empty", path=source.path)
        if any(seek_table(source) is None for source in sources):
            return TarStream(files, grouping, decode)
    return PackedTar(files, format, grouping, decode)
