"""A second reader of the format, written from docs/reference/format.md alone: plain ``struct``, other people's CRC32C
and XXH64, no mapping, no laziness. It shares nothing with the package, so that the two can be compared.
"""

from __future__ import annotations

import json
import math
import runpy
import struct
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import lz4.block
import numpy as np
import xxhash
import zstandard

ROOT = Path(__file__).parents[3]
VECTORS = ROOT / "tests" / "vectors"
DOCUMENT = ROOT / "docs" / "reference" / "format.md"

DATA, DESCRIPTORS, EXTENTS, METADATA, VALIDITY, PAGES, KEY_OFFSETS, KEY_BYTES, KEY_SLOTS = range(1, 10)
NO_FIELD = 0xFFFF


def vectors() -> dict[str, Any]:
    """What tests/vectors/make.py defines."""
    return runpy.run_path(str(VECTORS / "make.py"))


def expected(name: str) -> list[dict[str, Any]]:
    """The values a vector holds, as JSON."""
    return json.loads((VECTORS / "expected.json").read_text(encoding="utf-8"))[name]


def u2(data: bytes, at: int) -> int:
    return struct.unpack_from("<H", data, at)[0]


def u4(data: bytes, at: int) -> int:
    return struct.unpack_from("<I", data, at)[0]


def u8(data: bytes, at: int) -> int:
    return struct.unpack_from("<Q", data, at)[0]


class Header(NamedTuple):
    major: int
    minor: int
    flags: int
    num_samples: int
    num_fields: int
    pad: int
    page_size: int
    descriptors: int
    directory: int
    data: int
    allocation: int
    reserved: bytes
    crc: int


class Entry(NamedTuple):
    kind: int
    field: int
    flags: int
    row_size: int
    block_size: int
    offset: int
    size: int
    crcs_offset: int
    crc: int


class Descriptor(NamedTuple):
    name: str
    type_id: int
    flags: int
    metadata_size: int
    codec: int
    level: int
    pointer: int
    size: int
    arguments: Any


class Extent(NamedTuple):
    pointer: int
    size: int
    raw_size: int
    crc: int
    codec: int


def header(data: bytes) -> Header:
    assert data[:8] == b"\x89FLD\r\n\x1a\n"
    found = Header(
        u2(data, 8), u2(data, 10), u4(data, 12), u8(data, 16), u2(data, 24), u2(data, 26), u4(data, 28), u8(data, 32),
        u8(data, 40), u8(data, 48), u8(data, 56), data[64:72], u4(data, 72),
    )  # fmt: skip
    assert found.crc == crc32c.crc32c(data[:72])
    return found


def directory(data: bytes) -> list[Entry]:
    at = header(data).directory
    count, width, crc = u4(data, at), u4(data, at + 4), u4(data, at + 8)
    assert crc == crc32c.crc32c(data[at : at + 8] + data[at + 16 : at + 16 + count * width])
    entries = []
    for row in range(at + 16, at + 16 + count * width, width):
        entries.append(
            Entry(
                u2(data, row), u2(data, row + 2), u4(data, row + 4), u4(data, row + 8), u4(data, row + 12),
                u8(data, row + 16), u8(data, row + 24), u8(data, row + 32), u4(data, row + 40),
            )
        )  # fmt: skip
    return entries


def entry(data: bytes, kind: int, field: int = NO_FIELD) -> Entry | None:
    found = [e for e in directory(data) if (e.kind, e.field) == (kind, field)]
    assert len(found) < 2
    return found[0] if found else None


def table(data: bytes, kind: int, field: int = NO_FIELD) -> list[bytes] | None:
    """The rows of a table, after checking its checksums and every block."""
    where = entry(data, kind, field)
    if where is None:
        return None
    content = data[where.offset : where.offset + where.size]
    blocks = math.ceil(where.size / where.block_size)
    crcs = data[where.crcs_offset : where.crcs_offset + 4 * blocks]
    assert where.crc == crc32c.crc32c(crcs)
    for i in range(blocks):
        assert u4(crcs, 4 * i) == crc32c.crc32c(content[i * where.block_size : (i + 1) * where.block_size])
    assert where.size % where.row_size == 0
    return [content[at : at + where.row_size] for at in range(0, where.size, where.row_size)]


