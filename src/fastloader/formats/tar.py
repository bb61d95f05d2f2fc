"""Tar: random access to untouched files by an index of their headers. WebDataset's samples, or each member a sample."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError, NotFoundError
from fastloader.formats.decoding import Decode
from fastloader.formats.extents import ExtentDataset, Extents, Part
from fastloader.formats.indexes import kept_index
from fastloader.formats.members import DATA, Names, dataset_of, grouped, parts_of
from fastloader.formats.objects import Files, LocalObject, Object, Places
from fastloader.kernels import crc32c

BLOCK = 512
LEAST_PIECE, MOST_PIECE = 32 << 10, 4 << 20
"""Bytes of an object that are fetched at once: many where members are small, few where each must be skipped."""
BESIDE = ".index"
MAGIC = b"FLDTARX1"
_HEAD = struct.Struct("<8sQII")
_COUNTS = struct.Struct("<QQQ")


@dataclass(frozen=True, eq=False)
class TarIndex:
    """What the headers of a tar say, a row a member.

    Names and links lie one behind the other, ``ends`` say where each ends. ``offsets`` and ``sizes`` are of the data;
    of a hard link those of the file it names. What has no data has the offset -1. ``times`` are nanoseconds since 1970.
    """

    headers: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    times: NDArray[np.int64]
    modes: NDArray[np.uint32]
    types: NDArray[np.uint8]
    name_ends: NDArray[np.int64]
    link_ends: NDArray[np.int64]
    names: bytes
    links: bytes

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """What a scanner found."""
        return cls(**{one.name: found[one.name] for one in fields(cls)})

    def __len__(self) -> int:
        return len(self.headers)

    @property
    def has_data(self) -> NDArray[np.bool_]:
        """Which members are files."""
        return np.asarray(self.offsets >= 0)

    def name(self, member: int) -> bytes:
        """The path of a member."""
        return self.names[int(self.name_ends[member - 1]) if member else 0 : int(self.name_ends[member])]

    def link(self, member: int) -> bytes:
        """What a link names."""
        return self.links[int(self.link_ends[member - 1]) if member else 0 : int(self.link_ends[member])]

    def pack(self) -> bytes:
        """As it is kept."""
        arrays = [getattr(self, one.name) for one in fields(self)[:-2]]
        counts = _COUNTS.pack(len(self), len(self.names), len(self.links))
        return b"".join([counts, *(array.tobytes() for array in arrays), self.names, self.links])

    @classmethod
    def unpack(cls, data: memoryview) -> Self | None:
        """The same again; ``None`` where the bytes are no index."""
        if len(data) < _COUNTS.size:
            return None
        count, names, links = _COUNTS.unpack_from(data)
        kinds = [np.int64, np.int64, np.int64, np.int64, np.uint32, np.uint8, np.int64, np.int64]
        if len(data) != _COUNTS.size + count * sum(np.dtype(kind).itemsize for kind in kinds) + names + links:
            return None
        at, arrays = _COUNTS.size, []
        for kind in kinds:
            size = count * np.dtype(kind).itemsize
            arrays.append(np.frombuffer(bytes(data[at : at + size]), kind))
            at += size
        found: list[Any] = [*arrays, bytes(data[at : at + names]), bytes(data[at + names :])]
        return cls(*found)

    def within(self, size: int) -> bool:
        """Whether all lies within a file of this size, and all names within the names."""
        if not len(self):
            return not self.names and not self.links
        there = self.has_data
        ends = self.offsets[there] + self.sizes[there]
        return bool(
            (self.sizes >= 0).all()
            and (self.sizes <= size).all()
            and (self.offsets[there] <= size).all()
            and (ends <= size).all()
            and all((np.diff(one) >= 0).all() and one[0] >= 0 for one in (self.name_ends, self.link_ends))
            and int(self.name_ends[-1]) == len(self.names)
            and int(self.link_ends[-1]) == len(self.links)
        )


def is_tar(head: bytes) -> bool:
    """Whether these bytes begin a tar: a header whose checksum is right, or nothing but zeros where one would be."""
    if len(head) < BLOCK:
        return False
    if not any(head[: 2 * BLOCK]):
        return len(head) >= 2 * BLOCK
    scanner = kernels.TarScanner()
    try:
        scanner.feed(head[:BLOCK], 0)
    except kernels.Failure as failure:
        return "no header of a member" not in failure.args[1] and b"ustar" in head[257:263]
    return head[257:262] == b"ustar" or scanner.next > 0


def scan(source: Object) -> TarIndex:
    """The index of a tar, by going through its headers."""
    try:
        scanner = kernels.TarScanner(source.size)
        if isinstance(source, LocalObject):
            _scan_file(scanner, source)
        else:
            piece = MOST_PIECE // 8
            while not scanner.done and scanner.next < source.size:
                begin = scanner.next
                size = min(max(piece, scanner.needed), source.size - begin)
                scanner.feed(source.read(begin, size), begin)
                piece = min(MOST_PIECE, 2 * piece) if scanner.next < begin + size + piece else LEAST_PIECE
        return TarIndex.of(scanner.finish(source.size))
    except kernels.Failure as failure:
        raise FormatError(failure.args[1], path=source.path) from failure


def _scan_file(scanner: kernels.TarScanner, source: LocalObject) -> None:
    fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        scanner.scan(fd)
    finally:
        os.close(fd)


def index_beside(source: Object, places: Places) -> TarIndex | None:
    """The index that lies beside a tar, where there is one and it is of this tar."""
    try:
        data = memoryview((beside := places.open(source.path + BESIDE)).read(0, beside.size))
    except NotFoundError:
        return None
    if len(data) < _HEAD.size:
        return None
    magic, size, seal, stored = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if (magic, size) != (MAGIC, source.size) or crc32c(body) != stored:
        return None
    found = TarIndex.unpack(body)
    return found if found is not None and found.within(size) and seal_of(source, found) == seal else None


def seal_of(source: Object, index: TarIndex) -> int:
    """A checksum of the first header and of the last: those of another tar of the same size differ."""
    value = 0
    for at in (int(index.headers[0]), int(index.headers[-1])) if len(index) else ():
        value = crc32c(source.read(at, min(BLOCK, source.size - at)), value)
    return value


def packed_beside(source: Object, index: TarIndex) -> bytes:
    """An index as the file beside a tar."""
    body = index.pack()
    return _HEAD.pack(MAGIC, source.size, seal_of(source, index), crc32c(body)) + body


def index_of_tar(source: Object, places: Places | None = None) -> TarIndex:
    """The index of a tar: that which lies beside it, the one that was kept, or one that is made now."""
    found = index_beside(source, places or Places())
    if found is not None:
        return found

    def fits(data: memoryview) -> bool:
        index = TarIndex.unpack(data)
        return index is not None and index.within(source.size)

    index = TarIndex.unpack(kept_index(source, "tar", lambda: scan(source).pack(), fits))
    assert index is not None
    return index


def tar_part(path: str, group: bool, places: Places) -> Part:
    """The samples of one tar."""
    source = places.open(path)
    index = index_of_tar(source, places)
    there = index.has_data
    names = Names(index.names, index.name_ends)
    ranges = np.stack([index.offsets, index.sizes], 1)
    if group:
        columns, keys = grouped(path, names, ranges, there, index.headers)
    else:
        columns, keys = {DATA: Extents(np.ascontiguousarray(ranges[there]))}, names.chosen(there)
    return Part(path, places, source.size, source.identity, columns, keys.text, keys.ends)


def tar_parts(files: Files, group: bool) -> list[Part]:
    """The samples of several tars."""
    return parts_of(files, lambda path: tar_part(path, group, files.places))


def open_tar(files: Files, group: bool | None, decode: Decode) -> ExtentDataset:
    """The samples of tars."""
    return dataset_of("tar", tar_parts, (files, group is not False), group is not False, decode)
