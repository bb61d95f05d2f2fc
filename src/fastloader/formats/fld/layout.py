"""The bytes of a ``.fld`` file, declared once. ``docs/reference/format.md`` is the normative text.

Everything is little-endian. The file is: magic, header, header checksum | data pages | tables | directory.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np

from fastloader.kernels import crc32c

MAGIC = b"\x89FLD\r\n\x1a\n"
VERSION = (1, 0)

HEADER = struct.Struct("<HHIQHHIQQQQ8x")
"""Major, minor, flags, num_samples, num_fields, pad, page_size; descriptors, metadata, data, allocation table."""
HEADER_CRC = struct.Struct("<I4x")
"""CRC32C of magic and header, right behind them."""
HEADER_END = len(MAGIC) + HEADER.size
PREFIX = HEADER_END + HEADER_CRC.size
assert (HEADER.size, PREFIX) == (64, 80)

DATA_BEGIN = 128
"""Where writers start the data: close behind the header, so that page 0 is nearly whole and the padding bound holds."""

DEFAULT_PAGE_SIZE = 2 << 20
REMOTE_PAGE_SIZE = 4 << 20
"""The same for objects in a store, where a page is a request, and a request costs as much as a few MB."""
MIN_PAGE_SIZE = 4096
MAX_PAGE_SIZE = 1 << 31

TABLE_ALIGNMENT = 64

_FEW_SAMPLES = 65536
_MOST_BLOCKS = 2**20

NAME_BYTES = 64
MAX_FIELDS = 0xFFFF - 1
NO_FIELD = 0xFFFF


class Flags(IntFlag):
    """The header's flags."""

    LITTLE_ENDIAN = 1
    COMPRESSED = 2
    CHECKSUMMED = 4


class FieldFlags(IntFlag):
    """A descriptor's flags."""

    PAYLOAD = 1


class Kind(IntEnum):
    """What a directory entry points at."""

    DATA = 1
    DESCRIPTORS = 2
    EXTENTS = 3
    METADATA = 4
    VALIDITY = 5
    PAGES = 6
    KEY_OFFSETS = 7
    KEY_BYTES = 8
    KEY_SLOTS = 9
    DICTIONARY = 10
    TOKENS = 11
    KEY_ORDER = 12
    NODES = 13
    NODE_BYTES = 14


CHECKSUMS_OF = 0x100
"""Added to the kind of a table: an entry that says what the list of its checksums is checked with, part by part."""
LIST_ROW, LIST_BLOCK = 4, 256
"""Bytes of a checksum, and of a part of such a list."""
LONG_LIST = 64 << 10
"""Bytes of a list beyond which writers add such an entry; a shorter one is checked whole in no time."""

DIRECTORY_HEAD = struct.Struct("<III4x")
"""Number of entries, bytes an entry, CRC32C of these two numbers and the entries."""

ENTRY = struct.Struct("<HHIIIQQQI4x")
"""Kind, field, flags, row_size, block_size, offset, size, crcs_offset, CRC32C of the checksums."""
assert ENTRY.size == 48
ENTRY_REQUIRED = 1
"""Entry flag: a reader that does not know this kind must refuse the file."""

DESCRIPTOR = struct.Struct(f"<{NAME_BYTES}sIIIHhQQ")
"""Name, type id, flags, metadata size, codec, level, pointer to the arguments, their size."""
assert DESCRIPTOR.size == 96

EXTENT = np.dtype(
    [("pointer", "<u8"), ("size", "<u8"), ("raw_size", "<u8"), ("crc", "<u4"), ("codec", "u1"), ("reserved", "V3")]
)
assert EXTENT.itemsize == 32

PAGE = np.dtype([("first_sample", "<u8"), ("num_samples", "<u8")])

NODE = struct.Struct("<QIIqIB3x")
"""Where the path begins, its bytes, those of the target behind it, time, permissions, kind."""
assert NODE.size == 32


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the directory: a section or a table and its checksums."""

    kind: int
    field: int
    flags: int
    row_size: int
    block_size: int
    offset: int
    size: int
    crcs_offset: int
    crc: int

    def pack(self) -> bytes:
        """The row's bytes."""
        return ENTRY.pack(
            self.kind, self.field, self.flags, self.row_size, self.block_size, self.offset, self.size,
            self.crcs_offset, self.crc,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """The 64 bytes behind the magic."""

    num_samples: int
    num_fields: int
    page_size: int
    descriptors: int
    metadata: int
    data: int
    allocation: int
    flags: Flags = Flags.LITTLE_ENDIAN | Flags.CHECKSUMMED
    version: tuple[int, int] = VERSION

    def pack(self) -> bytes:
        """Magic, header and header checksum: the first 80 bytes of a file."""
        head = MAGIC + HEADER.pack(
            *self.version, self.flags, self.num_samples, self.num_fields, 0, self.page_size, self.descriptors,
            self.metadata, self.data, self.allocation,
        )  # fmt: skip
        return head + HEADER_CRC.pack(crc32c(head))


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A field as the file describes it, whether or not its type is known here."""

    name: str
    type_id: int
    flags: FieldFlags
    metadata_size: int
    codec: int
    level: int
    arguments: bytes

    @property
    def has_payload(self) -> bool:
        """Whether the field stores bytes besides its metadata row."""
        return bool(self.flags & FieldFlags.PAYLOAD)


def table_alignment(num_samples: int) -> int:
    """At what multiples tables begin, in a file of so many samples: those of many, so that no block lies on two pages.

    >>> table_alignment(1000), table_alignment(10**6)
    (64, 4096)
    """
    return TABLE_ALIGNMENT if num_samples <= _FEW_SAMPLES else 4096


def block_size_of(num_samples: int, row_size: int = EXTENT.itemsize) -> int:
    """Bytes of a table that share one CRC32C, in a file of so many samples, each with a row of so many bytes.

    Rows of a large table are touched far apart, and each costs its block: so blocks are small. Their checksums must not
    become many either: of objects in a store they are fetched whole.

    >>> block_size_of(1000), block_size_of(10**6), block_size_of(10**9), block_size_of(10**9, 8)
    (65536, 2048, 32768, 8192)
    """
    if num_samples <= _FEW_SAMPLES:
        return 65536
    size = 2048
    while num_samples * min(row_size, EXTENT.itemsize) > size * _MOST_BLOCKS:
        size *= 2
    return size
