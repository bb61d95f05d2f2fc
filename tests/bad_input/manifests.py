"""Changes to the manifest of a folder of shards, and to which file is which."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

from fastloader.formats.fld import MANIFEST
from fastloader.formats.fld.layout import DIRECTORY_HEAD, HEADER, MAGIC
from fastloader.kernels import crc32c

from .internals import HOSTILE_JSON, HOSTILE_VALUES

PATHS: list[Any] = [
    "", ".", "..", "/", "/dev/null", "/dev/zero", "a\0b", "x" * 5000, "\ud800", "shard-00000.fld", MANIFEST, "../", 7,
]  # fmt: skip
COUNTS = [0, 1, 2**31, 2**62, 2**63 - 1, 2**63, -1]


def seal_manifest(content: Any) -> bytes:
    """The text of a manifest, with the checksum its content has."""
    if isinstance(content, dict):
        content.pop("crc32c", None)
        content["crc32c"] = crc32c(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    return json.dumps(content).encode()


def renew_manifest(manifest: bytes, name: str, shard: bytearray) -> bytes:
    """Let the manifest mean the changed shard, as if it had been written so."""
    content = json.loads(manifest)
    row = next(row for row in content["shards"] if row[0] == name)
    row[2:] = [len(shard), 0]
    if len(shard) >= len(MAGIC) + HEADER.size:
        header = HEADER.unpack_from(shard, len(MAGIC))
        row[1] = header[3] if header[3] < 1 << 63 else row[1]
        if header[8] + DIRECTORY_HEAD.size <= len(shard):
            row[3] = DIRECTORY_HEAD.unpack_from(shard, header[8])[2]
    content["num_samples"] = sum(row[1] for row in content["shards"])
    return seal_manifest(content)


def damage_text(files: dict[str, bytes], rng: Random) -> str:
    """The manifest's text changed as chance would."""
    data = bytearray(files[MANIFEST])
    at, what = rng.randrange(len(data)), rng.randrange(5)
    if what == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif what == 1:
        data[at] = rng.choice(b'0123456789eE.-+",[]{} \n\x00\xff')
    elif what == 2:
        del data[at : at + rng.choice([1, 2, len(data)])]
    elif what == 3:
        data[at:at] = rng.choice([b"0", b" ", b",", b"[]", b'"', b"null", b"9" * 5000, b"\xff"])
    else:
        data = bytearray(rng.choice(HOSTILE_JSON))
    files[MANIFEST] = bytes(data)
    return f"text of {MANIFEST} damaged at {at}"


def change_content(files: dict[str, bytes], rng: Random) -> str:
    """The manifest's content changed on purpose, or the files it names."""
    content = json.loads(files[MANIFEST])
    shards, what = content["shards"], rng.randrange(7)
    hostile = copy.deepcopy(rng.choice(HOSTILE_VALUES))
    if what == 0:
        content[rng.choice(list(content))] = hostile
    elif what == 1:
        row, place = rng.choice(shards), rng.randrange(4)
        row[place] = rng.choice(PATHS) if place == 0 else rng.choice([*COUNTS, row[place] + 1])
    elif what == 2:
        shards[rng.randrange(len(shards))] = rng.choice([hostile, shards[0], shards[0][:3]])
    elif what == 3:
        rng.shuffle(shards)
    elif what == 4:
        content["shards"] = rng.choice([shards * 2, shards[1:], shards[:1], shards[::-1], []])
    elif what == 5:
        one, other = rng.sample([row[0] for row in shards], 2)
        files[one] = files[other]
    else:
        del files[rng.choice(list(files))]
    if what != 0 and rng.random() < 0.7:
        counts = [row[1] for row in content["shards"] if isinstance(row, list) and len(row) > 1]
        content["num_samples"] = sum(count for count in counts if isinstance(count, int))
    if MANIFEST in files:
        files[MANIFEST] = seal_manifest(content)
    changes = ["a value", "a shard's row", "a row", "order", "rows", "a shard's file", "a file removed"]
    return f"{MANIFEST}: {changes[what]}"