def descriptors(data: bytes) -> list[Descriptor]:
    head = header(data)
    where = entry(data, DESCRIPTORS)
    assert where is not None
    assert where.offset == head.descriptors
    assert where.crc == crc32c.crc32c(data[where.offset : where.offset + where.size])
    found = []
    for at in range(where.offset, where.offset + 96 * head.num_fields, 96):
        pointer, size = u8(data, at + 80), u8(data, at + 88)
        level = struct.unpack_from("<h", data, at + 78)[0]
        found.append(
            Descriptor(
                data[at : at + 64].rstrip(b"\0").decode(), u4(data, at + 64), u4(data, at + 68), u4(data, at + 72),
                u2(data, at + 76), level, pointer, size, json.loads(data[pointer : pointer + size]),
            )
        )  # fmt: skip
    return found


def extents(data: bytes, field: int) -> list[Extent]:
    rows = table(data, EXTENTS, field)
    assert rows is not None
    assert all(row[29:] == b"\0\0\0" for row in rows)
    return [Extent(u8(row, 0), u8(row, 8), u8(row, 16), u4(row, 24), row[28]) for row in rows]


def is_missing(data: bytes, field: int, sample: int) -> bool:
    rows = table(data, VALIDITY, field)
    return rows is not None and not rows[sample // 8][0] >> (sample % 8) & 1


def payload(data: bytes, field: int, sample: int) -> bytes:
    extent = extents(data, field)[sample]
    section = entry(data, DATA)
    assert section is not None
    assert section.offset <= extent.pointer <= extent.pointer + extent.size <= section.offset + section.size
    stored = data[extent.pointer : extent.pointer + extent.size]
    assert extent.crc == crc32c.crc32c(stored)
    if extent.codec == 0:
        raw = stored
    elif extent.codec == 1:
        raw = lz4.block.decompress(stored, uncompressed_size=extent.raw_size)
    else:
        assert extent.codec == 2
        assert zstandard.frame_content_size(stored) == extent.raw_size
        raw = zstandard.ZstdDecompressor().decompress(stored)
    assert len(raw) == extent.raw_size
    return raw


def pages(data: bytes) -> list[tuple[int, int]]:
    rows = table(data, PAGES)
    assert rows is not None
    return [(u8(row, 0), u8(row, 8)) for row in rows]


def key(data: bytes, sample: int) -> bytes:
    offsets, text = table(data, KEY_OFFSETS), table(data, KEY_BYTES)
    assert offsets is not None
    assert text is not None
    return b"".join(text[u8(offsets[sample], 0) : u8(offsets[sample + 1], 0)])


def find(data: bytes, wanted: bytes) -> int | None:
    rows = table(data, KEY_SLOTS)
    assert rows is not None
    homes, slots = u8(rows[0], 0), [u8(row, 0) for row in rows[1:]]
    digest = xxhash.xxh64_intdigest(wanted)
    for slot in slots[digest * homes >> 64 :]:
        if slot == 0:
            return None
        if slot >> 48 == digest & 0xFFFF and key(data, (slot & (1 << 48) - 1) - 1) == wanted:
            return (slot & (1 << 48) - 1) - 1
    return None


def dtype_of(descr: Any) -> np.dtype[Any]:
    def part(item: list[Any]) -> tuple[Any, ...]:
        return (item[0], item[1], *(tuple(shape) for shape in item[2:]))

    return np.dtype([part(item) for item in descr] if isinstance(descr, list) else descr)


def shape_of(shape: list[int | None] | None, row: bytes) -> tuple[int, ...]:
    """An NDARRAY's shape from its arguments and its metadata row, in all three variants."""
    if shape is None:
        assert len(row) == 72
        return struct.unpack_from("<8Q", row, 8)[: u8(row, 0)]
    assert len(row) == 8 * shape.count(None)
    varying = iter(struct.unpack(f"<{len(row) // 8}Q", row))
    return tuple(next(varying) if size is None else size for size in shape)


def value(data: bytes, field: int, sample: int) -> Any:
    """A sample's value; for JPEG, PNG and WebP, masks too, the shape of its metadata row and the encoded bytes."""
    described = descriptors(data)[field]
    if is_missing(data, field, sample):
        return None
    rows = table(data, METADATA, field)
    row = b"" if rows is None else rows[sample]
    assert len(row) == described.metadata_size
    if described.type_id == 1:
        return struct.unpack("<q", row)[0]
    if described.type_id == 2:
        return struct.unpack("<d", row)[0]
    raw = payload(data, field, sample)
    arguments = described.arguments
    if described.type_id == 3:
        return raw
    if described.type_id == 4:
        return np.frombuffer(raw, dtype_of(arguments["dtype"])).reshape(shape_of(arguments["shape"], row))
    if described.type_id == 5:
        return json.loads(raw.decode())
    if described.type_id == 10:
        shape = tuple(arguments[name] for name in ("height", "width", "channels"))
        return np.frombuffer(raw, np.dtype(arguments["dtype"]).newbyteorder("<")).reshape(shape)
    if described.type_id == 53 and arguments["encoding"] == "runs":
        return runs(struct.unpack("<4I", row), raw)
    assert described.type_id in (11, 12, 13, 53)
    if arguments.get("seekable"):
        raw = raw[: -struct.unpack("<I", raw[-8:-4])[0]]
    return struct.unpack("<4I", row), raw


def runs(shape: tuple[int, ...], raw: bytes) -> Any:
    """The labels of a mask."""
    magic, height, width = struct.unpack("<4s2I", raw[:12])
    assert magic == b"FLMR"
    assert shape == (height, width, 1, 8)
    labels, at = bytearray(), 12
    while at < len(raw):
        label, less, shift, more = raw[at], 0, 0, True
        at += 1
        while more:
            less |= (raw[at] & 127) << shift
            shift, more, at = shift + 7, raw[at] > 127, at + 1
        assert less < 65536
        labels += bytes([label]) * (less + 1)
    return np.frombuffer(labels, np.uint8).reshape(height, width)


def reseal(data: bytes | bytearray) -> bytes:
    """The file with directory and header checksums computed again after a change."""
    changed = bytearray(data)
    at = u8(changed, 40)
    size = u4(changed, at) * u4(changed, at + 4)
    struct.pack_into(
        "<I", changed, at + 8, crc32c.crc32c(bytes(changed[at : at + 8] + changed[at + 16 : at + 16 + size]))
    )
    struct.pack_into("<I", changed, 72, crc32c.crc32c(bytes(changed[:72])))
    return bytes(changed)


def reseal_all(data: bytes | bytearray) -> bytes:
    """The file with the checksums of descriptors, tables, directory and header computed again after a change."""
    changed = bytearray(data)
    at = u8(changed, 40)
    for row in range(at + 16, at + 16 + u4(changed, at) * u4(changed, at + 4), u4(changed, at + 4)):
        kind, block = u2(changed, row), u4(changed, row + 12)
        offset, size, crcs = (u8(changed, row + place) for place in (16, 24, 32))
        if kind == DESCRIPTORS:
            struct.pack_into("<I", changed, row + 40, crc32c.crc32c(bytes(changed[offset : offset + size])))
        elif kind != DATA:
            blocks = [bytes(changed[i : min(i + block, offset + size)]) for i in range(offset, offset + size, block)]
            sums = struct.pack(f"<{len(blocks)}I", *map(crc32c.crc32c, blocks))
            changed[crcs : crcs + len(sums)] = sums
            struct.pack_into("<I", changed, row + 40, crc32c.crc32c(sums))
    return reseal(changed)
