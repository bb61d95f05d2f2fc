"""Mutants of the small datasets, numbered: the same seed and number always give the same bytes.

Half are systematic (every integer of every structure takes every interesting value, in an order the seed shuffles),
half are drawn. A *raw* mutant keeps its checksums as they were; a *resealed* one has all of them right, so that only
the code behind the checksums can refuse it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from fastloader.formats.fld import MANIFEST
from fastloader.formats.fld.layout import DIRECTORY_HEAD, EXTENT, HEADER, MAGIC, NO_FIELD, Kind
from fastloader.kernels import crc32c, decompress
from .anatomy import Anatomy, Number, Payload, reseal
from .datasets import Base
from .internals import HOSTILE_JSON, HOSTILE_VALUES, change_arguments, change_frame, change_payload

ROWS_A_TABLE = 3
"""Rows of a table whose integers are gone through: the first ones and the last."""


@dataclass(frozen=True)
class Mutant:
    """The files to read, what was done to them, and whose values may come back."""

    number: int
    what: str
    base: Base
    files: dict[str, bytes]
    sealed: bool
    origins: tuple[Base, ...]

    @property
    def matters(self) -> bool:
        """For a raw mutant: whether anything a reader relies on has changed, whichever origin it is held against."""
        return all(_differs(self.files, origin) for origin in self.origins)

    @property
    def unreadable(self) -> frozenset[str]:
        """Fields that no reader here knows."""
        return frozenset().union(*(origin.unreadable for origin in self.origins))


def _differs(files: dict[str, bytes], base: Base) -> bool:
    if files.keys() != base.files.keys():
        return True
    for name, data in files.items():
        before, anatomy = base.files[name], base.anatomies.get(name)
        if data == before:
            continue
        if anatomy is None:
            return _json(data) != _json(before)
        if (base.is_folder and len(data) != len(before)) or anatomy.matters(before, data):
            return True
    return False


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


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
            struct.pack_into("<Q", section, 96 * i + 80, span.begin - old + begin)
        struct.pack_into("<QQ", section, 96 * field + 80, begin + len(section), len(arguments))
        self.data += section + arguments
        offset.put(self.data, begin)
        size.put(self.data, len(section) + len(arguments))
        self.anatomy.header["descriptors"].put(self.data, begin)

    def raw_payload(self, payload: Payload) -> bytes:
        stored = self.before[payload.begin : payload.begin + payload.size]
        if not payload.codec:
            return stored
        out = bytearray(struct.unpack_from("<Q", self.before, payload.extent + 16)[0])
        decompress(stored, payload.codec, out)
        return bytes(out)


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
    type_id = rng.choice([1, 2, 3, 4, 5, 10, 11, 12, 20, 999, 1000, 640_001])
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


class Mutants:
    """All mutants of some datasets, by number."""

    def __init__(self, bases: dict[str, Base], seed: int) -> None:
        self.bases = list(bases.values())
        self.seed = seed
        self.systematic = [
            (base, name, number, value, sealed)
            for base in self.bases
            for name, anatomy in list(base.anatomies.items())[:1]
            for number in _few_rows(anatomy)
            for i, value in enumerate(interesting(number, base.files[name]))
            for sealed in (True, False)
            if (i == 0 or sealed) and not (sealed and number.is_checksum)
        ]
        Random(f"order {seed}").shuffle(self.systematic)

    def __getitem__(self, number: int) -> Mutant:
        rng = Random(f"mutant {self.seed} {number}")
        if number % 2 == 0:
            base, name, place, value, sealed = self.systematic[number // 2 % len(self.systematic)]
            edit = Edit(base, name)
            place.put(edit.data, value)
            return self._finish(number, f"{place.what} = {value}", edit, sealed, rng)
        base = rng.choice(self.bases)
        sealed = rng.random() < 0.65
        what = rng.random()
        if base.is_folder and what < 0.5:
            return _manifest_mutant(number, base, sealed, rng)
        if what > 0.94:
            return self._splice(number, base, sealed, rng)
        edit = Edit(base, rng.choice(list(base.anatomies)))
        operations = ANY + SEALED_ONLY if sealed else ANY
        said = [rng.choice(operations)(edit, rng)]
        if rng.random() < 0.15:
            said.append(rng.choice([set_numbers, flip_anywhere_still_there])(edit, rng))
        return self._finish(number, "; ".join(said), edit, sealed, rng)

    def _splice(self, number: int, base: Base, sealed: bool, rng: Random) -> Mutant:
        other = rng.choice([b for b in self.bases if b.is_folder == base.is_folder])
        edit = Edit(base, rng.choice(list(base.anatomies)))
        donor = other.files[rng.choice(list(other.anatomies))]
        spans = edit.anatomy.spans
        at = rng.choice([rng.choice(spans).begin, rng.choice(spans).end, rng.randrange(len(edit.data))])
        edit.data[at:] = donor[rng.choice([at, at, rng.randrange(len(donor))]) :]
        return self._finish(number, f"from byte {at} on, {other.name}", edit, sealed, rng, (base, other))

    def _finish(
        self, number: int, what: str, edit: Edit, sealed: bool, rng: Random, origins: tuple[Base, ...] = ()
    ) -> Mutant:
        if sealed:
            reseal(edit.data)
        files = {**edit.base.files, edit.name: bytes(edit.data)}
        if sealed and edit.base.is_folder and rng.random() < 0.9:
            files[MANIFEST] = _renew_manifest(files[MANIFEST], edit.name, edit.data)
        where = f"{edit.base.name}{':' if edit.name else ''}{edit.name}"
        kind = "resealed" if sealed else "raw"
        return Mutant(number, f"{kind} {where}: {what}", edit.base, files, sealed, origins or (edit.base,))


def flip_anywhere_still_there(edit: Edit, rng: Random) -> str:
    return flip_anywhere(edit, rng) if edit.data else "nothing left"


def _few_rows(anatomy: Anatomy) -> list[Number]:
    """The integers of header, directory and descriptors, and those of some rows of each table."""
    rows = {row.what for group in anatomy.rows.values() for row in group}
    kept = {row.what for group in anatomy.rows.values() for row in [*group[: ROWS_A_TABLE - 1], *group[-1:]]}
    fixed = {row.what for name in ("directory", "descriptors") for row in anatomy.rows[name]}
    return [
        n
        for n in anatomy.numbers
        if (owner := n.what.partition(".")[0].partition("[")[0]) not in rows - fixed or owner in kept
    ]


def _renew_manifest(manifest: bytes, name: str, shard: bytearray) -> bytes:
    """Let the manifest mean the changed shard, as if it had been written so."""
    content = json.loads(manifest)
    identity, samples = 0, None
    if len(shard) >= len(MAGIC) + HEADER.size:
        fields = HEADER.unpack_from(shard, len(MAGIC))
        samples = fields[3]
        if fields[8] + DIRECTORY_HEAD.size <= len(shard):
            identity = DIRECTORY_HEAD.unpack_from(shard, fields[8])[2]
    for row in content["shards"]:
        if row[0] == name:
            row[2:] = [len(shard), identity]
            row[1] = row[1] if samples is None or samples >= 1 << 63 else samples
    content["num_samples"] = sum(row[1] for row in content["shards"])
    return _seal_manifest(content)


def _seal_manifest(content: Any) -> bytes:
    if isinstance(content, dict):
        content.pop("crc32c", None)
        content["crc32c"] = crc32c(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    return json.dumps(content).encode()


def _manifest_mutant(number: int, base: Base, sealed: bool, rng: Random) -> Mutant:
    files = dict(base.files)
    data = bytearray(files[MANIFEST])
    kind = "resealed" if sealed else "raw"
    if not sealed:
        what = rng.randrange(6)
        at = rng.randrange(len(data))
        if what == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            data[at] = rng.choice(b'0123456789eE.-+",[]{} \n\x00\xff')
        elif what == 2:
            del data[at : at + rng.choice([1, 2, len(data)])]
        elif what == 3:
            data[at:at] = rng.choice([b"0", b" ", b",", b"[]", b'"', b"null", b"9" * 5000, b"\xff"])
        elif what == 4:
            data = bytearray(rng.choice(HOSTILE_JSON))
        else:
            del files[rng.choice(list(files))]
            return Mutant(number, f"raw {base.name}: a file removed", base, files, True, (base,))
        files[MANIFEST] = bytes(data)
        return Mutant(number, f"raw {base.name}: {MANIFEST} changed", base, files, False, (base,))
    content = json.loads(data)
    shards = content["shards"]
    what = rng.randrange(6)
    if what == 0:
        content[rng.choice(list(content))] = rng.choice(HOSTILE_VALUES)
    elif what == 1:
        row = rng.choice(shards)
        paths = [
            "",
            ".",
            "..",
            "/",
            "/dev/null",
            "/dev/zero",
            "a\0b",
            "x" * 5000,
            "\ud800",
            shards[0][0],
            MANIFEST,
            "../",
            7,
        ]
        place = rng.randrange(4)
        row[place] = (
            rng.choice(paths) if place == 0 else rng.choice([0, 1, 2**31, 2**62, 2**63 - 1, 2**63, -1, row[place] + 1])
        )
    elif what == 2:
        shards[rng.randrange(len(shards))] = rng.choice([*HOSTILE_VALUES, shards[0], shards[0][:3]])
    elif what == 3:
        rng.shuffle(shards)
    elif what == 4:
        content["shards"] = rng.choice([shards * 2, shards[1:], shards[:1], shards[::-1], []])
    else:
        one, other = rng.sample(sorted(base.anatomies), 2)
        files[one] = files[other]
    if rng.random() < 0.7 and what != 0:
        content["num_samples"] = sum(
            r[1] for r in content["shards"] if isinstance(r, list) and len(r) > 1 and isinstance(r[1], int)
        )
    files[MANIFEST] = _seal_manifest(content)
    return Mutant(number, f"{kind} {base.name}: {MANIFEST} {what}", base, files, True, (base,))


assert EXTENT.itemsize == 32
