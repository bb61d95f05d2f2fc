"""The bytes of a ZCLD shard, declared once. Everything is little-endian."""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = 0x5A434C44
"""In the file the bytes ``DLCZ``."""
VERSION = 1

HEADER = struct.Struct("<IHQQ")
"""Magic, version, where the metadata begins, where the data begins."""
assert HEADER.size == 22

LENGTH = struct.Struct("<Q")
"""Bytes of JSON that follow: the first thing of the metadata."""

DEFAULT_ALIGNMENT = 64
"""Where the writer lets samples begin: at multiples of a cache line, which suits every dtype."""

MAX_PADDING = 4095
"""Zero bytes a file may end with, for whoever writes whole blocks."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first 22 bytes."""

    metadata_offset: int
    data_offset: int

    def pack(self) -> bytes:
        """The header's bytes."""
        return HEADER.pack(MAGIC, VERSION, self.metadata_offset, self.data_offset)
