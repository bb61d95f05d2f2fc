"""Draws by weight: their frequencies, their independence of each other, and their order without replacement."""

import math
from bisect import bisect_right
from itertools import accumulate, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.samplers import Weighted
from fastloader.samplers import weighted as module
from fastloader.samplers.checks import checksum
from fastloader.samplers.hashing import Stream, fold, hashes
from fastloader.samplers.weighted import logarithm

WEIGHTS = [1, 0, 3, 2.5, 0, 0.25]
some_weights = st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(any)


def draw_slowly(weights, seed, epoch, position):
    value = int(hashes(fold(seed, Stream.WEIGHTED_DRAW, epoch), np.array([position]))[0])
    exponent = math.frexp(max(weights))[1]
    sums = list(accumulate(math.ldexp(weight, -exponent) for weight in weights))
    return bisect_right(sums, (value >> 11) / 2**53 * sums[-1])


def order_slowly(weights, seed, epoch):
    key = fold(seed, Stream.WEIGHTED_KEY, epoch)
    uniform = [((int(value) >> 12) + 0.5) / 2**52 for value in hashes(key, np.arange(len(weights)))]
    return sorted((i for i, w in enumerate(weights) if w), key=lambda i: -math.log(uniform[i]) / weights[i])


@given(some_weights, st.integers(0, 2**64 - 1), st.integers(0, 1000), st.integers(0, 2**50))
@settings(max_examples=100, deadline=None)
def test_draws_with_replacement_agree_with_their_slow_twin(weights, seed, epoch, position):
    order = Weighted(weights, num_samples=2**51, seed=seed)
    expected = [draw_slowly(weights, seed, epoch, position + i) for i in range(5)]
    assert order.samples(epoch, position, 5).tolist() == expected


