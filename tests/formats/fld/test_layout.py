"""Every structure of the format document, parsed at its documented offsets, and the constants the document names."""

from __future__ import annotations

import re
import struct

import crc32c
import fld_by_hand as hand
import pytest

from fastloader.fields import BY_TYPE_ID, AudioCompressedField
from fastloader.formats.fld import layout
from fastloader.types import FIRST_USER_TYPE, TypeId

TINY = (hand.VECTORS / "tiny.fld").read_bytes()
BASIC = (hand.VECTORS / "basic.fld").read_bytes()
DOCUMENT = hand.DOCUMENT.read_text(encoding="utf-8")


def rows_under(heading: str, number: int = 0) -> list[list[str]]:
    """The cells of a table under a heading of the document, the first unless told."""
    section = re.split(f"\n##+ {heading}\n", DOCUMENT)[1]
    lines = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[number]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines.splitlines()[2:]]


def sizes_add_up(rows: list[list[str]], begin: int) -> int:
    """Checks that offsets follow from sizes; returns where the structure ends."""
    at = begin
    for offset, size, *_ in rows:
        assert int(offset) == at
        at += int(size)
    return at


def test_magic():
    assert TINY[:8] == bytes.fromhex("89464c440d0a1a0a")


def test_header():
    assert hand.header(TINY) == hand.Header(
        major=1, minor=0, flags=5, num_samples=2, num_fields=2, pad=0, page_size=4096, descriptors=0x2C0,
        directory=0x3C0, data=0x80, allocation=0xC0, reserved=bytes(8), crc=0xA669E737,
    )  # fmt: skip


def test_header_checksum_covers_the_first_72_bytes():
    assert struct.unpack_from("<I", TINY, 72)[0] == crc32c.crc32c(TINY[:72])
    assert TINY[76:128] == bytes(52)


def test_directory():
    assert struct.unpack_from("<III4s", TINY, 0x3C0) == (6, 48, 0x4CF93CBD, bytes(4))
    no = hand.NO_FIELD
    assert hand.directory(TINY) == [
        hand.Entry(hand.DATA, no, 0, 0, 0, 0x80, 5, 0, 0),
        hand.Entry(hand.PAGES, no, 0, 16, 65536, 0xC0, 16, 0x100, 0xDE26FE5E),
        hand.Entry(hand.EXTENTS, 1, 0, 32, 65536, 0x140, 64, 0x180, 0xF5E03F7C),
        hand.Entry(hand.METADATA, 0, 0, 8, 65536, 0x1C0, 16, 0x200, 0x9F4697DA),
        hand.Entry(hand.VALIDITY, 1, 0, 1, 65536, 0x240, 1, 0x280, 0x7D631999),
        hand.Entry(hand.DESCRIPTORS, no, 0, 1, 0, 0x2C0, 196, 0, 0x7C5E941C),
    ]


def test_descriptors():
    assert hand.descriptors(TINY) == [
        hand.Descriptor("label", 1, 0, 8, 0, 0, 0x380, 2, {}),
        hand.Descriptor("text", 3, 1, 0, 0, 0, 0x382, 2, {}),
    ]


def test_the_descriptors_real_size_is_the_documented_one():
    where = hand.entry(TINY, hand.DESCRIPTORS)
    arguments = sum(d.size for d in hand.descriptors(TINY))
    assert where.size == 2 * 96 + arguments
    assert sizes_add_up(rows_under("Field descriptors"), 0) == 96 == layout.DESCRIPTOR.size


