"""The shuffled order: a bijection, the same everywhere and for ever, and as even as chance."""

from itertools import permutations
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader import kernels
from fastloader.samplers import Sequential, Shuffled

M64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & M64
    return x ^ x >> 31


def permute_slowly(n, seed, epoch, position):
    """The kernel's twin, from its description."""
    columns = isqrt(n - 1) + 1
    rows = -(-n // columns)
    key = mix((mix((seed + GOLDEN) & M64) + epoch + GOLDEN) & M64)
    keys = []
    for _ in range(16):
        key = (key + GOLDEN) & M64
        keys.append(mix(key))
    rounds = 16 if n < 65536 else 8
    while True:
        row, column = divmod(position, columns)
        for i in range(0, rounds, 2):
            column = (column + (mix((row + keys[i]) & M64) * columns >> 64)) % columns
            row = (row + (mix((column + keys[i + 1]) & M64) * rows >> 64)) % rows
        position = row * columns + column
        if position < n:
            return position


@given(st.integers(1, 2**62), st.integers(0, M64), st.integers(0, M64), st.data())
@settings(max_examples=200, deadline=None)
def test_the_kernel_agrees_with_its_twin_and_its_inverse_undoes_it(n, seed, epoch, data):
    position = data.draw(st.integers(0, n - 1))
    values = np.array([position], np.int64)
    kernels.permute(n, seed, epoch, values, values)
    assert values[0] == permute_slowly(n, seed, epoch, position)
    kernels.permute(n, seed, epoch, values, values, inverse=True)
    assert values[0] == position


@given(st.integers(1, 200) | st.integers(60_000, 70_000), st.integers(0, M64), st.integers(0, 40), st.data())
@settings(max_examples=100, deadline=None)
def test_many_at_once_agree_with_the_twin(n, seed, count, data):
    positions = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=count, max_size=count)), np.int64)
    samples = np.empty_like(positions)
    kernels.permute(n, seed, 1, positions, samples)
    assert samples.tolist() == [permute_slowly(n, seed, 1, position) for position in positions.tolist()]


@given(st.integers(1, 3000), st.integers(0, M64), st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_every_sample_comes_once(n, seed, epoch):
    assert sorted(Shuffled(n, seed).samples(epoch, 0, n).tolist()) == list(range(n))


def test_any_part_of_an_epoch_is_that_part_of_the_whole():
    order = Shuffled(1000, seed=3)
    whole = order.samples(5, 0, 1000)
    for first, count in ((0, 10), (990, 10), (333, 334), (1000, 0)):
        assert order.samples(5, first, count).tolist() == whole[first : first + count].tolist()


def test_the_order_is_the_same_for_ever():
    """A checkpoint of today must resume tomorrow: these numbers never change."""
    assert Shuffled(10, seed=7).samples(0, 0, 10).tolist() == [permute_slowly(10, 7, 0, i) for i in range(10)]
    assert Shuffled(10, seed=7).samples(0, 0, 10).tolist() == [2, 4, 7, 5, 0, 6, 3, 9, 8, 1]
    assert Shuffled(10**12, seed=7).samples(3, 10**11, 3).tolist() == [738344562405, 301218897754, 519164919604]


def test_seeds_and_epochs_give_other_orders():
    orders = {tuple(Shuffled(100, seed).samples(epoch, 0, 100)) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400


def test_all_orders_of_five_are_as_likely():
    counts = dict.fromkeys(permutations(range(5)), 0)
    for seed in range(24_000):
        counts[tuple(Shuffled(5, seed).samples(1, 0, 5).tolist())] += 1
    chi_square = sum((count - 200) ** 2 / 200 for count in counts.values())
    assert chi_square < 180  # 119 degrees of freedom: one in 4,000 by chance, and the seeds are fixed


def test_every_position_gets_every_sample_as_often_and_neighbours_are_independent():
    n, epochs = 64, 20_000
    orders = np.stack([Shuffled(n, 1).samples(epoch, 0, n) for epoch in range(epochs)])
    counts = np.stack([np.bincount(orders[:, i], minlength=n) for i in range(n)])
    expected = epochs / n
    assert ((counts - expected) ** 2 / expected).sum() < 63 * 63 + 5 * (2 * 63 * 63) ** 0.5
    gaps = np.bincount(((orders[:, 1:] - orders[:, :-1]) % n).ravel(), minlength=n)[1:]
    expected = gaps.sum() / (n - 1)
    assert ((gaps - expected) ** 2 / expected).sum() < 62 + 5 * (2 * 62) ** 0.5


def test_sequential_is_as_written():
    assert Sequential(10).samples(3, 4, 3).tolist() == [4, 5, 6]
    assert len(Sequential(10)) == len(Shuffled(10)) == 10


@pytest.mark.parametrize("place", [None, 0, 7, 8, 9])
@pytest.mark.parametrize("position", [-1, 10, 2**62])
def test_positions_outside_are_refused(position, place):
    values = np.array([position], np.int64) if place is None else np.arange(10)
    values[place or 0] = position
    for inverse in (False, True):
        with pytest.raises(kernels.Failure, match="past the end"):
            kernels.permute(10, 0, 0, values, values.copy(), inverse=inverse)


def test_orders_too_long_or_outputs_too_short_are_refused():
    with pytest.raises(kernels.Failure, match="at most"):
        kernels.permute(2**62 + 1, 0, 0, np.zeros(1, np.int64), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="differ in size"):
        kernels.permute(10, 0, 0, np.zeros(2, np.int64), np.zeros(1, np.int64))


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (8, 3), (0, -1), (11, 0)])
def test_parts_that_lie_outside_an_epoch_are_refused(first, count):
    for order in (Sequential(10), Shuffled(10)):
        with pytest.raises(IndexError, match=f"positions {first} to {first + count} of an order that has 10"):
            order.samples(0, first, count)


def test_wrong_arguments_are_refused():
    for order in (Sequential, Shuffled):
        with pytest.raises(ValueError, match="length=-1: at least 0"):
            order(-1)
        with pytest.raises(TypeError, match=r"length=1\.5: a whole number is needed"):
            order(1.5)
    for seed, message in ((-1, "seed=-1: at least 0"), (2**64, r"below 2\*\*64")):
        with pytest.raises(ValueError, match=message):
            Shuffled(10, seed)
