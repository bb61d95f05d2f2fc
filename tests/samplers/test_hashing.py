"""Hashes of numbers: SplitMix64 entered anywhere, invertible, and the same for ever."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.samplers.hashing import GOLDEN, MASK, Stream, fold, hashes, number_of


def splitmix(seed, draws):
    """The generator as its author published it, one draw after the other."""
    for _ in range(draws):
        seed = (seed + GOLDEN) & MASK
        z = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        yield z ^ z >> 31


@given(st.integers(0, MASK))
@settings(max_examples=50, deadline=None)
def test_hashes_of_the_numbers_from_0_are_the_generators_draws(key):
    assert hashes(key, np.arange(20)).tolist() == list(splitmix(key, 20))


@given(st.integers(0, MASK), st.integers(0, 2**63 - 1))
@settings(max_examples=200, deadline=None)
def test_a_hash_tells_its_number(key, number):
    assert number_of(key, int(hashes(key, np.array([number]))[0])) == number


def test_the_numbers_given_are_left_alone():
    numbers = np.arange(5)
    hashes(1, numbers)
    assert numbers.tolist() == [0, 1, 2, 3, 4]


def test_keys_depend_on_every_part_and_on_their_order():
    keys = {fold(a, b, c) for a in range(10) for b in range(10) for c in range(10)}
    assert len(keys) == 1000


def test_they_are_the_same_for_ever():
    assert fold(7, 3) == 0xF53A29A2695577C0
    assert hashes(42, np.array([0, 1, 10**12])).tolist() == [0xBDD732262FEB6E95, 0x28EFE333B266F103, 0x2FD6AB638429D3D7]
    assert {stream.name: int(stream) for stream in Stream} == {
        "WEIGHTED_DRAW": 1, "WEIGHTED_KEY": 2, "WINDOW": 3, "BUCKET": 4, "BATCHES": 5, "DIGEST": 6,
        "BLOCK": 16, "MIX": 17, "CALL": 18,
    }  # fmt: skip
