"""CRC32C and XXH64 against the published vectors and other people's code."""

from __future__ import annotations

import crc32c
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader import kernels

NOISE = np.random.default_rng(1).integers(0, 256, 9000, np.uint8)

RFC_3720 = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (
        bytes.fromhex(
            "01c000000000000000000000000000001400000000000400000000140000001828000000000000000200000000000000"
        ),
        0xD9963A56,
    ),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@pytest.mark.parametrize(("data", "crc"), RFC_3720)
def test_published_vectors(data, crc):
    assert kernels.crc32c(data) == crc
    for variant in kernels.crc32c_variants():
        assert kernels.copy_crc32c(data, bytearray(len(data)), variant) == crc


def test_every_length_agrees_with_the_reference():
    for length in range(5001):
        assert kernels.crc32c(NOISE[:length]) == crc32c.crc32c(NOISE[:length])


@pytest.mark.parametrize("variant", kernels.crc32c_variants())
def test_every_variant_copies_and_sums_every_length_at_any_alignment(variant):
    out = np.full(6000, 7, np.uint8)
    for length in range(5001):
        begin, to = length * 7 % 67, length * 5 % 71
        source, target = NOISE[begin : begin + length], out[to : to + length]
        before, after = out[:to].copy(), out[to + length :].copy()
        assert kernels.copy_crc32c(source, target, variant) == crc32c.crc32c(source)
        assert (target == source).all()
        assert (out[:to] == before).all()
        assert (out[to + length :] == after).all(), "a byte past the end was written"


@pytest.mark.parametrize("variant", kernels.crc32c_variants())
def test_every_variant_at_every_alignment(variant):
    out = np.zeros(9000, np.uint8)
    for length in (1, 7, 8, 63, 64, 383, 384, 511, 512, 513, 767, 1023, 3072, 3073, 4095, 8000):
        for begin in range(66):
            for to in (0, 1, begin):
                source, target = NOISE[begin : begin + length], out[to : to + length]
                assert kernels.copy_crc32c(source, target, variant) == crc32c.crc32c(source)
                assert (target == source).all()


def test_the_portable_variant_is_always_there_and_unknown_ones_are_refused():
    assert kernels.crc32c_variants()[-1] == "portable"
    with pytest.raises(ValueError, match="no such variant"):
        kernels.copy_crc32c(b"", bytearray(), "imaginary")
    with pytest.raises(ValueError, match="differ in size"):
        kernels.copy_crc32c(b"abc", bytearray(2), "portable")


@given(st.binary(max_size=2000), st.binary(max_size=2000))
@settings(max_examples=100, deadline=None)
def test_a_sum_can_be_continued(one, other):
    assert kernels.crc32c(other, kernels.crc32c(one)) == crc32c.crc32c(one + other)


@given(st.binary(max_size=1000), st.integers(1, 300))
@settings(max_examples=100, deadline=None)
def test_block_crcs(data, block_size):
    wanted = [crc32c.crc32c(data[at : at + block_size]) for at in range(0, len(data), block_size)]
    assert np.frombuffer(kernels.block_crcs(data, block_size), "<u4").tolist() == wanted


def test_blocks_have_a_size():
    with pytest.raises(kernels.Failure, match="block size"):
        kernels.block_crcs(b"abc", 0)


def test_xxh64_of_every_length_agrees_with_the_reference():
    for length in range(300):
        for begin in (0, 1, 5):
            data = NOISE[begin : begin + length].tobytes()
            assert kernels.xxh64(data) == xxhash.xxh64_intdigest(data)


@given(st.binary(max_size=500), st.integers(0, 2**64 - 1))
@settings(max_examples=200, deadline=None)
def test_xxh64_with_seeds(data, seed):
    assert kernels.xxh64(data, seed) == xxhash.xxh64_intdigest(data, seed)
