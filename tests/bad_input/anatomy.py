"""Where everything lies in a valid ``.fld`` file, and how to seal a changed one with right checksums again."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

import numpy as np

from fastloader.fields import BY_TYPE_ID
from fastloader.formats.fld.layout import (
    DESCRIPTOR,
    DIRECTORY_HEAD,
    ENTRY,
    EXTENT,
    HEADER,
    HEADER_CRC,
    HEADER_END,
    MAGIC,
    NO_FIELD,
    PAGE,
    PREFIX,
    Kind,
)
from fastloader.kernels import crc32c

HEADER_NAMES = [
    "major", "minor", "flags", "num_samples", "num_fields", "pad", "page_size", "descriptors", "metadata", "data",
    "allocation",
]  # fmt: skip
HEAD_NAMES = ["count", "width", "crc"]
ENTRY_NAMES = ["kind", "field", "flags", "row_size", "block_size", "offset", "size", "crcs_offset", "crc"]
DESCRIPTOR_NAMES = ["name", "type_id", "flags", "metadata_size", "codec", "level", "pointer", "size"]


@dataclass(frozen=True, slots=True)
class Number:
    """An integer of the file."""

    what: str
    at: int
    width: int

    @property
    def is_checksum(self) -> bool:
        """Whether sealing sets it right again, whatever it was."""
        return self.what.endswith(".crc") or self.what.startswith("checksum")

    def get(self, data: bytes | bytearray) -> int:
        return int.from_bytes(data[self.at : self.at + self.width], "little")

    def put(self, data: bytearray, value: int) -> None:
        """Write it, modulo its width; outside of a shortened file nothing happens."""
        if self.at + self.width <= len(data):
            data[self.at : self.at + self.width] = (value % (1 << 8 * self.width)).to_bytes(self.width, "little")


@dataclass(frozen=True, slots=True)
class Span:
    """A structure of the file: bytes ``begin`` to ``end``."""

    what: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Payload:
    """A stored payload and the row of extents that points at it."""

    field: int
    row: int
    type_id: int
    extent: int
    begin: int
    size: int
    codec: int


def struct_numbers(what: str, layout: struct.Struct, names: list[str], at: int) -> list[Number]:
    """The integers of a struct that begins at ``at``."""
    found, offset, rest = [], 0, iter(names)
    for code in re.findall(r"\d*[a-zA-Z]", layout.format):
        size = struct.calcsize("<" + code)
        if not code.endswith("x"):
            name = next(rest)
            if not code.endswith("s"):
                found.append(Number(f"{what}.{name}", at + offset, size))
        offset += size
    return found


def dtype_numbers(what: str, dtype: np.dtype, at: int) -> list[Number]:
    """The integers of a record that begins at ``at``; what is no integer counts as one all the same."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [
            n for i in range(int(np.prod(shape))) for n in dtype_numbers(f"{what}[{i}]", base, at + i * base.itemsize)
        ]
    if dtype.names is None:
        return [Number(what, at, dtype.itemsize)] if dtype.itemsize <= 8 and dtype.kind != "V" else []
    return [
        n
        for name in dtype.names
        for n in dtype_numbers(f"{what}.{name}", dtype.fields[name][0], at + dtype.fields[name][1])
    ]


