"""Small tables and payloads in memory, laid out as in a file, for tests of the native kernels."""

from __future__ import annotations

import struct

import crc32c
import lz4.block
import numpy as np
import zstandard

from fastloader import kernels


def make_table(rows: bytes, row_size: int, block_size: int = 64) -> tuple[bytearray, kernels.Table]:
    """A table over memory of its own: the rows, then the checksums of their blocks."""
    crcs = [crc32c.crc32c(rows[at : at + block_size]) for at in range(0, len(rows), block_size)]
    memory = bytearray(rows + struct.pack(f"<{len(crcs)}I", *crcs))
    return memory, kernels.Table(memory, 0, len(rows), row_size, block_size, len(rows))


def pack(data: bytes, codec: int) -> bytes:
    """Compressed by other people's code."""
    if codec == 1:
        return lz4.block.compress(data, store_size=False)
    return zstandard.ZstdCompressor(write_content_size=True).compress(data) if codec == 2 else data


def make_payloads(payloads: list[bytes], codecs: list[int] | None = None) -> tuple[bytearray, kernels.Payloads]:
    """Payloads over memory of their own, with a byte between them, and their extents."""
    memory = bytearray(b"\xee" * 16)
    rows = b""
    for payload, codec in zip(payloads, codecs or [0] * len(payloads), strict=True):
        stored = pack(payload, codec)
        rows += struct.pack("<QQQIB3x", len(memory), len(stored), len(payload), crc32c.crc32c(stored), codec)
        memory += stored + b"\xee"
    _, extents = make_table(rows, 32)
    return memory, kernels.Payloads(memory, extents, 16, len(memory))


def numbers(values: list[int], dtype: str = "int64") -> np.ndarray:
    """A contiguous array, empty ones included."""
    return np.array(values, dtype)