@given(st.lists(st.sampled_from([0, 0.25, 1, 1, 7, 1000]), min_size=1).filter(any), st.integers(0, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_orders_without_replacement_agree_with_their_slow_twin(weights, seed):
    order = Weighted(weights, replacement=False, seed=seed)
    assert order.samples(2, 0, len(order)).tolist() == order_slowly(weights, seed, 2)


def test_samples_come_as_often_as_they_weigh():
    count = 200_000
    found = np.bincount(Weighted(WEIGHTS, count, seed=1).samples(0, 0, count), minlength=6) / count
    expected = np.array(WEIGHTS) / sum(WEIGHTS)
    assert np.abs(found - expected).max() < 0.005
    assert found[1] == found[4] == 0


@pytest.mark.parametrize(
    ("value", "weights", "expected"),
    [
        (0, [0, 1, 1], 1),
        (2**63, [1, 0, 1], 2),
        (2**63 - 1, [1, 0, 1], 0),
        (2**64 - 1, [1, 1, 0], 1),
        (2**64 - 1, [0.3, 1e-300, 0.7, 5e-324], 2),
        (2**64 - 1, [5e-324, 0], 0),
    ],
)
def test_the_ends_of_the_range_give_samples_that_have_weight(value, weights, expected, monkeypatch):
    monkeypatch.setattr(module, "hashes", lambda key, numbers: np.full(len(numbers), value, np.uint64))
    assert Weighted(weights).samples(0, 0, 1).tolist() == [expected]


def test_every_order_without_replacement_is_as_likely_as_drawing_one_after_the_other():
    weights = [1, 2, 4]
    counts = dict.fromkeys(permutations(range(3)), 0)
    rounds = 20_000
    for epoch in range(rounds):
        counts[tuple(Weighted(weights, replacement=False, seed=5).samples(epoch, 0, 3).tolist())] += 1
    chi_square = 0.0
    for (a, b, _), count in counts.items():
        expected = rounds * weights[a] / 7 * weights[b] / (7 - weights[a])
        chi_square += (count - expected) ** 2 / expected
    assert chi_square < 20.5  # 5 degrees of freedom: one in a thousand by chance, and the seed is fixed


def test_any_part_of_an_epoch_is_that_part_of_the_whole():
    for order in (Weighted(WEIGHTS, 100), Weighted(np.arange(200), 100, replacement=False)):
        whole = order.samples(5, 0, 100)
        for first, count in ((0, 10), (90, 10), (33, 34), (100, 0)):
            assert order.samples(5, first, count).tolist() == whole[first : first + count].tolist()


def test_no_sample_comes_twice_without_replacement():
    samples = Weighted(np.ones(1000), 600, replacement=False).samples(3, 0, 600)
    assert len(set(samples.tolist())) == 600


@pytest.mark.parametrize("replacement", [True, False])
def test_seeds_and_epochs_give_other_draws(replacement):
    orders = {
        tuple(Weighted(np.ones(30), replacement=replacement, seed=seed).samples(epoch, 0, 30))
        for seed in range(10)
        for epoch in range(10)
    }
    assert len(orders) == 100


def test_the_number_of_draws_is_that_of_samples_that_can_come_unless_given():
    assert len(Weighted(WEIGHTS)) == 6
    assert len(Weighted(WEIGHTS, replacement=False)) == 4
    assert len(Weighted(WEIGHTS, 2, replacement=False)) == 2


def test_the_order_is_the_same_for_ever():
    """A checkpoint of today must resume tomorrow: these numbers never change."""
    draws = Weighted(WEIGHTS, num_samples=10**13, seed=7).samples(3, 10**12, 12)
    assert draws.tolist() == [3, 3, 2, 2, 3, 3, 0, 3, 0, 2, 2, 2]
    order = Weighted([*WEIGHTS, 7, 7, 7], replacement=False, seed=7)
    assert order.samples(3, 0, 7).tolist() == [8, 6, 0, 3, 7, 2, 5]


def test_the_logarithm_is_right_to_the_last_bits():
    values = np.concatenate([np.random.default_rng(0).random(10_000), 2.0 ** -np.arange(1, 60), [0.5, 1 - 2.0**-53]])
    expected = np.array([math.log(value) for value in values])
    assert np.all(np.abs(logarithm(values) - expected) <= 8e-16 * np.abs(expected))
    assert values.min() < 1e-17  # the input is left alone


def test_not_a_bit_of_the_logarithm_ever_changes_on_any_machine():
    values = ((hashes(1, np.arange(100_000)) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    assert checksum(logarithm(values)) == "ed1e517aa847c1a2"


def test_very_small_weights_come_last_and_very_large_ones_do_not_overflow():
    assert Weighted([5e-324, 1, 5e-324], replacement=False).samples(0, 0, 1).tolist() == [1]
    assert len(Weighted([1e308] * 10, replacement=False).samples(0, 0, 10)) == 10
    plain = Weighted([1] * 10, 1000).samples(0, 0, 1000).tolist()
    for weight in (5e-324, 2.0**-1000, 2.0**1023):
        assert Weighted([weight] * 10, 1000).samples(0, 0, 1000).tolist() == plain


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": [1, -1]}, r"weights\[1\]=-1.0: finite, and not below 0"),
        ({"weights": [1, 2, math.nan]}, r"weights\[2\]=nan: finite"),
        ({"weights": [math.inf]}, r"weights\[0\]=inf: finite"),
        ({"weights": [0, 0]}, "no weight is above 0"),
        ({"weights": []}, "no weight is above 0"),
        ({"weights": [[1]]}, r"weights have shape \(1, 1\)"),
        ({"weights": [1], "num_samples": -1}, "num_samples=-1: at least 0"),
        ({"weights": [1], "seed": 2**64}, r"seed=18446744073709551616: below 2\*\*64"),
        (
            {"weights": [1, 0, 1], "num_samples": 3, "replacement": False},
            "num_samples=3 without replacement, but only 2 of 3 weights are above 0",
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Weighted(**arguments)


def test_positions_outside_are_refused():
    with pytest.raises(IndexError, match="positions 4 to 7 of an order that has 6"):
        Weighted(WEIGHTS).samples(0, 4, 3)