class Anatomy:
    """A valid file taken apart."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.numbers = struct_numbers("header", HEADER, HEADER_NAMES, len(MAGIC))
        self.numbers.append(Number("header.crc", HEADER_END, 4))
        self.header = {n.what.removeprefix("header."): n for n in self.numbers}
        self.spans = [Span("magic", 0, len(MAGIC)), Span("header", len(MAGIC), PREFIX)]
        self.rows: dict[str, list[Span]] = {}
        self.payloads: list[Payload] = []
        self.arguments: list[Span] = []
        self.entries: dict[tuple[int, int], dict[str, Number]] = {}
        self.covered = [(0, HEADER_END + 4)]
        self._directory(data)
        self._descriptors(data)
        for (kind, field), entry in self.entries.items():
            if kind not in (Kind.DATA, Kind.DESCRIPTORS):
                self._table(data, Kind(kind), field, entry)

    def number(self, kind: Kind, field: int, name: str) -> Number:
        return self.entries[kind, field][name]

    def _cover(self, begin: int, size: int) -> None:
        if size:
            self.covered.append((begin, begin + size))

    def _directory(self, data: bytes) -> None:
        at = self.header["metadata"].get(data)
        self.numbers += struct_numbers("directory", DIRECTORY_HEAD, HEAD_NAMES, at)
        self.spans.append(Span("directory head", at, at + DIRECTORY_HEAD.size))
        self._cover(at, 12)
        count, width, _ = DIRECTORY_HEAD.unpack_from(data, at)
        for i in range(count):
            begin = at + DIRECTORY_HEAD.size + i * width
            kind, field = ENTRY.unpack_from(data, begin)[:2]
            what = f"entry {Kind(kind).name} {field}"
            numbers = struct_numbers(what, ENTRY, ENTRY_NAMES, begin)
            self.numbers += numbers
            self.entries[kind, field] = {n.what.rpartition(".")[2]: n for n in numbers}
            self.rows.setdefault("directory", []).append(Span(what, begin, begin + width))
            self._cover(begin, width)

    def _descriptors(self, data: bytes) -> None:
        entry = self.entries[Kind.DESCRIPTORS, NO_FIELD]
        at, size = entry["offset"].get(data), entry["size"].get(data)
        self.spans.append(Span("descriptors", at, at + size))
        self._cover(at, size)
        self.metadata_types: list[np.dtype | None] = []
        self.type_ids: list[int] = []
        for i in range(self.header["num_fields"].get(data)):
            begin = at + i * DESCRIPTOR.size
            _, type_id, _, metadata_size, _, _, pointer, length = DESCRIPTOR.unpack_from(data, begin)
            self.numbers += struct_numbers(f"descriptor {i}", DESCRIPTOR, DESCRIPTOR_NAMES, begin)
            self.rows.setdefault("descriptors", []).append(Span(f"descriptor {i}", begin, begin + DESCRIPTOR.size))
            self.spans.append(Span(f"name {i}", begin, begin + 64))
            self.arguments.append(Span(f"arguments {i}", pointer, pointer + length))
            self.spans.append(self.arguments[-1])
            self.type_ids.append(type_id)
            known = BY_TYPE_ID.get(type_id)
            self.metadata_types.append(
                known.from_binary(data[pointer : pointer + length]).metadata_type
                if known
                else np.dtype(f"V{metadata_size}")
            )

    def _table(self, data: bytes, kind: Kind, field: int, entry: dict[str, Number]) -> None:
        offset, size, row_size = (entry[name].get(data) for name in ("offset", "size", "row_size"))
        crcs, block = entry["crcs_offset"].get(data), entry["block_size"].get(data)
        what = f"{kind.name.lower()} {field}"
        length = -(-size // block) * 4
        self.spans += [Span(what, offset, offset + size), Span(f"checksums of {what}", crcs, crcs + length)]
        self._cover(offset, size)
        self._cover(crcs, length)
        self.numbers += [Number(f"checksum of {what}", crcs + i, 4) for i in range(0, length, 4)]
        starts = range(offset, offset + size, row_size)
        rows = [Span(f"{what} row {i}", at, at + row_size) for i, at in enumerate(starts)]
        self.rows[what] = rows
        dtype = {
            Kind.EXTENTS: EXTENT, Kind.PAGES: PAGE, Kind.KEY_OFFSETS: np.dtype("<u8"), Kind.KEY_SLOTS: np.dtype("<u8"),
            Kind.KEY_BYTES: np.dtype("u1"), Kind.VALIDITY: np.dtype("u1"),
        }.get(kind) or self.metadata_types[field]  # fmt: skip
        for row in rows:
            self.numbers += dtype_numbers(row.what, dtype, row.begin)
        if kind is Kind.EXTENTS:
            self._payloads(data, field, rows)

    def _payloads(self, data: bytes, field: int, rows: list[Span]) -> None:
        for i, row in enumerate(rows):
            extent = np.frombuffer(data[row.begin : row.end], EXTENT)[0]
            begin, size = int(extent["pointer"]), int(extent["size"])
            if size:
                self.payloads.append(
                    Payload(field, i, self.type_ids[field], row.begin, begin, size, int(extent["codec"]))
                )
                self.spans.append(Span(f"payload {field} row {i}", begin, begin + size))
                self._cover(begin, size)

    def matters(self, before: bytes, after: bytes) -> bool:
        """Whether a change touches anything a reader relies on; the rest is padding."""
        if len(after) < self.size:
            return True
        return any(before[begin:end] != after[begin:end] for begin, end in self.covered)


def reseal(data: bytearray) -> None:
    """Compute all checksums anew, innermost first, wherever the (changed) pointers lead. What they miss stays."""
    if len(data) < PREFIX:
        return
    size = len(data)
    where = HEADER.unpack_from(data, len(MAGIC))[8]
    if where + DIRECTORY_HEAD.size <= size:
        count, width, _ = DIRECTORY_HEAD.unpack_from(data, where)
        begin = where + DIRECTORY_HEAD.size
        if width >= ENTRY.size and begin + count * width <= size:
            for at in range(begin, begin + count * width, width):
                _seal_payloads(data, at)
            for at in range(begin, begin + count * width, width):
                _seal_table(data, at)
            struct.pack_into(
                "<I", data, where + 8, crc32c(data[begin : begin + count * width], crc32c(data[where : where + 8]))
            )
    HEADER_CRC.pack_into(data, HEADER_END, crc32c(data[:HEADER_END]))


def _seal_payloads(data: bytearray, at: int) -> None:
    kind, _, _, row_size, _, offset, length, _, _ = ENTRY.unpack_from(data, at)
    if kind != Kind.EXTENTS or row_size != EXTENT.itemsize or offset + length > len(data):
        return
    for row in range(offset, offset + length - EXTENT.itemsize + 1, EXTENT.itemsize):
        pointer, stored = struct.unpack_from("<QQ", data, row)
        if pointer + stored <= len(data):
            struct.pack_into("<I", data, row + 24, crc32c(data[pointer : pointer + stored]))


def _seal_table(data: bytearray, at: int) -> None:
    kind, _, _, _, block, offset, length, crcs, _ = ENTRY.unpack_from(data, at)
    if kind == Kind.DATA or offset + length > len(data):
        return
    if kind == Kind.DESCRIPTORS:
        struct.pack_into("<I", data, at + 40, crc32c(data[offset : offset + length]))
    elif block and crcs + -(-length // block) * 4 <= len(data):
        sums = [crc32c(data[i : min(i + block, offset + length)]) for i in range(offset, offset + length, block)]
        packed = struct.pack(f"<{len(sums)}I", *sums)
        data[crcs : crcs + len(packed)] = packed
        struct.pack_into("<I", data, at + 40, crc32c(packed))