def test_arguments_of_every_field_type():
    images = (hand.VECTORS / "images.fld").read_bytes()
    described = {d.name: (d.type_id, d.metadata_size, d.flags, d.arguments) for d in hand.descriptors(BASIC)}
    described |= {d.name: (d.type_id, d.metadata_size, d.flags, d.arguments) for d in hand.descriptors(images)}
    assert described == {
        "id": (1, 8, 0, {}),
        "score": (2, 8, 0, {}),
        "blob": (3, 0, 1, {}),
        "note": (5, 0, 1, {}),
        "pixels": (10, 0, 1, {"height": 2, "width": 3, "channels": 3, "dtype": "uint8"}),
        "grid": (4, 0, 1, {"dtype": "<u2", "shape": [2, 3]}),
        "track": (4, 8, 1, {"dtype": "<i2", "shape": [None, 2]}),
        "cloud": (4, 72, 1, {"dtype": "<f4", "shape": None}),
        "größe": (4, 0, 1, {"dtype": [["x", "<i4"], ["y", ">f8", [2]]], "shape": [1]}),
        "jpeg": (11, 16, 1, {"quality": 77, "max_height": None, "max_width": 64, "subsampling": "420", "check": False}),
        "png": (12, 16, 1, {"level": 9, "max_height": 64, "max_width": None, "check": False}),
    }


def test_extents():
    assert hand.extents(TINY, 1) == [hand.Extent(0x80, 5, 5, 0x9A71BB4C, 0), hand.Extent(0, 0, 0, 0, 0)]
    assert TINY[0x80:0x85] == b"hello"


def test_the_extent_of_a_missing_value_is_zero_and_that_of_an_empty_one_is_not():
    blobs = hand.extents(BASIC, 2)
    assert blobs[2] == blobs[8] == hand.Extent(0, 0, 0, 0, 0)
    assert blobs[0].size == 0
    assert blobs[0].pointer >= hand.header(BASIC).data


def test_metadata_rows():
    assert hand.table(TINY, hand.METADATA, 0) == [struct.pack("<q", 7), struct.pack("<q", -1)]
    assert hand.table(BASIC, hand.METADATA, 1)[3] == struct.pack("<d", -0.125)
    assert hand.table(BASIC, hand.METADATA, 6)[5] == struct.pack("<Q", 2), "the one dimension that varies"
    assert hand.table(BASIC, hand.METADATA, 7)[5] == struct.pack("<9Q", 3, 5, 1, 1, 0, 0, 0, 0, 0)
    assert hand.table(BASIC, hand.METADATA, 7)[2] == bytes(72), "a missing value's row is zero"
    for field in (2, 3, 4, 5, 8):
        assert hand.table(BASIC, hand.METADATA, field) is None, "no table for rows of no size"


def test_image_metadata_rows():
    images = (hand.VECTORS / "images.fld").read_bytes()
    jpeg = [struct.unpack("<4I", row) for row in hand.table(images, hand.METADATA, 0)]
    png = [struct.unpack("<4I", row) for row in hand.table(images, hand.METADATA, 1)]
    assert jpeg == [(7, 9, 1, 8), (7, 9, 3, 8), (7, 9, 3, 8), *[(0, 0, 0, 0)] * 3]
    assert png == [(7, 9, 1, 8), (7, 9, 2, 8), (7, 9, 3, 8), (7, 9, 4, 8), (7, 9, 1, 16), (7, 9, 3, 8)]


