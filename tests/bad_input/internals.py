"""Changes inside payloads and field arguments that keep the outer shape: JPEG segments, chunks, frames, JSON."""

from __future__ import annotations

import copy
import json
import struct
import zlib
from random import Random
from typing import Any

from fastloader.kernels import ZSTD, compress
from fastloader.types import TypeId

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"

HOSTILE_JSON = [
    b"", b"null", b"[]", b"{}", b"0", b'"', b"[" * 3000, b"{" * 50, b'{"a":' * 3000, b"9" * 5000, b"1e999", b"-1e999",
    b"NaN", b"\xff\xfe", b'"\\ud800"', b"\x00", b'{"":1}', b'{"a":1,"a":2}', b"[1,2", b"\xef\xbb\xbf[]",
]  # fmt: skip

HOSTILE_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 0.5, 1e308, "", "x",
    "420", "\x00", "\ud800", [], [1], [[]], {}, {"a": 1}, [None], [2**40, 2**40], [2**62, 4], [0, 2**63], [-1], [1.5],
    ["1"], [3] * 9, [2**16, 2**16, 2**16],
]  # fmt: skip

HOSTILE_DTYPES: list[Any] = [
    "O", "|O", "V0", "V2147483647", "U536870911", "S2147483647", "(3,2)f4", "(1000000,1000000)f4", "f4,i8", "f2", ">i8",
    "M8[ns]", "m8[1000000000Y]", "?", "c16", "nonsense", "i3", [["a", "<i4"]], [["a", "O"]],
    [["a", "<i4"], ["a", "<i4"]], [["a", [["b", "<u1"]]]], [["a", "<f4", [2**20, 2**20]]], [["a", "<f4", [-1]]],
    [[["t", "n"], "<i4"]], [["", "<i2"]],
    [["a"]], [[1, 2]], {"names": ["a"], "formats": ["<i4"]}, ["a", "b"],
]  # fmt: skip


def change_arguments(rng: Random, arguments: bytes) -> bytes:
    """A field's stored options, replaced or changed in one place."""
    if rng.random() < 0.3:
        return rng.choice(HOSTILE_JSON)
    options, value = json.loads(arguments), copy.deepcopy(rng.choice(HOSTILE_VALUES))
    if not options or rng.random() < 0.1:
        options[rng.choice(["extra", "dtype", "shape", "__class__", "self"])] = value
    name = rng.choice(sorted(options))
    if rng.random() < 0.1:
        del options[name]
    elif name == "dtype" and rng.random() < 0.7:
        options[name] = rng.choice(HOSTILE_DTYPES)
    elif isinstance(options[name], list) and options[name] and rng.random() < 0.5:
        options[name][rng.randrange(len(options[name]))] = value if value is not options[name] else 0
    else:
        options[name] = value
    return json.dumps(options).encode()


