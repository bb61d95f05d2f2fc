"""Batches of similar length: each sample once, little padding, another mixture each epoch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.samplers import BatchOrder, BatchSchedule, LengthBuckets

lengths_of_any_kind = st.lists(st.integers(0, 50), max_size=80)


def all_batches(order, epoch=0):
    return [order.batch(epoch, number).tolist() for number in range(order.num_batches(epoch))]


def padding(order, lengths):
    batches = [np.asarray(lengths)[batch] for batch in all_batches(order)]
    return sum(int((batch.max() - batch).sum()) for batch in batches) / sum(lengths)


@given(lengths_of_any_kind, st.integers(1, 9), st.integers(1, 20), st.integers(0, 2**64 - 1), st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_every_sample_comes_once_and_batches_stay_within_a_bucket(lengths, size, buckets, seed, epoch):
    order = LengthBuckets(lengths, size, num_buckets=buckets, seed=seed)
    batches = all_batches(order, epoch)
    assert sorted(sample for batch in batches for sample in batch) == list(range(len(lengths)))
    assert order.num_buckets <= buckets
    short = 0
    for batch in batches:
        assert len({int(np.searchsorted(order.boundaries, lengths[sample], "right")) for sample in batch}) == 1
        short += len(batch) < size
    assert short <= order.num_buckets


@given(lengths_of_any_kind, st.integers(50, 200), st.integers(0, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_no_padded_batch_has_more_tokens_than_allowed(lengths, limit, seed):
    order = LengthBuckets(lengths, max_tokens=limit, num_buckets=4, seed=seed)
    batches = all_batches(order)
    assert all(max(lengths[sample] for sample in batch) * len(batch) <= limit for batch in batches)
    assert sorted(sample for batch in batches for sample in batch) == list(range(len(lengths)))


def test_both_limits_hold():
    lengths = [1] * 50 + [10] * 50
    sizes = {len(batch) for batch in all_batches(LengthBuckets(lengths, 25, max_tokens=100, boundaries=[5]))}
    assert sizes == {25, 10}


def test_boundaries_are_upper_ends_that_do_not_belong():
    order = LengthBuckets([1, 4, 5, 6, 9, 10, 99], 100, boundaries=[5, 10])
    assert sorted(sorted(batch) for batch in all_batches(order)) == [[0, 1], [2, 3, 4], [5, 6]]


def test_more_buckets_pad_less():
    lengths = np.random.default_rng(0).integers(1, 500, 4000)
    few, default, many = (padding(LengthBuckets(lengths, 20, num_buckets=n), lengths) for n in (1, None, 64))
    assert few > 0.5
    assert default < few / 5
    assert many < default / 2


def test_buckets_chosen_by_number_are_about_equally_full():
    lengths = np.random.default_rng(0).geometric(0.01, 10_000)
    order = LengthBuckets(lengths, 10, num_buckets=8)
    full = np.bincount(np.searchsorted(order.boundaries, lengths, "right"))
    assert len(full) == order.num_buckets == 8
    assert full.min() > 0.8 * full.max()


def test_drop_last_leaves_out_short_batches():
    lengths = [1] * 10 + [9] * 11
    kept = all_batches(LengthBuckets(lengths, 4, boundaries=[5], drop_last=True))
    assert [len(batch) for batch in kept] == [4] * 4
    assert sorted(len(batch) for batch in all_batches(LengthBuckets(lengths, 4, boundaries=[5]))) == [2, 3] + [4] * 4


def test_samples_and_batches_are_shuffled_by_seed_and_epoch():
    lengths = list(range(64))
    orders = {
        (seed, epoch): all_batches(LengthBuckets(lengths, 4, num_buckets=4, seed=seed), epoch)
        for seed in range(5)
        for epoch in range(5)
    }
    assert len({str(batches) for batches in orders.values()}) == 25
    assert len({str(sorted(sorted(batch) for batch in batches)) for batches in orders.values()}) == 25
    first_buckets = {batches[0][0] // 16 for batches in orders.values()}
    assert first_buckets == {0, 1, 2, 3}


def test_the_order_is_the_same_for_ever():
    """A checkpoint of today must resume tomorrow: these numbers never change."""
    order = LengthBuckets([5, 3, 9, 1, 7, 7, 2, 8, 4, 6], batch_size=2, num_buckets=3, seed=7)
    assert order.boundaries == (4, 7)
    assert all_batches(order, 3) == [[0], [3], [7, 5], [6, 1], [2, 4], [9, 8]]


def test_it_is_an_order_of_batches_that_ranks_share():
    order = LengthBuckets(list(range(50)), 4, num_buckets=3)
    assert isinstance(order, BatchOrder)
    plans = [BatchSchedule(order, rank, 3) for rank in range(3)]
    dealt = [plan.batch(0, step).tolist() for plan in plans for step in range(plan.steps())]
    assert sorted(dealt) == sorted(all_batches(order))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give batch_size, max_tokens or both"),
        ({"batch_size": 0}, "batch_size=0: at least 1"),
        ({"max_tokens": 4}, "max_tokens=4: sample 1 alone has 9; cut it"),
        ({"batch_size": 1, "num_buckets": 0}, "num_buckets=0: at least 1"),
        ({"batch_size": 1, "num_buckets": 2, "boundaries": [3]}, "num_buckets or boundaries, not both"),
        ({"batch_size": 1, "boundaries": [3, 3]}, r"boundaries=\[3, 3\]: each above the one before"),
        ({"batch_size": 1, "seed": -1}, "seed=-1: at least 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LengthBuckets([1, 9, 3], **arguments)


def test_wrong_lengths_and_batch_numbers_are_refused():
    with pytest.raises(ValueError, match=r"lengths\[1\]=-2: at least 0"):
        LengthBuckets([1, -2], 1)
    with pytest.raises(TypeError, match="lengths are of type float64"):
        LengthBuckets([1.5], 1)
    with pytest.raises(IndexError, match="positions 3 to 4 of an order that has 3"):
        LengthBuckets([1, 2, 3], 1).batch(0, 3)
