"""What a reader makes of files from other versions."""

from __future__ import annotations

import struct

import fld_by_hand as hand
import numpy as np
import pytest

import fastloader as fl
from fastloader.errors import FormatError

BASIC = (hand.VECTORS / "basic.fld").read_bytes()
UNKNOWN_KIND = 4711


def with_version(data: bytes, major: int, minor: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into("<HH", changed, 8, major, minor)
    return hand.reseal(changed)


def with_entries(data: bytes, extra: list[bytes], width: int = 48) -> bytes:
    """The file with a longer directory at its end; the added bytes of wider entries are not zero."""
    old = hand.u8(data, 40)
    count = hand.u4(data, old)
    entries = [data[old + 16 + 48 * i : old + 64 + 48 * i] for i in range(count)] + extra
    rows = b"".join(entry.ljust(width, b"\x5a") for entry in entries)
    changed = bytearray(data + bytes(-len(data) % 64))
    struct.pack_into("<Q", changed, 40, len(changed))
    changed += struct.pack("<III4x", len(entries), width, 0) + rows
    return hand.reseal(changed)


def unknown_entry(flags: int) -> bytes:
    return struct.pack("<HHIIIQQQI4x", UNKNOWN_KIND, 3, flags, 5, 6, 2**60, 2**61, 2**62, 7)


def read(tmp_path, data: bytes):
    (tmp_path / "crafted.fld").write_bytes(data)
    return fl.open(tmp_path / "crafted.fld")


def values(reader) -> list:
    return hand.vectors()["expected"](list(reader))


@pytest.mark.parametrize("minor", [1, 2, 65535])
def test_a_newer_minor_version_is_readable(tmp_path, minor):
    assert values(read(tmp_path, with_version(BASIC, 1, minor))) == hand.expected("basic")


def test_a_newer_minor_version_with_new_entries_wider_entries_and_new_flags_is_readable(tmp_path):
    data = bytearray(with_entries(BASIC, [unknown_entry(0), unknown_entry(0)], width=80))
    data[12:16] = struct.pack("<I", hand.u4(BASIC, 12) | 1 << 20)
    data[64:72] = b"reserved"
    reader = read(tmp_path, with_version(bytes(data), 1, 3))
    assert values(reader) == hand.expected("basic")
    batch = reader.read_batch(np.arange(9), ["score"])
    assert batch["score"].tolist() == [i / 8 - 0.5 for i in range(9)]
    assert reader.index_of("a/b.jpg") == 1
    assert fl.verify(tmp_path / "crafted.fld", decode=True).ok


def test_an_unknown_kind_that_is_required_is_refused(tmp_path):
    with pytest.raises(FormatError, match=f"needs a table of kind {UNKNOWN_KIND}.*pip install -U"):
        read(tmp_path, with_version(with_entries(BASIC, [unknown_entry(1)]), 1, 1))


@pytest.mark.parametrize("minor", [0, 9])
def test_a_newer_major_version_is_a_clear_error(tmp_path, minor):
    with pytest.raises(FormatError, match=rf"crafted\.fld: has format version 2\.{minor}; .*1\.x; pip install -U"):
        read(tmp_path, with_version(BASIC, 2, minor))


def test_the_major_version_is_told_before_the_checksum(tmp_path):
    """A later major version may keep its checksum elsewhere; it must not be called damaged."""
    changed = bytearray(BASIC)
    struct.pack_into("<H", changed, 8, 3)
    with pytest.raises(FormatError, match=r"format version 3\.0"):
        read(tmp_path, bytes(changed))


def test_an_older_major_version_is_refused_too(tmp_path):
    with pytest.raises(FormatError, match=r"format version 0\.9"):
        read(tmp_path, with_version(BASIC, 0, 9))


def test_entries_narrower_than_48_bytes_are_refused(tmp_path):
    changed = bytearray(BASIC)
    struct.pack_into("<I", changed, hand.u8(BASIC, 40) + 4, 47)
    with pytest.raises(FormatError, match="entries of 47 bytes"):
        read(tmp_path, hand.reseal(changed))


def test_a_file_that_is_not_little_endian_is_refused(tmp_path):
    changed = bytearray(BASIC)
    changed[12] &= 0xFE
    with pytest.raises(FormatError, match="little-endian"):
        read(tmp_path, hand.reseal(changed))


@pytest.mark.parametrize("page_size", [0, 2048, 4097, 3 << 12, 2**32 - 1])
def test_a_page_size_out_of_range_is_refused(tmp_path, page_size):
    changed = bytearray(BASIC)
    struct.pack_into("<I", changed, 28, page_size)
    with pytest.raises(FormatError, match="page size"):
        read(tmp_path, hand.reseal(changed))


@pytest.mark.parametrize(("at", "what"), [(32, "descriptors"), (48, "data"), (56, "pages")])
def test_a_header_that_disagrees_with_its_directory_is_refused(tmp_path, at, what):
    changed = bytearray(BASIC)
    struct.pack_into("<Q", changed, at, hand.u8(BASIC, at) + 64)
    with pytest.raises(FormatError, match=f"disagrees with its directory about {what}"):
        read(tmp_path, hand.reseal(changed))


def test_a_table_listed_twice_is_refused(tmp_path):
    again = BASIC[hand.u8(BASIC, 40) + 16 :][:48]
    with pytest.raises(FormatError, match="twice"):
        read(tmp_path, with_entries(BASIC, [again]))


def test_an_unknown_codec_is_an_error_of_that_payload_alone(tmp_path):
    import crc32c

    changed = bytearray(BASIC)
    where = hand.entry(BASIC, hand.EXTENTS, 2)
    changed[where.offset + 32 * 5 + 28] = 9
    crc = crc32c.crc32c(bytes(changed[where.offset : where.offset + where.size]))
    struct.pack_into("<I", changed, where.crcs_offset, crc)
    at = BASIC.index(struct.pack("<HH", hand.EXTENTS, 2), hand.u8(BASIC, 40))
    struct.pack_into("<I", changed, at + 40, crc32c.crc32c(struct.pack("<I", crc)))
    reader = read(tmp_path, hand.reseal(changed))
    assert reader[4]["blob"] == bytes(range(80, 100))
    assert reader.read_sample(5, ["id"]) == {"id": -243}
    with pytest.raises(FormatError, match="sample 5, field 'blob': unknown compression id 9"):
        reader[5]