def flip(rng: Random, data: bytes) -> bytes:
    """One to eight bits changed."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _shuffle_parts(rng: Random, parts: list[bytes]) -> list[bytes]:
    """Parts (segments, chunks, frames) dropped, doubled, swapped or cut."""
    parts = list(parts)
    i, j = rng.randrange(len(parts)), rng.randrange(len(parts))
    what = rng.randrange(5)
    if what == 0:
        del parts[i]
    elif what == 1:
        parts.insert(j, parts[i])
    elif what == 2:
        parts[i], parts[j] = parts[j], parts[i]
    elif what == 3:
        parts[i] = parts[i][: rng.randrange(len(parts[i]) + 1)]
    else:
        parts = parts[:i] + [parts[i]] * rng.choice([2, 3, 40]) + parts[i + 1 :]
    return parts


def jpeg_segments(data: bytes) -> list[bytes]:
    """SOI, the marker segments, and what follows each (the coded scan stays with its SOS)."""
    parts, at = [data[:2]], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xD9:
        end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
        if data[at + 1] == 0xDA:
            while end + 1 < len(data) and not (data[end] == 0xFF and data[end + 1] not in (0, *range(0xD0, 0xD8))):
                end += 1
        parts.append(data[at:end])
        at = end
    return [*parts, data[at:]]


def change_jpeg(rng: Random, data: bytes) -> bytes:
    parts = jpeg_segments(data)
    what = rng.random()
    if what < 0.25:
        return b"".join(_shuffle_parts(rng, parts))
    i = rng.randrange(1, len(parts))
    part = bytearray(parts[i])
    frame = len(part) > 10 and part[1] in range(0xC0, 0xD0) and part[1] not in (0xC4, 0xC8, 0xCC)
    if frame and what < 0.7:
        place = rng.randrange(5)
        if place == 0:
            part[1] = rng.choice([0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCA, 0xC5])
        elif place == 1:
            part[4] = rng.choice([0, 1, 2, 12, 16, 255])
        elif place == 2:
            struct.pack_into(">H", part, rng.choice([5, 7]), rng.choice([0, 1, 8, 255, 4096, 65500, 65535]))
        elif place == 3:
            part[9] = rng.choice([0, 1, 2, 3, 4, 10, 255])
        else:
            part[rng.randrange(10, len(part))] = rng.choice([0, 1, 0x11, 0x22, 0x41, 0x44, 0xFF, 3, 4])
    elif len(part) > 4 and what < 0.85:
        struct.pack_into(">H", part, 2, rng.choice([0, 1, 2, 3, len(part) - 1, len(part), 0xFFFF]))
    elif len(part) > 4:
        part[rng.randrange(4, min(len(part), 40))] = rng.choice([0, 1, 0x0F, 0x10, 0x7F, 0x80, 0xFE, 0xFF])
    else:
        part = bytearray(flip(rng, bytes(part)))
    parts[i] = bytes(part)
    return b"".join(parts)


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Kind and content of each chunk."""
    found, at = [], len(PNG_MAGIC)
    while at + 12 <= len(data):
        length = struct.unpack_from(">I", data, at)[0]
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def png_join(chunks: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG of these chunks, with right lengths and sums."""
    return PNG_MAGIC + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def change_png(rng: Random, data: bytes) -> bytes:
    chunks = png_chunks(data)
    what = rng.random()
    if what < 0.4:
        head = bytearray(chunks[0][1])
        place = rng.randrange(5)
        if place < 2:
            sizes = [0, 1, 2, 7, 255, 65536, 2**20, 2**31 - 1, 2**31, 2**32 - 1]
            struct.pack_into(">I", head, 4 * place, rng.choice(sizes))
        elif place == 2:
            head[8] = rng.choice([0, 1, 2, 4, 8, 16, 32])
            head[9] = rng.choice([0, 1, 2, 3, 4, 5, 6, 7])
        elif place == 3:
            head[12] = rng.choice([0, 1, 2, 255])
        else:
            head[rng.choice([10, 11])] = rng.choice([1, 255])
        chunks[0] = (chunks[0][0], bytes(head))
    elif what < 0.6:
        return PNG_MAGIC + b"".join(_shuffle_parts(rng, [png_join([chunk])[8:] for chunk in chunks]))
    elif what < 0.8:
        body = b"".join(body for kind, body in chunks if kind == b"IDAT")
        rows = bytearray(zlib.decompress(body))
        rows[rng.randrange(len(rows))] = rng.choice([0, 1, 2, 3, 4, 5, 255])
        rows = rows[: rng.randrange(len(rows) + 1)] if rng.random() < 0.3 else rows + bytes(rng.choice([0, 1, 10**6]))
        chunks = [c for c in chunks if c[0] != b"IDAT"]
        chunks.insert(len(chunks) - 1, (b"IDAT", zlib.compress(bytes(rows))))
    elif what < 0.9:
        extra = [
            (b"PLTE", b"\1\2\3" * rng.choice([0, 1, 256, 300])), (b"tRNS", bytes(rng.choice([0, 1, 2, 6, 300]))),
            (b"zTXt", b"k\0\0" + zlib.compress(bytes(10**6))), (b"IHDR", chunks[0][1]), (b"QQQQ", b""),
            (b"iCCP", b"n\0\0" + zlib.compress(bytes(10**5))), (b"sPLT", b"n\0\10" + bytes(60)), (b"IEND", b""),
        ]  # fmt: skip
        chunks.insert(rng.randrange(len(chunks) + 1), rng.choice(extra))
    else:
        return flip(rng, data)
    return png_join(chunks)


def webp_chunks(data: bytes) -> list[bytearray]:
    """Each chunk with its name and its size, padded to an even number of bytes."""
    found, at = [], 12
    while at + 8 <= len(data):
        size = struct.unpack_from("<I", data, at + 4)[0]
        found.append(bytearray(data[at : at + 8 + size + size % 2]))
        at += 8 + size + size % 2
    return found


def change_webp(rng: Random, data: bytes) -> bytes:
    chunks = webp_chunks(data)
    what = rng.random()
    part = rng.choice(chunks)
    if what < 0.2:
        chunks = [bytearray(one) for one in _shuffle_parts(rng, list(map(bytes, chunks)))]
    elif what < 0.5 and part[:4] == b"VP8L":  # 14 bits of width - 1, 14 of height - 1, alpha, 3 of the version
        packed = struct.unpack_from("<I", part, 9)[0] ^ rng.choice(
            [1 << rng.randrange(32), 0x3FFF, 0x3FFF << 14, 1 << 28]
        )
        struct.pack_into("<I", part, 9, packed)
    elif what < 0.5 and part[:4] == b"VP8 ":
        struct.pack_into("<H", part, rng.choice([14, 16]), rng.choice([0, 1, 2, 255, 0x3FFF, 0xFFFF]))
    elif what < 0.5 and part[:4] == b"VP8X":
        if rng.random() < 0.5:
            part[8] ^= 1 << rng.randrange(8)  # alpha, animation, EXIF and others
        else:
            part[rng.choice([12, 13, 14, 15, 16, 17])] = rng.choice([0, 1, 255])
    elif what < 0.65:
        part[:4] = rng.choice([b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"EXIF", b"ICCP"])
    elif what < 0.75:
        struct.pack_into("<I", part, 4, rng.choice([0, 1, 7, len(part) - 9, len(part), 2**31, 2**32 - 1]))
    else:
        part[8:] = flip(rng, bytes(part[8:]))
    body = b"WEBP" + b"".join(chunks)
    size = len(body) if rng.random() < 0.9 else rng.choice([0, 4, 12, len(body) - 1, len(body) + 2, 2**32 - 1])
    return b"RIFF" + struct.pack("<I", size) + body


def change_mask(rng: Random, data: bytes) -> bytes:
    """Runs with another size, another length, or runs left out, doubled and exchanged."""
    header, runs = bytearray(data[:12]), data[12:]
    what = rng.randrange(4)
    if what == 0:
        struct.pack_into("<I", header, rng.choice([4, 8]), rng.choice([0, 1, 3, 255, 2**15, 2**31, 2**32 - 1]))
    elif what == 1:
        at = rng.randrange(len(runs) + 1)
        runs = runs[:at] + rng.choice([b"\x80", b"\xff\xff\x03", b"\xff\xff\x04", b"\xff" * 9, b"\0"]) + runs[at:]
    elif what == 2:
        runs = b"".join(_shuffle_parts(rng, [runs[i : i + 2] for i in range(0, len(runs), 2)]))
    else:
        runs = flip(rng, runs)
    return bytes(header) + runs


def change_frame(rng: Random, stored: bytes, codec: int, raw: bytes) -> bytes:
    """Compressed bytes, damaged or replaced by others that a decompressor may be led astray with."""
    what = rng.randrange(6)
    if what == 0:
        return flip(rng, stored)
    if what == 1:
        return flip(rng, stored[:12]) + stored[12:]
    if what == 2:
        return stored[: rng.randrange(len(stored) + 1)]
    if what == 3:
        return stored + rng.choice([stored, b"\0", b"\x50\x2a\x4d\x18\4\0\0\0abcd"])
    if what == 4:
        return compress(bytes(rng.choice([0, 1, len(raw), 10**6])), min(codec, ZSTD), 1)
    return rng.choice(
        [b"", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + bytes(4), b"\xff" * 40, bytes(30)]
    )


def change_video(rng: Random, raw: bytes) -> bytes:
    """Numbers in the boxes of an mp4 file, in its packets, or in the index behind it."""
    size = int.from_bytes(raw[-8:-4], "little")
    video, index = bytearray(raw[:-size]), bytearray(raw[-size:])
    what = rng.random()
    if what < 0.3:
        return bytes(video) + flip(rng, bytes(index))
    if what < 0.4:
        at = rng.randrange(0, len(index) - 4, 4)
        index[at : at + 4] = rng.choice([0, 1, 2**31, 2**32 - 1, rng.getrandbits(32)]).to_bytes(4, "little")
        return bytes(video + index)
    if what < 0.7 and b"moov" in video:
        at = rng.randrange(video.index(b"moov") - 4, len(video) - 4)
        video[at : at + 4] = rng.choice([0, 1, 2**24, 2**31, 2**32 - 1, rng.getrandbits(32)]).to_bytes(4, "big")
        return bytes(video + index)
    return flip(rng, bytes(video)) + bytes(index)


def change_payload(rng: Random, type_id: int, raw: bytes) -> bytes:
    """Another payload in place of ``raw``, close to what the type's decoder expects."""
    if rng.random() < 0.15:
        return rng.choice([b"", raw[:-1], raw + b"\0", raw * 2, raw[1:], bytes(len(raw)), bytes(rng.randrange(200))])
    if type_id == TypeId.IMAGE_JPEG:
        return change_jpeg(rng, raw)
    if type_id == TypeId.IMAGE_PNG:
        return change_png(rng, raw)
    if type_id == TypeId.IMAGE_WEBP:
        return change_webp(rng, raw)
    if type_id == TypeId.MASK:
        return change_png(rng, raw) if raw.startswith(b"\x89PNG") else change_mask(rng, raw)
    if type_id == TypeId.VIDEO_COMPRESSED:
        return change_video(rng, raw)
    if type_id == TypeId.JSON and rng.random() < 0.7:
        return rng.choice(HOSTILE_JSON)
    return flip(rng, raw)
