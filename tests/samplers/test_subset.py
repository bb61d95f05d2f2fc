"""Some samples of a dataset: by number or by mask, in any inner order."""

import numpy as np
import pytest

from fastloader.samplers import Pages, QuasiRandom, Shuffled, Subset, Weighted


def test_indices_come_as_listed():
    order = Subset([7, 3, 3, 9], 10)
    assert len(order) == 4
    assert order.samples(0, 0, 4).tolist() == [7, 3, 3, 9]
    assert order.samples(5, 1, 2).tolist() == [3, 3]


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "uint64"])
def test_any_type_of_whole_numbers_does(dtype):
    assert Subset(np.array([5, 2], dtype), 10).samples(0, 0, 2).tolist() == [5, 2]


def test_a_mask_picks_where_it_is_true():
    assert Subset(np.arange(6) % 2 == 1, 6).samples(0, 0, 3).tolist() == [1, 3, 5]
    assert len(Subset([False] * 6, 6)) == len(Subset([], 6)) == 0


def test_the_inner_order_decides():
    inner = Shuffled(3, seed=7)
    order = Subset([4, 2, 9], 10, inner)
    for epoch in range(5):
        expected = np.array([4, 2, 9])[inner.samples(epoch, 0, 3)]
        assert order.samples(epoch, 0, 3).tolist() == expected.tolist()
    drawn = Subset([4, 2, 9], 10, Weighted([0, 1, 1], num_samples=50))
    assert len(drawn) == 50
    assert set(drawn.samples(0, 0, 50).tolist()) == {2, 9}


def test_a_subset_in_quasi_random_order_keeps_the_samples_of_a_page_together():
    indices = np.flatnonzero(np.arange(100) % 3)
    pages = Pages(np.arange(0, 100, 10), np.full(10, 10))
    order = Subset(indices, 100, QuasiRandom(pages.within(indices), window=1, seed=3))
    samples = order.samples(0, 0, len(order))
    assert sorted(samples.tolist()) == indices.tolist()
    assert np.count_nonzero(np.diff(samples // 10)) == 9
    with pytest.raises(ValueError, match="ascend; sort them"):
        pages.within(np.array([3, 2]))


def test_a_later_change_of_the_callers_array_has_no_effect():
    indices = np.array([1, 2, 3])
    order = Subset(indices, 10)
    indices[:] = 9
    assert order.samples(0, 0, 3).tolist() == [1, 2, 3]
    taken = order.samples(0, 0, 3)
    taken[:] = 0
    assert order.samples(0, 0, 3).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        ([0, 10], ValueError, r"indices\[1\]=10: the dataset has samples 0 to 9"),
        ([0, 3, -1], ValueError, r"indices\[2\]=-1: at least 0"),
        (np.array([2**64 - 1], np.uint64), ValueError, r"indices\[0\]=18446744073709551615: below 2\*\*63"),
        ([0.5], TypeError, "indices are of type float64; whole numbers"),
        ([[1, 2]], ValueError, r"indices have shape \(1, 2\); one dimension"),
        ([True] * 9, ValueError, "the mask has 9 values for a dataset of 10 samples"),
    ],
)
def test_wrong_indices_are_refused(indices, error, message):
    with pytest.raises(error, match=message):
        Subset(indices, 10)


def test_an_inner_order_of_another_length_is_refused():
    with pytest.raises(ValueError, match="the order is one of 4 samples, and there are 3 indices"):
        Subset([1, 2, 3], 10, Shuffled(4))
