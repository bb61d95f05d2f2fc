"""One ``.fld`` file, opened: header, directory and descriptors are checked; tables are mapped and checked as used."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import ChecksumError, DecodeError, FormatError, NotFoundError, UnreadableError
from fastloader.formats.fld.layout import (
    CHECKSUMS_OF,
    DESCRIPTOR,
    DIRECTORY_HEAD,
    ENTRY,
    ENTRY_REQUIRED,
    EXTENT,
    HEADER,
    HEADER_CRC,
    HEADER_END,
    LIST_ROW,
    MAGIC,
    MAX_PAGE_SIZE,
    MIN_PAGE_SIZE,
    NO_FIELD,
    NODE,
    PAGE,
    PREFIX,
    VERSION,
    Descriptor,
    Entry,
    FieldFlags,
    Flags,
    Header,
    Kind,
    block_size_of,
)
from fastloader.stores import MappedFile, ObjectPath, RemoteFile
from fastloader.types import distinct

WHOLE = 1 << 20
"""Tables of objects up to this size are fetched whole: the next rows that are asked for are then there already."""

TABLES_LEAST, TABLES_ROW = 16 << 10, 32
"""Bytes of an object's tables: what there is in any case, and for each sample by field."""

END = 32 << 10
"""Bytes at the end of a large file that are asked for together: the directory, and what else is small, lie there."""

FAR_TABLE = 256 << 20
"""Bytes of a table from which on a block is read when it is first needed: samples in random order hardly share a page
of so large a table, and having a page mapped costs more than reading a block."""

_KNOWN_KINDS = frozenset(Kind)
_LISTS = frozenset(CHECKSUMS_OF + kind for kind in Kind if kind not in (Kind.DATA, Kind.DESCRIPTORS))


