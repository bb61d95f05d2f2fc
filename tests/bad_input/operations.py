"""Ways to change a file that know its structure. Each takes an edit under way and says what it did."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from fastloader.fields import BY_TYPE_ID
from fastloader.formats.fld.layout import DESCRIPTOR, NO_FIELD, Kind
from fastloader.kernels import ZSTD_DICTIONARY, Dictionary, decompress

from .anatomy import Anatomy, Number, Payload
from .datasets import Base
from .internals import change_arguments, change_frame, change_payload

BORDERS = [0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]
MORE_BORDERS = [4, 255, 4095, 2**16 - 1, 2**31 - 1, 2**48, 2**62, 2**63 - 1, 2**64 - 32]


def interesting(number: Number, data: bytes, *, more: bool = False) -> list[int]:
    """Values for an integer: borders of widths, of the file, of itself."""
    own, size = number.get(data), len(data)
    values = [*BORDERS, size, size - 1, size + 1, own + 1, own - 1]
    if more:
        values += [*MORE_BORDERS, own * 2, own ^ 1 << (8 * number.width - 1)]
    seen: dict[int, None] = {}
    for value in values:
        seen.setdefault(value % (1 << 8 * number.width))
    seen.pop(own, None)
    return list(seen)


class Edit:
    """A file being changed. Offsets of the untouched file stay right until bytes are inserted or removed."""

    def __init__(self, base: Base, name: str) -> None:
        self.base = base
        self.name = name
        self.anatomy: Anatomy = base.anatomies[name]
        self.before = base.files[name]
        self.data = bytearray(self.before)

    def replace_payload(self, payload: Payload, stored: bytes, raw_size: int, codec: int) -> None:
        """Point an extent at other bytes, put at the end of the file, and stretch the data to hold them."""
        begin = len(self.data)
        self.data += stored
        struct.pack_into("<QQQIB", self.data, payload.extent, begin, len(stored), raw_size, 0, codec)
        size = len(self.data) - self.anatomy.header["data"].get(self.before)
        self.anatomy.number(Kind.DATA, NO_FIELD, "size").put(self.data, size)

    def replace_arguments(self, field: int, arguments: bytes) -> None:
        """Write the descriptors again at the end of the file, with other arguments for one field."""
        offset, size = (self.anatomy.number(Kind.DESCRIPTORS, NO_FIELD, name) for name in ("offset", "size"))
        begin, old = len(self.data), offset.get(self.before)
        section = bytearray(self.before[old : old + size.get(self.before)])
        for i, span in enumerate(self.anatomy.arguments):
            struct.pack_into("<Q", section, DESCRIPTOR.size * i + 80, span.begin - old + begin)
        struct.pack_into("<QQ", section, DESCRIPTOR.size * field + 80, begin + len(section), len(arguments))
        self.data += section + arguments
        offset.put(self.data, begin)
        size.put(self.data, len(section) + len(arguments))
        self.anatomy.header["descriptors"].put(self.data, begin)

    def raw_payload(self, payload: Payload) -> bytes:
        stored = self.before[payload.begin : payload.begin + payload.size]
        if not payload.codec:
            return stored
        out = bytearray(struct.unpack_from("<Q", self.before, payload.extent + 16)[0])
        decompress(stored, payload.codec, out, self._dictionary(payload))
        return bytes(out)

    def _dictionary(self, payload: Payload) -> Dictionary | None:
        if payload.codec != ZSTD_DICTIONARY:
            return None
        begin, size = (
            self.anatomy.number(Kind.DICTIONARY, payload.field, name).get(self.before) for name in ("offset", "size")
        )
        return Dictionary(self.before[begin : begin + size])


def flip_bits(edit: Edit, rng: Random) -> str:
    span = rng.choice([s for s in edit.anatomy.spans if s.end > s.begin])
    for _ in range(rng.choice([1, 1, 2, 8])):
        edit.data[rng.randrange(span.begin, span.end)] ^= 1 << rng.randrange(8)
    return f"bits flipped in {span.what}"


def set_bytes(edit: Edit, rng: Random) -> str:
    span = rng.choice([s for s in edit.anatomy.spans if s.end > s.begin])
    for _ in range(rng.choice([1, 2, 4])):
        edit.data[rng.randrange(span.begin, span.end)] = rng.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)])
    return f"bytes set in {span.what}"


def flip_anywhere(edit: Edit, rng: Random) -> str:
    at = rng.randrange(len(edit.data))
    edit.data[at] ^= 1 << rng.randrange(8)
    return f"bit flipped at {at}"


def set_numbers(edit: Edit, rng: Random) -> str:
    said = []
    for number in rng.sample(edit.anatomy.numbers, rng.choice([1, 2, 2, 3])):
        value = rng.choice([*interesting(number, edit.before, more=True), rng.getrandbits(8 * number.width)])
        number.put(edit.data, value)
        said.append(f"{number.what} = {value}")
    return ", ".join(said)


def swap_numbers(edit: Edit, rng: Random) -> str:
    one = rng.choice(edit.anatomy.numbers)
    other = rng.choice([n for n in edit.anatomy.numbers if n.width == one.width])
    a, b = one.get(edit.data), other.get(edit.data)
    one.put(edit.data, b)
    if rng.random() < 0.7:
        other.put(edit.data, a)
    return f"{one.what} and {other.what} swapped"


def swap_rows(edit: Edit, rng: Random) -> str:
    group = rng.choice([g for g in edit.anatomy.rows.values() if len(g) > 1])
    one, other = rng.sample(group, 2)
    a, b = bytes(edit.data[one.begin : one.end]), bytes(edit.data[other.begin : other.end])
    edit.data[one.begin : one.end] = b
    if rng.random() < 0.6:
        edit.data[other.begin : other.end] = a
    return f"{one.what} and {other.what} swapped"


def overlap_extents(edit: Edit, rng: Random) -> str:
    if not edit.anatomy.payloads:
        return set_numbers(edit, rng)
    one, other = rng.choice(edit.anatomy.payloads), rng.choice(edit.anatomy.payloads)
    begin = other.begin + rng.randint(-3, other.size)
    size = rng.choice([one.size, other.size, rng.randrange(200), len(edit.data) - begin])
    raw = rng.choice([size, size, one.size, rng.randrange(1 << 20), 2**63])
    struct.pack_into("<QQQ", edit.data, one.extent, max(begin, 0), max(size, 0), max(raw, 0))
    return f"extent of {one.field}/{one.row} laid over {other.field}/{other.row}"


def move_table(edit: Edit, rng: Random) -> str:
    entry = rng.choice(list(edit.anatomy.entries.values()))
    target = rng.choice(edit.anatomy.spans)
    entry["offset"].put(edit.data, target.begin + rng.choice([0, 0, 1, -1, 3]))
    if rng.random() < 0.5:
        entry["size"].put(edit.data, target.end - target.begin)
    if rng.random() < 0.2:
        entry["crcs_offset"].put(edit.data, rng.choice(edit.anatomy.spans).begin)
    return f"{entry['offset'].what} moved onto {target.what}"


def truncate(edit: Edit, rng: Random) -> str:
    spans = edit.anatomy.spans
    at = rng.choice([rng.choice(spans).begin, rng.choice(spans).end, rng.randrange(len(edit.data))]) + rng.choice(
        [0, 0, 1, -1]
    )
    at = min(max(at, 0), len(edit.data) - 1)
    del edit.data[at:]
    return f"cut at {at}"


def extend(edit: Edit, rng: Random) -> str:
    edit.data += rng.randbytes(rng.choice([1, 7, 4096])) if rng.random() < 0.6 else edit.before
    return "junk at the end"


def zero_range(edit: Edit, rng: Random) -> str:
    span = rng.choice(edit.anatomy.spans)
    begin, end = span.begin, span.end
    if rng.random() < 0.5:
        begin = rng.randrange(len(edit.data))
        end = min(len(edit.data), begin + rng.choice([1, 16, 512, 4096]))
    edit.data[begin:end] = bytes(end - begin)
    return f"bytes {begin} to {end} zeroed"


def copy_range(edit: Edit, rng: Random) -> str:
    source, target = rng.choice(edit.anatomy.spans), rng.choice(edit.anatomy.spans)
    piece = edit.before[source.begin : source.end]
    if rng.random() < 0.5:
        edit.data[target.begin : target.begin] = piece
        return f"{source.what} inserted before {target.what}"
    edit.data[target.begin : min(target.begin + len(piece), len(edit.data))] = piece[: len(edit.data) - target.begin]
    return f"{source.what} copied over {target.what}"


def drop_range(edit: Edit, rng: Random) -> str:
    span = rng.choice(edit.anatomy.spans)
    del edit.data[span.begin : span.end]
    return f"{span.what} removed"


def change_a_payload(edit: Edit, rng: Random) -> str:
    if not edit.anatomy.payloads:
        return set_numbers(edit, rng)
    payload = rng.choice(edit.anatomy.payloads)
    raw = edit.raw_payload(payload)
    if payload.codec and rng.random() < 0.5:
        stored = change_frame(rng, edit.before[payload.begin : payload.begin + payload.size], payload.codec, raw)
        size = rng.choice([len(raw), len(raw), 0, 10**6, len(stored) * 255, 2**31, 2**40, 2**63])
        codec = rng.choice([payload.codec] * 6 + [0, 1, 2, 3, 255])
        edit.replace_payload(payload, stored, size, codec)
        return f"frame of {payload.field}/{payload.row} changed"
    stored = change_payload(rng, payload.type_id, raw)
    edit.replace_payload(payload, stored, len(stored), 0)
    return f"payload of {payload.field}/{payload.row} changed"


def change_an_argument(edit: Edit, rng: Random) -> str:
    field = rng.randrange(len(edit.anatomy.arguments))
    span = edit.anatomy.arguments[field]
    edit.replace_arguments(field, change_arguments(rng, edit.before[span.begin : span.end]))
    return f"arguments of field {field} changed"


def change_field_type(edit: Edit, rng: Random) -> str:
    """One type's tables and arguments under another's id."""
    numbers = {n.what: n for n in edit.anatomy.numbers if n.what.startswith("descriptor ")}
    field, other = (rng.randrange(len(edit.anatomy.arguments)) for _ in range(2))
    type_id = rng.choice([*BY_TYPE_ID, 999, 1000])
    numbers[f"descriptor {field}.type_id"].put(edit.data, type_id)
    if rng.random() < 0.5:
        span = edit.anatomy.arguments[other]
        edit.replace_arguments(field, edit.before[span.begin : span.end])
    return f"field {field} as type {type_id}"


Operation = Callable[[Edit, Random], str]
ANY: list[Operation] = [
    flip_bits, flip_bits, set_bytes, flip_anywhere, set_numbers, swap_numbers, swap_rows, overlap_extents, move_table,
    truncate, extend, zero_range, copy_range, drop_range,
]  # fmt: skip
SEALED_ONLY: list[Operation] = [change_a_payload] * 6 + [change_an_argument] * 3 + [change_field_type]
