"""ZCLD shards made and read with struct and json alone, from docs/reference/zc.md."""

from __future__ import annotations

import json
import struct
from typing import Any

MAGIC = 0x5A434C44


def describe(extents: list[tuple[int, int]]) -> dict[str, Any]:
    """The metadata of samples that lie there."""
    return {"num_samples": len(extents), "samples": [{"offset": o, "size": s} for o, s in extents]}


def packed(samples: list[bytes]) -> list[tuple[int, int]]:
    """Where samples lie when they follow each other."""
    extents, at = [], 0
    for sample in samples:
        extents.append((at, len(sample)))
        at += len(sample)
    return extents


def data_first(data: bytes, text: bytes, *, version: int = 1, magic: int = MAGIC) -> bytes:
    """Header, data, metadata."""
    return struct.pack("<IHQQ", magic, version, 22 + len(data), 22) + data + struct.pack("<Q", len(text)) + text


def metadata_first(data: bytes, text: bytes, *, gap: bytes = b"") -> bytes:
    """Header, metadata, data."""
    begin = 22 + 8 + len(text) + len(gap)
    return struct.pack("<IHQQ", MAGIC, 1, 22, begin) + struct.pack("<Q", len(text)) + text + gap + data


def shard(samples: list[bytes], build: Any = data_first, **spaces: Any) -> bytes:
    """A whole shard of these samples."""
    return build(b"".join(samples), json.dumps(describe(packed(samples)), **spaces).encode())


def read(file: bytes) -> list[bytes]:
    """The samples of a file; a ValueError where it is no valid shard."""
    need(len(file) >= 22, "header")
    magic, version, metadata, data = struct.unpack("<IHQQ", file[:22])
    need(magic == MAGIC and version == 1, "magic")
    need(metadata >= 22 and data >= 22 and metadata + 8 <= len(file), "sections")
    (length,) = struct.unpack("<Q", file[metadata : metadata + 8])
    end = metadata + 8 + length
    need(end <= len(file), "length")
    data_end = metadata if metadata >= data else len(file)
    need(metadata >= data or end <= data <= len(file), "overlap")
    content = json.loads(file[metadata + 8 : end].decode(), object_pairs_hook=once, parse_constant=never)
    need(type(content) is dict and whole(content.get("num_samples")), "num_samples")
    listed = content.get("samples")
    need(type(listed) is list and len(listed) == content["num_samples"], "samples")
    found = []
    for entry in listed:
        need(type(entry) is dict and whole(entry.get("offset")) and whole(entry.get("size")), "entry")
        first = data + entry["offset"]
        last = first + entry["size"]
        need(last <= data_end, "outside")
        end = max(end, last)
        found.append(file[first:last])
    rest = file[end:]
    need(len(rest) < 4096 and not rest.strip(b"\0"), "rest")
    return found


def read_if_valid(file: bytes) -> list[bytes] | None:
    """The samples of a file, or ``None`` where it is no valid shard."""
    try:
        return read(file)
    except (ValueError, RecursionError):
        return None


def need(holds: bool, what: str) -> None:
    """A ValueError unless it holds."""
    if not holds:
        raise ValueError(what)


def whole(value: Any) -> bool:
    """Whether this is a count, and no boolean."""
    return type(value) is int and value >= 0


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ."""
    need(len(dict(pairs)) == len(pairs), "keys")
    return dict(pairs)


def never(text: str) -> None:
    """NaN and its kin are no JSON."""
    raise ValueError(text)
