"""Orders from iterables: lists, and classes that look like torch's samplers."""

import itertools
import pickle
import random

import numpy as np
import pytest

from fastloader.samplers import BatchSchedule, FromBatches, FromIterable, Position, Schedule, StateError


class SeededSampler:
    """As torch's DistributedSampler: a length, an order for each epoch, ``set_epoch``."""

    def __init__(self, length):
        self.length, self.epoch, self.passes = length, 0, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.length

    def __iter__(self):
        self.passes += 1
        return iter(random.Random(self.epoch).sample(range(self.length), self.length))


class WithoutLength:
    def __init__(self, *numbers):
        self.numbers = numbers

    def __iter__(self):
        return iter(self.numbers)


class Moody:
    """Another order at every pass, as torch's RandomSampler without a generator."""

    passes = 0

    def __len__(self):
        return 50

    def __iter__(self):
        self.passes += 1
        return iter(random.Random(self.passes).sample(range(50), 50))


def test_the_numbers_come_as_the_iterable_gives_them():
    assert FromIterable([3, 1, 2], 10).samples(0, 0, 3).tolist() == [3, 1, 2]
    assert FromIterable(np.array([3, 1, 2]), 10).samples(4, 1, 2).tolist() == [1, 2]
    assert FromIterable(range(5), 5).samples(0, 0, 5).tolist() == [0, 1, 2, 3, 4]


def test_the_iterable_is_told_the_epoch_and_gone_through_once_for_it():
    sampler = SeededSampler(20)
    order = FromIterable(sampler, 20)
    assert len(order) == 20
    assert sampler.passes == 0
    for epoch in (0, 1, 0, 1):
        expected = random.Random(epoch).sample(range(20), 20)
        assert [int(order.samples(epoch, i, 1)[0]) for i in range(20)] == expected
    assert sampler.passes == 2


def test_an_iterable_without_a_length_is_counted_once():
    order = FromIterable(WithoutLength(4, 2, 0), 5)
    for epoch in range(4):
        assert len(order) == 3
        assert order.samples(epoch, 0, 3).tolist() == [4, 2, 0]


def test_the_caller_cannot_change_what_is_kept():
    order = FromIterable([3, 1, 2], 10)
    order.samples(0, 0, 3)[:] = 0
    assert order.samples(0, 0, 3).tolist() == [3, 1, 2]


def test_it_survives_pickling():
    order = FromIterable([3, 1, 2], 10)
    assert pickle.loads(pickle.dumps(order)).samples(0, 0, 3).tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ((i for i in range(3)), TypeError, "a generator can be gone through once"),
        (iter([1, 2]), TypeError, "a list_iterator can be gone through once"),
        (7, TypeError, "int can't be iterated over"),
        ([1, 2.5], TypeError, "list: whole numbers are needed"),
        ([[1, 2], [0]], TypeError, "where it gives batches, give it as fastloader.samplers.FromBatches"),
        ([1, 10], ValueError, r"list, number \[1\]=10: the dataset has samples 0 to 9"),
        ([-1], ValueError, r"list, number \[0\]=-1: the dataset"),
    ],
)
def test_what_is_no_list_of_samples_is_refused(source, error, message):
    with pytest.raises(error, match=message):
        FromIterable(source, 10).samples(0, 0, 1)


def test_a_length_that_is_not_kept_is_refused():
    class Liar(WithoutLength):
        def __len__(self):
            return 3

    with pytest.raises(ValueError, match="Liar gave 2 sample numbers in epoch 0, and 3 were announced"):
        FromIterable(Liar(0, 1), 9).samples(0, 0, 2)
    with pytest.raises(ValueError, match="Liar gave more than 3 sample numbers"):
        FromIterable(Liar(*range(9)), 9).samples(0, 0, 2)

    class Endless(Liar):
        def __iter__(self):
            return itertools.repeat(1)

    with pytest.raises(ValueError, match="Endless gave more than 3"):
        FromIterable(Endless(), 9).samples(0, 0, 2)


def test_an_epoch_is_resumed_by_going_through_it_again():
    plan = Schedule(FromIterable(SeededSampler(20), 20), 4)
    state = Position.of(plan, 3, 8).to_dict()
    again = Schedule(FromIterable(SeededSampler(20), 20), 4)
    Position.from_dict(state).check(again)
    assert again.batch(3, 0, done=8).tolist() == plan.batch(3, 2).tolist()


def test_an_iterable_that_gives_another_order_the_second_time_is_found_out():
    sampler = Moody()
    position = Position.of(Schedule(FromIterable(sampler, 50), 4), 0, 8)
    with pytest.raises(StateError, match=r"order is [0-9a-f]{16} in the state and [0-9a-f]{16} here"):
        position.check(Schedule(FromIterable(sampler, 50), 4))


def test_at_the_start_of_an_epoch_nothing_is_gone_through_to_save_a_position():
    sampler = SeededSampler(20)
    Position.of(Schedule(FromIterable(sampler, 20), 4), 1, 0).check(Schedule(FromIterable(sampler, 20), 8))
    assert sampler.passes == 0


class BatchSampler:
    """As torch's: lists of the numbers another sampler gives, which alone is told of epochs."""

    def __init__(self, sampler, size):
        self.sampler, self.size = sampler, size

    def __iter__(self):
        numbers = list(self.sampler)
        for first in range(0, len(numbers), self.size):
            yield numbers[first : first + self.size]


def test_batches_come_as_the_iterable_gives_them():
    sampler = SeededSampler(10)
    order = FromBatches(BatchSampler(sampler, 4), 10)
    for epoch in (0, 1, 0):
        numbers = random.Random(epoch).sample(range(10), 10)
        assert order.num_batches(epoch) == 3
        batches = [order.batch(epoch, number).tolist() for number in range(3)]
        assert batches == [numbers[:4], numbers[4:8], numbers[8:]]
    assert sampler.passes == 2


def test_the_number_of_batches_may_differ_from_epoch_to_epoch():
    class Growing:
        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([[i] for i in range(self.epoch + 1)])

    plan = BatchSchedule(FromBatches(Growing(), 10))
    assert [plan.steps(epoch=epoch) for epoch in range(5)] == [1, 2, 3, 4, 5]
    assert plan.done_after(3, epoch=4) == 4


def test_wrong_batches_are_refused():
    with pytest.raises(TypeError, match="list, batch 1: whole numbers are needed"):
        FromBatches([[1], ["a"]], 10).num_batches(0)
    with pytest.raises(ValueError, match=r"list, batch 1, number \[1\]=10: the dataset"):
        FromBatches([[1], [1, 10]], 10).num_batches(0)
    with pytest.raises(IndexError, match="positions 2 to 3 of an order that has 2"):
        FromBatches([[1], [2]], 10).batch(0, 2)
    with pytest.raises(TypeError, match="gone through once"):
        FromBatches(iter([[1]]), 10)
