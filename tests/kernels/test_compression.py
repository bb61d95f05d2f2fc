"""Compression against other people's lz4 and zstd, both ways."""

from __future__ import annotations

import contextlib

import lz4.block
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader import kernels

LZ4, ZSTD = 1, 2
texts = st.binary(max_size=3000) | st.builds(lambda part, n: part * n, st.binary(max_size=20), st.integers(0, 300))


def unpack(data: bytes, codec: int, size: int) -> bytes:
    out = bytearray(size)
    kernels.decompress(data, codec, out)
    return bytes(out)


@given(texts, st.integers(1, 12))
@settings(max_examples=150, deadline=None)
def test_others_read_our_lz4(data, level):
    assert lz4.block.decompress(kernels.compress(data, LZ4, level), uncompressed_size=len(data)) == data


@given(texts, st.sampled_from(["default", "fast", "high_compression"]))
@settings(max_examples=150, deadline=None)
def test_we_read_others_lz4(data, mode):
    assert unpack(lz4.block.compress(data, mode=mode, store_size=False), LZ4, len(data)) == data


@given(texts, st.integers(-7, 19))
@settings(max_examples=100, deadline=None)
def test_others_read_our_zstd_and_find_its_size(data, level):
    packed = kernels.compress(data, ZSTD, level)
    assert zstandard.frame_content_size(packed) == len(data)
    assert zstandard.ZstdDecompressor().decompress(packed) == data


@given(texts, st.integers(1, 19), st.booleans())
@settings(max_examples=100, deadline=None)
def test_we_read_others_zstd(data, level, checksum):
    compressor = zstandard.ZstdCompressor(level=level, write_content_size=True, write_checksum=checksum)
    assert unpack(compressor.compress(data), ZSTD, len(data)) == data


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
@pytest.mark.parametrize("data", [b"", b"x", bytes(20_000_000)], ids=["nothing", "a byte", "the highest ratio"])
def test_extremes_go_there_and_back(codec, data):
    assert unpack(kernels.compress(data, codec, 3), codec, len(data)) == data


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
@pytest.mark.parametrize("wrong", [-1, 1, 1000])
def test_another_size_than_the_stored_one_is_refused(codec, wrong):
    packed = kernels.compress(b"abc" * 500, codec, 3)
    with pytest.raises(kernels.Failure) as caught:
        unpack(packed, codec, 1500 + wrong)
    assert caught.value.args[0] == "codec"


@given(st.sampled_from([LZ4, ZSTD]), st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_bytes_are_refused_or_stay_in_their_place(codec, data):
    packed = bytearray(kernels.compress(bytes(range(100)) * 8, codec, 3))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(packed)))
    out = np.full(800 + 64, 77, np.uint8)
    with contextlib.suppress(kernels.Failure):
        kernels.decompress(bytes(packed[:cut]), codec, out[:800])
    assert (out[800:] == 77).all()


def test_an_impossible_size_is_refused_before_it_is_believed():
    small_lz4, small_zstd = kernels.compress(b"abc", LZ4, 1), kernels.compress(b"abc", ZSTD, 3)
    huge = np.empty(1 << 30, np.uint8)  # never touched
    with pytest.raises(kernels.Failure, match="impossible raw size"):
        kernels.decompress(small_lz4, LZ4, huge)
    with pytest.raises(kernels.Failure, match="differs from the frame's"):
        kernels.decompress(small_zstd, ZSTD, huge)


def test_a_zstd_frame_without_its_size_is_refused():
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"abc" * 100)
    with pytest.raises(kernels.Failure, match="differs from the frame's"):
        unpack(frame, ZSTD, 300)


@pytest.mark.parametrize("codec", [0, 4, 255])
def test_unknown_codecs_are_refused(codec):
    with pytest.raises(ValueError, match="compression"):
        kernels.compress(b"abc", codec, 1)
    with pytest.raises(ValueError, match="compression"):
        unpack(b"abc", codec, 3)


def test_names_numbers_and_levels():
    assert [kernels.codec_id(name) for name in (None, "none", "lz4", "lz4:9", "zstd", "zstd:-7")] == [
        (0, 0), (0, 0), (1, 1), (1, 9), (2, 3), (2, -7),
    ]  # fmt: skip
    for wrong in ("gzip", "zstd:x", "zstd:23", "zstd:-8", "lz4:0", "lz4:13", "none:1"):
        with pytest.raises(ValueError, match="compression"):
            kernels.codec_id(wrong)