def test_jpeg_index():
    data = (hand.VECTORS / "seekable.fld").read_bytes()
    (described,) = hand.descriptors(data)
    assert described.arguments["seekable"] is True
    payloads = [hand.payload(data, 0, sample) for sample in range(4)]
    files = [hand.value(data, 0, sample)[1] for sample in range(4)]
    indexes = [payload[len(file) :] for payload, file in zip(payloads, files, strict=True)]
    assert indexes[2] == bytes.fromhex("ffd90000 0c000000 464c4a58"), "progressive"
    assert sizes_add_up(rows_under("JPEG index", 0)[:-1], 0) == 12
    assert sizes_add_up(rows_under("JPEG index", 1), 0) == 8
    file, index = files[3], indexes[3]
    assert index[:2] == b"\xff\xd9"
    form, interval, *widths, scan = struct.unpack("<6BI", index[2:12])
    assert (form, interval) == (1, 4)
    assert file[scan - 3 : scan] == b"\0\x3f\0", "the end of the header of the scan"
    assert index[-8:] == struct.pack("<I", len(index)) + b"FLJX"
    anchors = 4 * 3  # 150 x 61 pixels are 10 x 4 MCUs of 16 x 16; the first anchor is not stored, the end is
    assert len(index) == 12 + -(-anchors * sum(widths) // 8) + 8
    packed = int.from_bytes(index[12:-8], "little")
    places = [packed >> i * sum(widths) & (1 << widths[0]) - 1 for i in range(anchors)]
    assert 8 * (len(file) - 2) - 8 * scan - sum(places) < 8, "the last anchor is in the last byte before the end"


def test_validity():
    assert hand.table(TINY, hand.VALIDITY, 1) == [b"\x01"]
    assert hand.table(TINY, hand.VALIDITY, 0) is None, "no table where nothing is missing"
    assert hand.table(BASIC, hand.VALIDITY, 2) == [b"\xfb", b"\x00"], "samples 2 and 8 of 9; bits past the end are 0"
    assert hand.table(BASIC, hand.VALIDITY, 0) == [b"\xfb", b"\x01"]


def test_allocation_table():
    assert hand.table(TINY, hand.PAGES) == [struct.pack("<QQ", 0, 2)]


def test_checksums_go_one_a_block_of_64_kib(tmp_path):
    import fastloader as fl

    with fl.DatasetWriter(tmp_path / "long.fld", {"n": fl.IntField()}) as writer:
        writer.write_many([[i] for i in range(20_000)])
    data = (tmp_path / "long.fld").read_bytes()
    where = hand.entry(data, hand.METADATA, 0)
    assert (where.row_size, where.block_size, where.size) == (8, 65536, 160_000)
    rows = data[where.offset :][: where.size]
    crcs = [crc32c.crc32c(rows[:65536]), crc32c.crc32c(rows[65536:131072]), crc32c.crc32c(rows[131072:])]
    assert data[where.crcs_offset :][:12] == struct.pack("<3I", *crcs)
    assert where.crc == crc32c.crc32c(struct.pack("<3I", *crcs))


@pytest.mark.parametrize("name", ["tiny", "basic", "pages", "images", "seekable", "compressed"])
def test_sections_are_aligned_ordered_and_do_not_overlap(name):
    data = (hand.VECTORS / f"{name}.fld").read_bytes()
    spans = [(0, 80), (hand.header(data).directory, len(data))]
    for e in hand.directory(data):
        assert e.offset % 64 == 0
        assert e.crcs_offset % 64 == 0
        spans.append((e.offset, e.offset + e.size))
        if e.block_size:
            spans.append((e.crcs_offset, e.crcs_offset + 4 * -(-e.size // e.block_size)))
    spans.sort()
    covered = bytearray(b"\1" * len(data))
    for (begin, end), (after, _) in zip(spans, [*spans[1:], (len(data), 0)], strict=True):
        assert begin <= end <= after <= len(data)
        covered[begin:end] = bytes(end - begin)
    assert not any(byte and hole for byte, hole in zip(data, covered, strict=True)), "what no section covers is zero"


def test_documented_structures_have_the_sizes_of_the_code():
    assert sizes_add_up(rows_under("Header"), 0) == 80 == layout.PREFIX
    assert sizes_add_up(rows_under("Directory"), 0) == 16 == layout.DIRECTORY_HEAD.size
    assert sizes_add_up(rows_under("Directory entry"), 0) == 48 == layout.ENTRY.size
    assert sizes_add_up(rows_under("Extents"), 0) == 32 == layout.EXTENT.itemsize
    assert sizes_add_up(rows_under("Allocation table"), 0) == 16 == layout.PAGE.itemsize
    assert sizes_add_up(rows_under("Node"), 0) == 32 == layout.NODE.size
    assert sizes_add_up(rows_under("AUDIO_COMPRESSED"), 0) == 16 == AudioCompressedField().metadata_type.itemsize


def test_documented_numbers_are_those_of_the_code():
    kinds = {kind: name for kind, name, *_ in rows_under("Kinds")}
    assert kinds.pop(f"{layout.CHECKSUMS_OF} + k") == "CHECKSUMS"
    assert {int(kind): name for kind, name in kinds.items()} == {k.value: k.name for k in layout.Kind}
    types = {int(number): (name, defined) for number, name, defined, *_ in rows_under("Type ids")}
    assert {number: name for number, (name, _) in types.items()} == {t.value: t.name for t in TypeId}
    defined = {number for number, (_, state) in types.items() if state == "defined"}
    assert defined == {number for number in BY_TYPE_ID if number < FIRST_USER_TYPE}
    assert {int(bit): name for bit, name, *_ in rows_under("Header flags")} == {f.value: f.name for f in layout.Flags}


def test_the_worked_example_is_the_golden_file():
    """The dump in the document leaves out lines of zeros, as hexdump does."""
    section = DOCUMENT.split("\n## A worked example\n")[1]
    dump = bytearray(len(TINY))
    for at, row in re.findall(r"^([0-9a-f]{8})  ((?:[0-9a-f]{2} {1,2}){16})", section, re.MULTILINE):
        part = bytes.fromhex(row)
        dump[int(at, 16) : int(at, 16) + len(part)] = part
    assert bytes(dump) == TINY


def test_the_numbers_told_of_the_worked_example_are_those_of_the_file():
    told = {int(at, 16): what for at, what in re.findall(r"^\| ([0-9a-f]{3}) \| (.*) \|$", DOCUMENT, re.MULTILINE)}
    numbers = {at: [int(number, 16) for number in re.findall(r"`0x([0-9a-f]+)`", what)] for at, what in told.items()}
    head, directory = hand.header(TINY), hand.header(TINY).directory
    extent = hand.extents(TINY, 1)[0]
    entries = {directory + 16 + 48 * i: entry for i, entry in enumerate(hand.directory(TINY))}
    expected = {
        0: [head.page_size, head.descriptors, head.directory, head.data, head.allocation, 0x48],
        extents_at(TINY, 1): [extent.pointer, extent.crc],
        directory: [48, hand.u4(TINY, directory + 8)],
    }
    for i, descriptor in enumerate(hand.descriptors(TINY)):
        expected[head.descriptors + 96 * i] = [descriptor.pointer]
    for at, entry in entries.items():
        expected[at] = [entry.offset]
        if entry.kind == hand.PAGES:
            expected[at] = [entry.block_size, entry.offset, entry.crcs_offset]
    assert {at: found for at, found in numbers.items() if found} == expected
    for at, entry in entries.items():
        assert f" {entry.size} byte" in told[at]
        if entry.crcs_offset:
            where = told[entry.offset].rsplit("at ", 1)[1]
            assert int(where, 16) == entry.crcs_offset


def extents_at(data: bytes, field: int) -> int:
    entry = hand.entry(data, hand.EXTENTS, field)
    assert entry is not None
    return entry.offset


def test_large_tables_have_small_blocks_and_few_checksums():
    assert [layout.block_size_of(n) for n in (0, 65536, 65537, 2**27, 2**27 + 1, 10**9)] == [
        65536, 65536, 2048, 4096, 8192, 32768,
    ]  # fmt: skip
    assert [layout.block_size_of(10**9, width) for width in (1, 8, 16, 32, 200)] == [2048, 8192, 16384, 32768, 32768]
    for power in range(17, 34):
        assert 2**power * 32 / layout.block_size_of(2**power) <= 2**20
        assert 2**power * 8 / layout.block_size_of(2**power, 8) <= 2**20
