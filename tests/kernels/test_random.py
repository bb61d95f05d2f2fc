"""The counter-based generator: published vectors, vectors of our own that must never change, and distributions."""

from __future__ import annotations

from math import erf, sqrt

import numpy as np
import pytest

from fastloader import kernels

# From the known-answer tests of Random123, which defines Philox.
PUBLISHED = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("key", "counter", "block"), PUBLISHED)
def test_published_vectors(key, counter, block):
    assert kernels.philox(key, counter) == block


def bits(count: int, *place: int) -> np.ndarray:
    out = np.empty(count, np.uint32)
    kernels.random_bits(*place, out)
    return out


def doubles(draw, count: int, *place: int) -> np.ndarray:
    out = np.empty(count, np.float64)
    draw(*place, out)
    return out


def below(bound: int, count: int, *place: int) -> np.ndarray:
    out = np.empty(count, np.uint64)
    kernels.random_below(*place, out, bound)
    return out


def test_a_stream_is_what_the_definition_says():
    seed, epoch, sample, op = 0x1234567890ABCDEF, 3, 2**33 + 5, 11
    low, high = seed & 0xFFFFFFFF, seed >> 32
    place = kernels.philox((low, high), (epoch, 0, sample & 0xFFFFFFFF, sample >> 32))
    wanted = [word for block in range(3) for word in kernels.philox(place[:2], (block, op, *place[2:]))]
    words = bits(12, seed, epoch, sample, op)
    assert words.tolist() == wanted
    pairs = words.astype(object)[0::2] + words.astype(object)[1::2] * 2**32
    assert doubles(kernels.random_uniform, 6, seed, epoch, sample, op).tolist() == [(p >> 11) / 2**53 for p in pairs]
    assert below(1000, 6, seed, epoch, sample, op).tolist() == [p * 1000 >> 64 for p in pairs]


def test_vectors_that_must_never_change():
    place = (2026, 5, 123456789, 3)
    assert bits(4, *place).tolist() == [0x68F7BED0, 0x6CF78A04, 0xA7BA0E7, 0x9D6888C9]
    assert [x.hex() for x in doubles(kernels.random_uniform, 2, *place)] == [
        "0x1.b3de2811a3deep-2",
        "0x1.3ad1119214f74p-1",
    ]
    assert [x.hex() for x in doubles(kernels.random_normal, 3, *place)] == [
        "-0x1.94bb230ecff2ep-1",
        "0x1.630e370189099p-1",
        "0x1.160faffa12584p+0",
    ]
    assert below(1000, 4, *place).tolist() == [425, 614, 280, 87]


def test_every_part_of_the_place_matters():
    base = (7, 1, 2, 3)
    streams = {bits(4, *base).tobytes()}
    for i in range(4):
        for step in (1, 2**31, *((2**32, 2**63) if i < 3 else ())):
            place = list(base)
            place[i] += step
            streams.add(bits(4, *place).tobytes())
    assert len(streams) == 1 + 3 * 4 + 2


def test_uniform_numbers_are_uniform():
    values = np.sort(doubles(kernels.random_uniform, 100_000, 1, 0, 0, 0))
    assert values[0] >= 0
    assert values[-1] < 1
    steps = (np.arange(len(values)) + 0.5) / len(values)
    assert np.abs(values - steps).max() < 1.63 / np.sqrt(len(values)), "Kolmogorov and Smirnov, at 1 %"


def test_integers_have_no_bias():
    for bound in (1, 2, 3, 10, 257):
        values = below(bound, 60_000, 1, bound, 0, 0)
        counts = np.bincount(values.astype(int), minlength=bound)
        assert len(counts) == bound
        expected = len(values) / bound
        spread = ((counts - expected) ** 2 / expected).sum()
        assert spread <= bound - 1 + 4 * np.sqrt(2 * max(bound - 1, 1))
    # Of 2^64 draws, without rejection, every third number below 3 * 2^62 would come twice as often as the others.
    large = below(3 * 2**62, 30_000, 1, 0, 0, 0)
    thirds = np.bincount((large % np.uint64(3)).astype(int), minlength=3)
    assert np.abs(thirds - 10_000).max() < 400
    assert below(2**64 - 1, 4, 1, 0, 0, 0).max() > 2**60


def test_normal_numbers_are_normal():
    values = np.sort(doubles(kernels.random_normal, 100_000, 5, 0, 0, 0))
    steps = (np.arange(len(values)) + 0.5) / len(values)
    share = np.array([0.5 * (1 + erf(v / sqrt(2))) for v in values])
    assert np.abs(share - steps).max() < 1.63 / np.sqrt(len(values))


def test_normal_numbers_are_those_of_the_c_library_within_a_few_units():
    uniform = doubles(kernels.random_uniform, 20_000, 9, 0, 0, 0).reshape(-1, 2)
    wanted = np.sqrt(-2 * np.log(1 - uniform[:, 0])) * np.cos(2 * np.pi * uniform[:, 1])
    np.testing.assert_allclose(doubles(kernels.random_normal, 10_000, 9, 0, 0, 0), wanted, rtol=1e-13, atol=2e-15)


def test_streams_of_neighbouring_samples_are_not_alike():
    streams = np.stack([doubles(kernels.random_uniform, 200, 1, 0, sample, 0) for sample in range(200)])
    assert abs(np.corrcoef(streams)[np.triu_indices(200, 1)]).max() < 0.4
    columns = np.abs(streams.mean(0) - 0.5)
    assert columns.max() < 0.1


def test_no_number_lies_below_zero():
    with pytest.raises(kernels.Failure, match="no number lies below 0"):
        below(0, 1, 1, 1, 1, 1)
