"""Values of sound, motion, text and structure by hand: from docs/reference/format.md alone, as in ``fld_by_hand``."""

from __future__ import annotations

import base64
import itertools
import json
import struct
from typing import Any

import fld_by_hand as hand
import numpy as np
import zstandard

DICTIONARY, TOKENS = 10, 11
INT, FLOAT, BYTES, NDARRAY, RAW = 1, 2, 3, 4, 10
WAVEFORM, SOUND_FILE, SPECTROGRAM, SOUND_TOKENS = 20, 21, 22, 23
FRAMES, FLOW = 30, 32
TEXT, TOKENIZED, PACKED = 40, 41, 42
EMBEDDING, BOXES, KEYPOINTS, MASK = 50, 51, 52, 53
LIST, DICT = 60, 61
WITHOUT_PAYLOAD = {INT: 8, FLOAT: 8}


def value(data: bytes, field: int, sample: int) -> Any:
    """A sample's value; of files the bytes, of packed text the tokens and the lengths."""
    described = hand.descriptors(data)[field]
    if hand.is_missing(data, field, sample):
        return None
    rows = hand.table(data, hand.METADATA, field)
    raw = b"" if not described.flags & 1 else payload(data, field, sample)
    return decoded(described.type_id, described.arguments, b"" if rows is None else rows[sample], raw)


def payload(data: bytes, field: int, sample: int) -> bytes:
    """As ``fld_by_hand`` reads it, and with a dictionary."""
    extent = hand.extents(data, field)[sample]
    if extent.codec != 3:
        return hand.payload(data, field, sample)
    known = zstandard.ZstdCompressionDict(b"".join(hand.table(data, DICTIONARY, field) or ()))
    stored = data[extent.pointer : extent.pointer + extent.size]
    return zstandard.ZstdDecompressor(dict_data=known).decompress(stored)


def token_type(vocab_size: int) -> str:
    return "u1" if vocab_size <= 256 else "<u2" if vocab_size <= 65_536 else "<u4"


def decoded(kind: int, options: dict[str, Any], row: bytes, raw: bytes) -> Any:
    """One value, of whatever type."""
    if kind == INT:
        return struct.unpack("<q", row)[0]
    if kind == FLOAT:
        return struct.unpack("<d", row)[0]
    if kind == NDARRAY:
        return np.frombuffer(raw, hand.dtype_of(options["dtype"])).reshape(hand.shape_of(options["shape"], row))
    if kind == WAVEFORM:
        frames, channels = (
            (hand.u8(row, 0), options["channels"] or 1) if len(row) == 8 else (hand.u8(row, 8), hand.u8(row, 16))
        )
        made = np.frombuffer(raw, np.dtype(options["dtype"]).newbyteorder("<"))
        return made.reshape(frames) if options["mono"] else made.reshape(frames, channels)
    if kind == SOUND_FILE:
        frames, rate, channels, codec, reserved = struct.unpack("<QIHBB", row)
        assert (codec, reserved) == (0, 0)
        assert raw[:4] == b"RIFF"
        assert struct.unpack_from("<HI", raw, 22) == (channels, rate)
        assert len(raw) == 44 + 2 * frames * channels
        return raw
    if kind == SPECTROGRAM:
        shape = hand.u8(row, 0), options["n_mels"]
        return np.frombuffer(raw, np.dtype(options["dtype"]).newbyteorder("<")).reshape(shape)
    if kind == SOUND_TOKENS:
        return tokens_of(options, hand.u8(row, 0), raw)
    if kind == FRAMES:
        return frames_of(options, row, raw)
    if kind == FLOW:
        return flow_of(options, row, raw)
    if kind == TEXT:
        return raw.decode()
    if kind == TOKENIZED:
        return np.frombuffer(raw, token_type(options["vocab_size"]))
    if kind == PACKED:
        documents, tokens = struct.unpack("<II", row)
        lengths = list(struct.unpack_from(f"<{documents}I", raw))
        found = np.frombuffer(raw, token_type(options["vocab_size"]), offset=4 * documents)
        assert sum(lengths) == tokens == len(found) <= options["seq_len"]
        return {"tokens": found, "lengths": lengths}
    if kind == EMBEDDING and options["dtype"] == "bfloat16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    if kind == EMBEDDING:
        stored = np.frombuffer(raw, np.dtype(options["dtype"]).newbyteorder("<"))
        assert len(stored) == options["dim"]
        return stored * np.frombuffer(row, "<f4")[0] if options["dtype"] == "int8" else stored
    if kind == BOXES:
        return np.frombuffer(raw, "<f4").reshape(hand.u8(row, 0), 4)
    if kind == KEYPOINTS:
        return np.frombuffer(raw, "<f4").reshape(hand.u8(row, 0), options["points"], 3 if options["visibility"] else 2)
    if kind == MASK:
        assert options["encoding"] == "runs"
        return hand.runs(struct.unpack("<4I", row), raw)
    if kind == LIST:
        return list_of(options["field"], hand.u8(row, 0), raw)
    assert kind == DICT
    return dict_of(options["fields"], row, raw)


