"""JPEG files made bit by bit from random coefficients, with any sampling factors and tables, and where each MCU lies.

No picture is behind them: what counts is that every decoder gives the same pixels for the same coefficients.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random

FACTORS = {
    "gray": ((1, 1),), "gray 2x2": ((2, 2),),
    "4:4:4": ((1, 1), (1, 1), (1, 1)), "4:2:2": ((2, 1), (1, 1), (1, 1)), "4:2:0": ((2, 2), (1, 1), (1, 1)),
    "4:4:0": ((1, 2), (1, 1), (1, 1)), "4:1:1": ((4, 1), (1, 1), (1, 1)), "4:1:0": ((4, 2), (1, 1), (1, 1)),
    "mixed": ((2, 2), (2, 1), (1, 2)), "all 2x2": ((2, 1), (2, 1), (2, 1)), "fine chroma": ((1, 1), (2, 2), (1, 1)),
}  # fmt: skip
"""Horizontal and vertical sampling factors of each component."""


class Table:
    """A Huffman table: symbols with the lengths of their codes, which follow from that."""

    def __init__(self, lengths: dict[int, int]) -> None:
        self.order = sorted(lengths, key=lambda symbol: (lengths[symbol], symbol))
        self.counts = bytes(sum(length == bits for length in lengths.values()) for bits in range(1, 17))
        self.codes: dict[int, str] = {}
        code = before = 0
        for symbol in self.order:
            code <<= lengths[symbol] - before
            before = lengths[symbol]
            self.codes[symbol] = f"{code:0{before}b}"
            code += 1

    def segment(self, number: int) -> bytes:
        return segment(0xC4, bytes([number]) + self.counts + bytes(self.order))


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def ac_table() -> Table:
    """Every run and size, with codes from 2 bits to 13."""
    lengths = {0x00: 2, 0x01: 3, 0x02: 4, 0x11: 5, 0xF0: 11}
    return Table(lengths | {run << 4 | size: 10 + size % 4 for run in range(16) for size in range(1, 11)
                            if run << 4 | size not in lengths})  # fmt: skip


def number_bits(value: int) -> tuple[int, str]:
    """Category and bits of a coefficient."""
    size = abs(value).bit_length()
    return size, f"{value if value > 0 else value + (1 << size) - 1:0{size}b}" if size else ""


@dataclass
class Drawn:
    """A file; for each MCU of each row the place of its first bit (8 * byte + bit), and the predictors there."""

    data: bytes
    width: int
    height: int
    places: list[list[int]]
    predictors: list[list[tuple[int, ...]]]
    end: int


def _block(rng: Random, density: float) -> list[tuple[int, int]]:
    """Run and value of each AC coefficient that is not zero."""
    found, zeros = [], 0
    for _ in range(63):
        if rng.random() < density:
            value = rng.choice([1, 1, -1, 2, -3, 7, rng.randint(-40, 40) or 5])
            found.append((zeros, value))
            zeros = 0
        else:
            zeros += 1
    return found


def draw(
    seed: int,
    width: int,
    height: int,
    factors: tuple[tuple[int, int], ...] = FACTORS["4:2:0"],
    *,
    fitted: bool = False,
    separate: bool = False,
    dc: Table | None = None,
    steps: tuple[int, ...] = tuple(range(-60, 61)),
    marker: int = 0xC0,
    extra: bytes = b"",
) -> Drawn:
    """A JPEG of this size.

    ``fitted``: the DC tables have only the categories that occur. ``separate``: a scan a component. ``dc`` is
    the table of all of them, else it has codes of 4 bits; ``steps`` are the DC differences to draw from. ``extra`` is
    put behind the first marker.
    """
    rng = Random(seed)
    density = rng.choice([0.0, 0.05, 0.2, 0.6])
    whole = ((1, 1),) if len(factors) == 1 else factors  # one component has MCUs of one block
    max_h, max_v = (max(f[axis] for f in whole) for axis in (0, 1))
    columns, rows = -(-width // (8 * max_h)), -(-height // (8 * max_v))
    ac = ac_table()
    mcus = [(r, c) for r in range(rows) for c in range(columns)]
    differences = {
        (r, c, i, b): rng.choice(steps) for r, c in mcus for i, (h, v) in enumerate(whole) for b in range(h * v)
    }
    used = {abs(value).bit_length() for value in differences.values()}
    dc = dc or Table(dict.fromkeys(sorted(used) if fitted else range(12), 4))

    def block_bits(difference: int) -> str:
        category, value = number_bits(difference)
        text, last = dc.codes[category] + value, 0
        for run, coefficient in (coefficients := _block(rng, density)):
            last += run + 1
            size, value = number_bits(coefficient)
            text += ac.codes[0xF0] * (run // 16) + ac.codes[run % 16 << 4 | size] + value
        return text + ("" if coefficients and last == 63 else ac.codes[0])

    head = b"\xff\xd8" + extra
    head += segment(0xDB, b"\0" + bytes(rng.randint(1, 30) for _ in range(64)))
    head += dc.segment(0x00) + ac.segment(0x10)
    listed = b"".join(bytes([i + 1, h << 4 | v, 0]) for i, (h, v) in enumerate(factors))
    head += segment(marker, struct.pack(">BHHB", 8, height, width, len(factors)) + listed)
    if separate:
        data = head
        for i, (h, v) in enumerate(factors):
            # A scan of its own leaves out blocks that are all outside the image.
            across, down = -(-width * h // (max_h * 8)), -(-height * v // (max_v * 8))
            bits = "".join(block_bits(rng.choice(steps)) for _ in range(across * down))
            data += segment(0xDA, bytes([1, i + 1, 0, 0, 63, 0])) + _stuffed(bits)[0]
        return Drawn(data + b"\xff\xd9", width, height, [], [], 0)
    head += segment(0xDA, bytes([len(factors), *(n for i in range(len(factors)) for n in (i + 1, 0)), 0, 63, 0]))
    parts: list[str] = []
    starts: list[int] = []
    predictor = [0] * len(factors)
    predictors = []
    at = 0
    for r, c in mcus:
        starts.append(at)
        predictors.append(tuple(predictor))
        for i, (h, v) in enumerate(whole):
            for b in range(h * v):
                parts.append(block_bits(differences[r, c, i, b]))
                predictor[i] += differences[r, c, i, b]
                at += len(parts[-1])
    scan, place_of = _stuffed("".join(parts))
    places = [8 * len(head) + place_of(start) for start in starts]
    return Drawn(
        head + scan + b"\xff\xd9", width, height,
        [places[r * columns : (r + 1) * columns] for r in range(rows)],
        [predictors[r * columns : (r + 1) * columns] for r in range(rows)],
        8 * len(head) + place_of(at),
    )  # fmt: skip


def _stuffed(bits: str):
    """The bits as bytes, filled up with ones and stuffed; and a function from a bit's number to its place in them."""
    bits += "1" * (-len(bits) % 8)
    plain = int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")[1:] if bits else b""
    before = [0]
    for byte in plain:
        before.append(before[-1] + (byte == 0xFF))
    return plain.replace(b"\xff", b"\xff\0"), lambda bit: bit + 8 * before[bit // 8]


def unpack(index: bytes) -> tuple[int, list[tuple[int, tuple[int, int, int]]]]:
    """An index read as the format document says: its interval, and the place and predictors of each anchor."""
    assert index[:3] == b"\xff\xd9\x01"
    assert index[-4:] == b"FLJX"
    assert struct.unpack("<I", index[-8:-4])[0] == len(index)
    interval, widths = index[3], index[4:8]
    place, predictors = 8 * struct.unpack("<I", index[8:12])[0], (0, 0, 0)
    number = int.from_bytes(index[12:-8], "little")
    anchors = [(place, predictors)]
    for _ in range((len(index) - 20) * 8 // sum(widths)):
        values = []
        for width in widths:
            values.append(number & (1 << width) - 1)
            number >>= width
        place += values[0]
        signed = [value >> 1 ^ -(value & 1) for value in values[1:]]
        predictors = tuple(p + s for p, s in zip(predictors, signed, strict=True))  # type: ignore[assignment]
        anchors.append((place, predictors))
    assert number == 0, "what is left of the last byte is zero"
    return interval, anchors