class FldFile:
    """A file and its tables. Safe from many threads; forked children share the mapping.

    Of an object in a store, ``bytes`` holds what was asked for: tables as they are needed, payloads never. ``told`` are
    its size and the bytes of its tables, where they are known; ``remote`` is the object, where it is open already.
    """

    def __init__(
        self, path: Path | ObjectPath, told: tuple[int, int] | None = None, remote: RemoteFile | None = None
    ) -> None:
        self.path = path
        if remote is None and isinstance(path, ObjectPath):
            remote = RemoteFile(path, tables_within, told)
        self.remote = remote
        try:
            self._opened = self.remote or MappedFile(path)  # type: ignore[arg-type]
        except FileNotFoundError as error:
            raise _not_there(path) from error
        self.bytes = self._opened.bytes
        self.size = self._opened.size
        self.inode = self._opened.inode
        self.header = self._read_header()
        self._lists: dict[tuple[int, int], Entry] = {}  # by the table whose checksums are listed
        self.directory, self.identity = self._read_directory()
        self._check_pointers()
        self.descriptors = self._read_descriptors()
        self._check_rows()
        self._tables: dict[tuple[int, int], kernels.Table] = {}
        self._payloads: dict[int, kernels.Payloads] = {}
        self._keys: kernels.Keys | None = None

    @property
    def num_samples(self) -> int:
        """How many samples the file holds."""
        return self.header.num_samples

    @property
    def data(self) -> Entry:
        """The part of the file that holds payloads."""
        return self.directory[Kind.DATA, NO_FIELD]

    def broken(self, what: str, hint: str | None = None) -> FormatError:
        """An error about this file."""
        return FormatError(what, path=self.path, hint=hint or "the file is damaged; restore it from a copy")

    def part(self, offset: int, size: int, what: str) -> NDArray[np.uint8]:
        """Bytes of the file, known to be there."""
        self._bound(offset, size, what)
        self._opened.ensure([(offset, size)])
        return self.bytes[offset : offset + size]

    def _bound(self, offset: int, size: int, what: str) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise self.broken(f"truncated: {what} should end at byte {offset + size}, the file has {self.size}")

    def _checked(self, offset: int, size: int, crc: int, what: str, before: int = 0) -> NDArray[np.uint8]:
        data = self.part(offset, size, what)
        computed = kernels.crc32c(data, before)
        if computed != crc:
            raise ChecksumError(
                f"{what} is damaged", stored=crc, computed=computed, path=self.path, hint="restore the file from a copy"
            )
        return data

    def _read_header(self) -> Header:
        self._opened.ensure([(0, min(PREFIX, self.size))])
        head = bytes(self.bytes[:PREFIX])
        if not head.startswith(MAGIC):
            what = "is empty" if not head else "is no .fld file" if head.strip(b"\0") else "was never finished"
            raise self.broken(what, hint=f"it begins with {head[:8]!r}, not {MAGIC!r}")
        self.part(0, PREFIX, "the header")
        major, minor, flags, num_samples, num_fields, _, page_size, descriptors, metadata, data, pages = (
            HEADER.unpack_from(head, len(MAGIC))
        )
        # The version comes before the checksum: a later major version may keep its checksum elsewhere.
        if major != VERSION[0]:
            raise self.broken(
                f"has format version {major}.{minor}; this fastloader reads {VERSION[0]}.x",
                hint="pip install -U fastloader" if major > VERSION[0] else "convert it with the version that wrote it",
            )
        self._checked(0, HEADER_END, HEADER_CRC.unpack_from(head, HEADER_END)[0], "the header")
        if not flags & Flags.LITTLE_ENDIAN:
            raise self.broken("is not little-endian", hint="only little-endian files exist; convert it")
        if page_size & (page_size - 1) or not MIN_PAGE_SIZE <= page_size <= MAX_PAGE_SIZE:
            raise self.broken(f"has page size {page_size}; it must be a power of two from 4 KiB to 2 GiB")
        return Header(
            num_samples, num_fields, page_size, descriptors, metadata, data, pages, Flags(flags), (major, minor)
        )

    def _read_directory(self) -> tuple[dict[tuple[int, int], Entry], int]:
        where = self.header.metadata
        if self.remote is None and 0 < self.size - END <= where:
            self._opened.ensure([(self.size - END, END)])
        count, width, crc = DIRECTORY_HEAD.unpack(self.part(where, DIRECTORY_HEAD.size, "the directory").tobytes())
        if width < ENTRY.size:
            raise self.broken(f"has directory entries of {width} bytes; at least {ENTRY.size} are needed")
        numbers = kernels.crc32c(self.part(where, 8, "the directory"))
        rows = self._checked(where + DIRECTORY_HEAD.size, count * width, crc, "the directory", numbers).tobytes()
        directory: dict[tuple[int, int], Entry] = {}
        for i in range(count):
            entry = Entry(*ENTRY.unpack_from(rows, i * width))
            of = entry.kind - CHECKSUMS_OF if entry.kind in _LISTS else entry.kind
            if of not in _KNOWN_KINDS:
                if entry.flags & ENTRY_REQUIRED:
                    raise self.broken(f"needs a table of kind {entry.kind}", hint="pip install -U fastloader")
                continue
            if entry.field >= self.header.num_fields and entry.field != NO_FIELD:
                raise self.broken(f"lists a table of field {entry.field}; it has {self.header.num_fields} fields")
            listed = directory if of == entry.kind else self._lists
            self._bound(entry.offset, entry.size, f"the {Kind(of).name.lower()} table")
            if (of, entry.field) in listed:
                raise self.broken(f"lists table {entry.kind} of field {entry.field} twice")
            listed[of, entry.field] = entry
        return directory, crc

    def _check_pointers(self) -> None:
        for kind, pointer in (
            (Kind.DATA, self.header.data),
            (Kind.DESCRIPTORS, self.header.descriptors),
            (Kind.PAGES, self.header.allocation),
        ):
            entry = self.directory.get((kind, NO_FIELD))
            if entry is None or entry.offset != pointer:
                raise self.broken(f"has a header that disagrees with its directory about {kind.name.lower()}")

    def _read_descriptors(self) -> list[Descriptor]:
        entry = self.directory[Kind.DESCRIPTORS, NO_FIELD]
        section = self._checked(entry.offset, entry.size, entry.crc, "the field descriptors").tobytes()
        if self.header.num_fields * DESCRIPTOR.size > len(section):
            raise self.broken(f"describes {self.header.num_fields} fields in {len(section)} bytes")
        found = []
        room = len(section)  # for all arguments together: laid over each other they would take far more memory
        for i in range(self.header.num_fields):
            name, type_id, flags, metadata_size, codec, level, pointer, size = DESCRIPTOR.unpack_from(
                section, i * DESCRIPTOR.size
            )
            begin = pointer - entry.offset
            room -= size
            if begin < 0 or begin + size > len(section) or room < 0:
                raise self.broken(f"has arguments of field {i} outside the descriptors")
            try:
                text = name.rstrip(b"\0").decode()
            except UnicodeDecodeError as error:
                raise self.broken(f"has a name of field {i} that is no UTF-8") from error
            if not text or "\0" in text:
                raise self.broken(f"has a name of field {i} that {'holds a zero byte' if text else 'is empty'}")
            found.append(
                Descriptor(text, type_id, FieldFlags(flags), metadata_size, codec, level, section[begin : begin + size])
            )
        if len({d.name for d in found}) != len(found):
            raise self.broken("has two fields of one name")
        return found

    def _check_rows(self) -> None:
        """Every table that must be there is, and has as many rows as there are samples."""
        samples = self.num_samples
        expected: dict[tuple[int, int], tuple[int, int]] = {}
        for i, descriptor in enumerate(self.descriptors):
            if descriptor.has_payload:
                expected[Kind.EXTENTS, i] = (EXTENT.itemsize, samples)
            if descriptor.metadata_size:
                expected[Kind.METADATA, i] = (descriptor.metadata_size, samples)
            if (Kind.VALIDITY, i) in self.directory:
                expected[Kind.VALIDITY, i] = (1, (samples + 7) // 8)
        if samples and not any(kind in (Kind.EXTENTS, Kind.METADATA) for kind, _ in expected):
            raise self.broken(f"claims {samples} samples but has no table that holds them")
        pages = self.directory[Kind.PAGES, NO_FIELD]
        expected[Kind.PAGES, NO_FIELD] = (PAGE.itemsize, pages.size // PAGE.itemsize)
        if self.has_keys:
            expected[Kind.KEY_OFFSETS, NO_FIELD] = (8, samples + 1)
        order = self.directory.get((Kind.KEY_ORDER, NO_FIELD))
        if order is not None:  # samples that are in the order of their keys need no rows
            expected[Kind.KEY_ORDER, NO_FIELD] = (8, samples if order.size else 0)
        if self.is_archive:
            nodes = self.directory[Kind.NODES, NO_FIELD]
            expected[Kind.NODES, NO_FIELD] = (NODE.size, nodes.size // NODE.size)
            if order is None or not self.has_keys or (Kind.NODE_BYTES, NO_FIELD) not in self.directory:
                raise self.broken("is an archive without a table of its paths")
        for (kind, field), (row_size, rows) in expected.items():
            entry = self.directory.get((kind, field))
            if entry is None or entry.row_size != row_size or entry.size != row_size * rows:
                where = "" if field == NO_FIELD else f" of field {self.descriptors[field].name!r}"
                raise self.broken(f"has no {Kind(kind).name.lower()} table{where} of {rows} rows of {row_size} bytes")

    def table(
        self, kind: Kind, field: int = NO_FIELD, rows: NDArray[np.int64] | None = None
    ) -> kernels.Table | None:  # fmt: skip
        """A table, or ``None`` where the file has none. Its checksums are checked once, its rows when touched.

        Of an object all of it is fetched or, where it is large and ``rows`` are given, the blocks that hold them.
        """
        table = self.table_alone(kind, field)
        if table is not None and self.remote is not None:
            self.remote.ensure(_parts(self.directory[kind, field], rows))
        return table

    def table_alone(self, kind: Kind, field: int = NO_FIELD) -> kernels.Table | None:
        """The same; of an object its checksums are fetched and checked, and no rows."""
        table = self._tables.get((kind, field))
        if table is None:
            entry = self.directory.get((kind, field))
            if entry is None:
                return None
            what = f"the {kind.name.lower()} table"
            if entry.block_size == 0 or entry.row_size == 0:
                raise self.broken(f"has {what} with no row or block size")
            table = kernels.Table(
                self.bytes, entry.offset, entry.size, entry.row_size, entry.block_size, entry.crcs_offset,
                self._check_checksums(entry, what),
            )  # fmt: skip
            if isinstance(self._opened, MappedFile) and entry.size >= FAR_TABLE:
                table.read_from(os.fsencode(self._opened.path), *self._opened.inode, entry.offset)
            self._tables[kind, field] = table
        return table

    def _check_checksums(self, entry: Entry, what: str) -> tuple[int, int] | None:
        """Check the checksums of a table, or those of their list, by which the table does it part by part.

        An object's are fetched whole, and checked so.
        """
        one = self._lists.get((entry.kind, entry.field))
        if one is None or self.remote is not None:
            self._checked(*_checksums(entry), entry.crc, f"the checksums of {what}")
            return None
        if one.row_size != LIST_ROW or not one.block_size or one.block_size % LIST_ROW:
            raise self.broken(f"has checksums of {what} in rows of {one.row_size} and blocks of {one.block_size} bytes")
        if (one.offset, one.size) != _checksums(entry):
            raise self.broken(f"has checksums of {what} in two places")
        self._checked(*_checksums(one), one.crc, f"the list of checksums of {what}")
        return one.block_size, one.crcs_offset

    def check_list(self, kind: Kind, field: int) -> None:
        """Check all checksums of a table, whether or not it would do that part by part."""
        entry = self.directory[kind, field]
        self._checked(*_checksums(entry), entry.crc, f"the checksums of the {kind.name.lower()} table")

    def expect(self, tables: Iterable[tuple[Kind, int]]) -> None:
        """Ask for the checksums of these tables, all at once: they are needed whole when a table is first used."""
        entries = (self.directory.get(table) for table in tables)
        wanted = [_checksums(entry) for entry in entries if entry is not None and entry.block_size]
        self._opened.ensure([(offset, size) for offset, size in wanted if offset + size <= self.size])

    def payloads(self, field: int) -> kernels.Payloads | None:
        """A field's payloads, or ``None`` where it stores none."""
        payloads = self._payloads.get(field)
        if payloads is None:
            extents = self.table(Kind.EXTENTS, field)
            if extents is None:
                return None
            payloads = self._payloads[field] = self._payloads_in(self.bytes, extents, field)
        return payloads

    def _payloads_in(self, data: NDArray[np.uint8], extents: kernels.Table, field: int) -> kernels.Payloads:
        known = self.dictionary(field)
        try:
            dictionary = None if known is None else kernels.Dictionary(known)
        except kernels.Failure as failure:
            raise explain(failure, self.path, None, self.descriptors[field].name) from failure
        begin, end = self.data.offset, self.data.offset + self.data.size
        return kernels.Payloads(data, extents, begin, end, dictionary)

    def payloads_of(self, field: int, rows: NDArray[np.int64]) -> kernels.Payloads | None:
        """Like ``payloads``, with the bytes of at least these rows; negative ones stand for nothing."""
        if self.remote is None:
            return self.payloads(field)
        extents = self.table(Kind.EXTENTS, field, rows)
        if extents is None:
            return None
        found = np.zeros(len(rows), EXTENT)
        kernels.take([extents], None, np.ascontiguousarray(rows, np.int64), found.view(np.uint8))
        begin, end = self.data.offset, self.data.offset + self.data.size
        # What lies elsewhere is told by who reads it.
        ranges = [(at, size) for at, size in zip(found["pointer"].tolist(), found["size"].tolist(), strict=True)
                  if size and begin <= at <= end and size <= end - at]  # fmt: skip
        return self._payloads_in(self.remote.fetched(ranges), extents, field)

    def payload_sizes(self, field: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many bytes the payloads of some samples take in the file; 0 where a field has none."""
        found = np.zeros(len(rows), EXTENT)
        table = self.table(Kind.EXTENTS, field, rows) if self.descriptors[field].has_payload else None
        if table is not None:
            kernels.take([table], None, rows, found.view(np.uint8))
        return found["size"].astype(np.int64)

    def dictionary(self, field: int) -> bytes | None:
        """What a field's payloads are compressed with besides themselves, checked; ``None`` where there is nothing."""
        try:
            table = self.table(Kind.DICTIONARY, field)
            return None if table is None else table.row(0, table.rows)
        except kernels.Failure as failure:
            name = self.descriptors[field].name
            raise explain(failure, self.path, None, name, what="the dictionary: ") from failure

    @property
    def has_keys(self) -> bool:
        """Whether samples have keys."""
        return (Kind.KEY_OFFSETS, NO_FIELD) in self.directory

    @property
    def is_archive(self) -> bool:
        """Whether samples are the files of an archive."""
        return (Kind.NODES, NO_FIELD) in self.directory

    def keys(self) -> kernels.Keys | None:
        """The key index, or ``None`` where samples have no keys."""
        if self._keys is None and self.has_keys:
            offsets, names, slots = (self.table(kind) for kind in (Kind.KEY_OFFSETS, Kind.KEY_BYTES, Kind.KEY_SLOTS))
            if offsets is None or names is None or slots is None:
                raise self.broken("has an incomplete key index")
            self._keys = kernels.Keys(offsets, names, slots)
        return self._keys

    def find(self, key: bytes) -> int | None:
        """The row of the sample with this key."""
        try:
            if self.remote is not None and self.has_keys and self.directory[Kind.KEY_SLOTS, NO_FIELD].size > WHOLE:
                return self._find_far(key)
            keys = self.keys()
            return None if keys is None else keys.find(key)
        except kernels.Failure as failure:
            raise explain(failure, self.path, what="the key index: ") from failure

    def _find_far(self, key: bytes) -> int | None:
        """The same in an object, of whose tables only the blocks that are needed are fetched."""
        homes = int.from_bytes(self._far(Kind.KEY_SLOTS, 0, 1), "little")
        slots = self.directory[Kind.KEY_SLOTS, NO_FIELD].size // 8 - 1
        if homes > slots:
            raise self.broken("has a key index that claims more slots than it has")
        digest = kernels.xxh64(key)
        for slot in range((digest * homes) >> 64, slots):
            content = int.from_bytes(self._far(Kind.KEY_SLOTS, slot + 1, 1), "little")
            if content == 0:
                return None
            if content >> 48 != digest & 0xFFFF:
                continue
            sample = (content & (1 << 48) - 1) - 1
            if sample >= self.num_samples:
                raise self.broken("has a key index that points past the last sample")
            begin, end = np.frombuffer(self._far(Kind.KEY_OFFSETS, sample, 2), "<u8").tolist()
            if end - begin == len(key) and (not key or self._far(Kind.KEY_BYTES, begin, len(key)) == key):
                return sample
        return None

    def _far(self, kind: Kind, first: int, count: int) -> bytes:
        """Rows of a table of which only their blocks are fetched."""
        entry = self.directory[kind, NO_FIELD]
        self._bound(entry.offset + first * entry.row_size, count * entry.row_size, f"the {kind.name.lower()} table")
        table = self.table(kind, NO_FIELD, np.arange(first, first + count))
        assert table is not None
        return table.row(first, count)

    def alone(self, row: int) -> NDArray[np.int64] | None:
        """The row as objects are asked for it; files need no asking."""
        return None if self.remote is None else np.array([row])

    def metadata_row(self, field: int, sample: int, dtype: np.dtype[Any]) -> Any:
        """One sample's metadata record."""
        table = self.table(Kind.METADATA, field, self.alone(sample)) if dtype.itemsize else None
        return np.zeros(1, dtype)[0] if table is None else np.frombuffer(table.row(sample), dtype)[0]

    def is_missing(self, field: int, sample: int) -> bool:
        """Whether the sample has no value for the field."""
        table = self.table(Kind.VALIDITY, field, self.alone(sample // 8))
        return table is not None and not table.row(sample // 8)[0] >> (sample % 8) & 1

    def payload(self, field: int, sample: int) -> memoryview:
        """One payload, checked and decompressed: a view of the file where it is stored as it is."""
        payloads = self.payloads(field) if self.remote is None else self.payloads_of(field, np.array([sample]))
        if payloads is None:
            return memoryview(b"")
        where = payloads.locate(sample) if self.remote is None else None
        if where is None:
            return payloads.read(sample).data
        return self.bytes[where[0] : where[0] + where[1]].data

    def pages(self) -> NDArray[Any]:
        """The allocation table: for each page, the samples whose records begin on it."""
        table = self.table(Kind.PAGES)
        assert table is not None
        return np.frombuffer(table.row(0, table.rows), PAGE)


def tables_within(head: bytes, size: int) -> int:
    """About what all tables of an object take together, told from its header before anything is checked."""
    if len(head) < PREFIX or not head.startswith(MAGIC):
        return 0
    samples, fields = HEADER.unpack_from(head, len(MAGIC))[3:5]
    return tables_bytes(int(samples), int(fields), size)


def tables_bytes(samples: int, fields: int, size: int) -> int:
    """About what all tables of so many samples take together, in a file of this size.

    One without samples holds a stream of tokens, of which the checksums are needed.
    """
    if not samples:
        return TABLES_LEAST + size // block_size_of(0) * 4
    return TABLES_LEAST + samples * TABLES_ROW * (1 + fields)


def _checksums(entry: Entry) -> tuple[int, int]:
    """Where those of a table's blocks are, and their bytes."""
    return entry.crcs_offset, -(-entry.size // entry.block_size) * 4


def _parts(entry: Entry, rows: NDArray[np.int64] | None) -> list[tuple[int, int]]:
    """The ranges of a table that hold these rows; negative ones stand for nothing."""
    if rows is None or entry.size <= WHOLE:
        return [(entry.offset, entry.size)]
    first = rows[rows >= 0] * entry.row_size
    blocks = distinct(np.concatenate([first, first + entry.row_size - 1]) // entry.block_size) * entry.block_size
    return [(entry.offset + at, min(entry.block_size, entry.size - at)) for at in blocks.tolist() if at < entry.size]


def explain(
    failure: kernels.Failure, path: Path | ObjectPath, sample: int | None = None, field: str | None = None,
    what: str = "",
) -> FormatError:  # fmt: skip
    """A native failure as the exception users see."""
    kind, message, _, stored, computed = failure.args
    # What is intact and still does not decode was stored so: only decoding finds the others like it.
    hint = check_hint(path, "--decode " if kind == "decode" else "")
    if isinstance(path, ObjectPath):
        hint = f'get a copy to look at with "fastloader store get {path} ."'
    if kind in ("checksum", "table"):
        what += "payload damaged" if kind == "checksum" else f"table {message}"  # which says so itself
        return ChecksumError(what, stored=stored, computed=computed, path=path, sample=sample, field=field, hint=hint)
    error = DecodeError if kind in ("decode", "codec") else UnreadableError if kind == "io" else FormatError
    return error(what + message, path=path, sample=sample, field=field, hint=hint)


_ARCHIVES = re.compile(r"\.(tar|zip|barecat)\b")


def check_hint(path: Path | ObjectPath, option: str = "") -> str:
    """What to do about a damaged file: what checks it, where something does."""
    if _ARCHIVES.search(path.name):  # of others: the file that is checked may be another one, and nothing decodes it
        return "the file is damaged; restore it from a copy"
    return f'run "fastloader verify {option}{path}"'


def _not_there(path: object) -> NotFoundError:
    error = NotFoundError("there is no such file or folder", path=path, hint="check the path")
    error.errno = errno.ENOENT
    return error