def tokens_of(options: dict[str, Any], frames: int, raw: bytes) -> Any:
    """One bit after the other."""
    books, size = options["codebooks"], options["codebook_size"]
    bits = max(1, (size - 1).bit_length())
    assert len(raw) == -(-frames * books * bits // 8)
    stream = int.from_bytes(raw, "little")
    numbers = [stream >> (bits * i) & (1 << bits) - 1 for i in range(frames * books)]
    assert stream >> (bits * len(numbers)) == 0
    return np.array(numbers, np.min_scalar_type(size - 1)).reshape(frames, books).T


def frames_of(options: dict[str, Any], row: bytes, raw: bytes) -> Any:
    """Pixels, or a file each."""
    height, width, channels, frames = struct.unpack("<4I", row)
    if options["format"] == "raw":
        return np.frombuffer(raw, np.uint8).reshape(frames, height, width, channels)
    places = struct.unpack(f"<{frames + 1}Q", raw[len(raw) - 8 * (frames + 1) :])
    assert places[0] == 0
    assert places[-1] == len(raw) - 8 * (frames + 1)
    files = [raw[begin:end] for begin, end in itertools.pairwise(places)]
    for file in files:
        assert struct.unpack_from(">II", file, 16) == (width, height)
    return files


def flow_of(options: dict[str, Any], row: bytes, raw: bytes) -> Any:
    """Floats, or steps with those before them in their row added up."""
    pairs, height, width, ndim = struct.unpack("<4I", row)
    shape = (pairs, height, width, 2)
    if options["dtype"] == "float16":
        made = np.frombuffer(raw, "<f2").reshape(shape).astype(np.float32)
    else:
        differences = np.frombuffer(raw, "<i2").reshape(shape).astype(np.int64)
        steps = (np.cumsum(differences, axis=2) + 2**15) % 2**16 - 2**15
        made = (steps * options["step"]).astype(np.float32)
    assert ndim in (3, 4)
    return made if ndim == 4 else made[0]


def inner(told: list[Any]) -> tuple[int, dict[str, Any], int, bool]:
    """Type, options and the width of the metadata row of an inner field, and whether it has payloads."""
    kind, options = told
    known = json.loads(base64.b64decode(options["base64"]) if isinstance(options, dict) else options)
    widths = {INT: 8, FLOAT: 8, TEXT: 0, MASK: 16, SOUND_TOKENS: 8}
    width = 8 * known["shape"].count(None) if kind == NDARRAY else widths[kind]
    return kind, known, width, kind not in WITHOUT_PAYLOAD


def list_of(told: list[Any], count: int, raw: bytes) -> Any:
    """Rows, sizes, payloads; or numbers and arrays of one shape without sizes."""
    kind, options, width, sized = inner(told)
    if kind == INT:
        return np.frombuffer(raw, "<i8")
    if kind == NDARRAY:
        return np.frombuffer(raw, options["dtype"]).reshape(count, *options["shape"])
    assert sized
    sizes = struct.unpack_from(f"<{count}I", raw, count * width)
    at, found = count * (width + 4), []
    for i, size in enumerate(sizes):
        found.append(decoded(kind, options, raw[i * width : (i + 1) * width], raw[at : at + size]))
        at += size
    assert at == len(raw)
    return found


def dict_of(fields: list[Any], row: bytes, raw: bytes) -> Any:
    """Rows first, then sizes; payloads in order."""
    known = [(name, *inner(told)) for name, *told in fields]
    sizes = iter(struct.unpack_from(f"<{sum(one[4] for one in known)}Q", row, sum(one[3] for one in known)))
    at = place = 0
    found = {}
    for name, kind, options, width, sized in known:
        size = next(sizes) if sized else 0
        found[name] = decoded(kind, options, row[at : at + width], raw[place : place + size])
        at, place = at + width, place + size
    assert place == len(raw)
    return found
