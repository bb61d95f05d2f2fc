"""Batches dealt to ranks: from any place in an epoch, under each policy for its end."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.samplers import BatchSchedule, Schedule, Sequential, Shuffled

POLICIES = ("drop", "pad", "uneven")
sizes = st.integers(1, 9)
worlds = st.integers(1, 16)


def deal(length, batch_size, world_size, remainder="uneven", drop_last=False, done=0, epoch=0, order=None):
    """What each rank gets: a list of batches for each."""
    order = order or Sequential(length)
    plans = [Schedule(order, batch_size, drop_last, rank, world_size, remainder) for rank in range(world_size)]
    return [[plan.batch(epoch, step, done).tolist() for step in range(plan.steps(done))] for plan in plans]


def deal_slowly(length, batch_size, world_size, remainder, drop_last, done):
    """The same from the table in the documentation, with lists."""
    left, ranks = list(range(done, length)), [[] for _ in range(world_size)]
    while len(left) >= batch_size * world_size:
        for rank in ranks:
            rank.append(left[:batch_size])
            left = left[batch_size:]
    if remainder == "uneven":
        last = [left[rank * batch_size : (rank + 1) * batch_size] for rank in range(world_size)]
        if drop_last:
            last = [batch if len(batch) == batch_size else [] for batch in last]
    else:
        if remainder == "pad":
            size = 0 if not left else batch_size if drop_last else -(-len(left) // world_size)
            at = 0
            while len(left) < size * world_size:
                left.append(at % length)
                at += 1
        else:
            size = 0 if drop_last else len(left) // world_size
        last = [left[rank * size : (rank + 1) * size] for rank in range(world_size)]
    for rank, batch in zip(ranks, last, strict=True):
        if batch:
            rank.append(batch)
    return ranks


@given(st.integers(0, 200), sizes, worlds, st.sampled_from(POLICIES), st.booleans(), st.data())
@settings(max_examples=400, deadline=None)
def test_it_agrees_with_its_slow_twin(length, batch_size, world_size, remainder, drop_last, data):
    done = data.draw(st.integers(0, length))
    arguments = (length, batch_size, world_size, remainder, drop_last, done)
    assert deal(*arguments) == deal_slowly(*arguments)


@given(st.integers(0, 300), sizes, worlds)
@settings(max_examples=150, deadline=None)
def test_uneven_gives_every_sample_once_and_counts_differ_by_one_at_most(length, batch_size, world_size):
    ranks = deal(length, batch_size, world_size, "uneven")
    assert sorted(sample for rank in ranks for batch in rank for sample in batch) == list(range(length))
    counts = [len(rank) for rank in ranks]
    assert max(counts) - min(counts) <= 1
    assert sum(len(batch) < batch_size for rank in ranks for batch in rank) <= 1


@given(st.integers(1, 300), sizes, worlds, st.booleans())
@settings(max_examples=150, deadline=None)
def test_pad_gives_every_sample_and_all_ranks_batches_of_the_same_sizes(length, batch_size, world_size, drop_last):
    ranks = deal(length, batch_size, world_size, "pad", drop_last)
    assert len({tuple(len(batch) for batch in rank) for rank in ranks}) == 1
    seen = Counter(sample for rank in ranks for batch in rank for sample in batch)
    assert set(seen) == set(range(length))
    repeated = sum(seen.values()) - length
    assert repeated < (batch_size * world_size if drop_last else world_size)
    if drop_last:
        assert all(len(batch) == batch_size for rank in ranks for batch in rank)


@given(st.integers(0, 300), sizes, worlds, st.booleans())
@settings(max_examples=150, deadline=None)
def test_drop_repeats_nothing_and_leaves_out_less_than_a_step(length, batch_size, world_size, drop_last):
    ranks = deal(length, batch_size, world_size, "drop", drop_last)
    assert len({tuple(len(batch) for batch in rank) for rank in ranks}) == 1
    seen = sorted(sample for rank in ranks for batch in rank for sample in batch)
    assert seen == list(range(len(seen)))
    assert length - len(seen) < (batch_size * world_size if drop_last else world_size)
    if drop_last:
        assert all(len(batch) == batch_size for rank in ranks for batch in rank)


@given(st.integers(0, 200), sizes, worlds, st.sampled_from(POLICIES), st.booleans())
@settings(max_examples=150, deadline=None)
def test_done_counts_what_was_dealt_and_the_last_step_leaves_none(length, batch_size, world_size, remainder, drop_last):
    ranks = deal(length, batch_size, world_size, remainder, drop_last)
    plan = Schedule(Sequential(length), batch_size, drop_last, 0, world_size, remainder)
    seen = set()
    for step in range(max(len(rank) for rank in ranks)):
        for rank in ranks:
            seen |= set(rank[step]) if step < len(rank) else set()
        done = plan.done_after(step)
        assert seen == set(range(done))
        again = deal(length, batch_size, world_size, remainder, drop_last, done)
        assert again == [rank[step + 1 :] for rank in ranks]
    with pytest.raises(IndexError, match="from here to the epoch's end"):
        plan.done_after(max(len(rank) for rank in ranks))


@given(
    st.integers(1, 500),
    st.lists(st.tuples(worlds, sizes, st.integers(0, 5)), min_size=1, max_size=6),
    worlds,
    st.integers(0, 2**64 - 1),
)
@settings(max_examples=300, deadline=None)
def test_worlds_may_change_again_and_again_and_every_sample_comes_once(length, chain, last_world, seed):
    """Some steps in each of several worlds, then the rest of the epoch in another one."""
    order, done, seen = Shuffled(length, seed), 0, []
    for world_size, batch_size, steps in chain:
        plans = [Schedule(order, batch_size, rank=rank, world_size=world_size) for rank in range(world_size)]
        steps = min(steps, max(plan.steps(done) for plan in plans))
        for step in range(steps):
            for plan in plans:
                if step < plan.steps(done):
                    seen += plan.batch(2, step, done).tolist()
        if steps:
            (done,) = {plan.done_after(steps - 1, done) for plan in plans}
        assert len(seen) == done
    for rank in deal(length, 3, last_world, done=done, epoch=2, order=order):
        seen += [sample for batch in rank for sample in batch]
    assert sorted(seen) == list(range(length))


@pytest.mark.parametrize("world_size", range(1, 17))
def test_an_epoch_begun_by_any_world_is_finished_by_any_other(world_size):
    order = Shuffled(331, seed=5)
    for later in range(1, 17):
        first = deal(331, 3, world_size, order=order)
        done = Schedule(order, 3, world_size=world_size).done_after(1)
        rest = deal(331, 4, later, done=done, order=order)
        seen = [sample for rank in first for batch in rank[:2] for sample in batch]
        seen += [sample for rank in rest for batch in rank for sample in batch]
        assert sorted(seen) == list(range(331))


def test_a_step_is_a_run_of_the_order_that_ranks_take_in_turn():
    order = Shuffled(100, seed=7)
    whole = order.samples(4, 0, 100).tolist()
    ranks = deal(100, 5, 4, epoch=4, order=order)
    for step in range(5):
        assert [sample for rank in ranks for sample in rank[step]] == whole[step * 20 : (step + 1) * 20]


@pytest.mark.parametrize(
    ("remainder", "drop_last", "expected"),
    [  # 22 samples, 3 ranks, batches of 4: one whole step, and 10 samples for the second
        ("uneven", False, [[12, 13, 14, 15], [16, 17, 18, 19], [20, 21]]),
        ("uneven", True, [[12, 13, 14, 15], [16, 17, 18, 19], None]),
        ("drop", False, [[12, 13, 14], [15, 16, 17], [18, 19, 20]]),
        ("drop", True, [None, None, None]),
        ("pad", False, [[12, 13, 14, 15], [16, 17, 18, 19], [20, 21, 0, 1]]),
        ("pad", True, [[12, 13, 14, 15], [16, 17, 18, 19], [20, 21, 0, 1]]),
    ],
)
def test_the_example_in_the_documentation(remainder, drop_last, expected):
    ranks = deal(22, 4, 3, remainder, drop_last)
    assert [rank[1] if len(rank) > 1 else None for rank in ranks] == expected


def test_drop_last_under_pad_makes_the_last_batch_whole():
    assert [rank[-1] for rank in deal(15, 4, 3, "pad")] == [[12], [13], [14]]
    assert [rank[-1] for rank in deal(15, 4, 3, "pad", drop_last=True)] == [[12, 13, 14, 0], [1, 2, 3, 4], [5, 6, 7, 8]]


def test_a_dataset_smaller_than_the_world_is_repeated_as_often_as_it_takes():
    assert deal(2, 1, 5, "pad") == [[[0]], [[1]], [[0]], [[1]], [[0]]]
    assert deal(2, 3, 3, "pad", drop_last=True) == [[[0, 1, 0]], [[1, 0, 1]], [[0, 1, 0]]]
    assert deal(2, 1, 5, "drop") == [[], [], [], [], []]
    assert deal(0, 1, 2, "pad") == [[], []]


def test_single_process_defaults_give_a_short_last_batch():
    plan = Schedule(Sequential(10), 4)
    assert [plan.batch(0, step).tolist() for step in range(plan.steps())] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert Schedule(Sequential(10), 4, drop_last=True).steps() == 2


class NamedBatches:
    """Batches of one sample, which is ten times the batch's number."""

    def num_batches(self, epoch):
        return 7 + epoch

    def batch(self, epoch, number):
        return np.array([number * 10])


@pytest.mark.parametrize(
    ("remainder", "expected"),
    [
        ("uneven", [[0, 30, 60], [10, 40], [20, 50]]),
        ("drop", [[0, 30], [10, 40], [20, 50]]),
        ("pad", [[0, 30, 60], [10, 40, 0], [20, 50, 10]]),
    ],
)
def test_whole_batches_are_dealt_in_turn(remainder, expected):
    plans = [BatchSchedule(NamedBatches(), rank, 3, remainder) for rank in range(3)]
    assert [[int(plan.batch(0, step)[0]) for step in range(plan.steps())] for plan in plans] == expected
    assert [plan.done_after(1) for plan in plans] == [6, 6, 6]
    assert [plan.steps(done=6) for plan in plans] == [len(rank) - 2 for rank in expected]
    assert plans[0].steps(epoch=2) == 3
    if remainder != "drop":
        assert plans[0].done_after(2) == 7
        assert plans[0].batch(0, 0, done=6).tolist() == [60]


@given(st.integers(0, 60), st.lists(st.tuples(worlds, st.integers(0, 3)), max_size=4), worlds)
@settings(max_examples=100, deadline=None)
def test_whole_batches_come_once_whichever_worlds_take_turns(epoch, chain, last_world):
    done, seen = 0, []
    for world_size, steps in [*chain, (last_world, 1000)]:
        plans = [BatchSchedule(NamedBatches(), rank, world_size) for rank in range(world_size)]
        steps = min(steps, plans[0].steps(done, epoch))
        for step in range(steps):
            seen += [plan.batch(epoch, step, done)[0] for plan in plans if step < plan.steps(done, epoch)]
        done = plans[0].done_after(steps - 1, done, epoch) if steps else done
    assert sorted(seen) == [number * 10 for number in range(7 + epoch)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: at least 1"),
        ({"rank": 2, "world_size": 2}, "rank=2: below world_size=2"),
        ({"rank": -1}, "rank=-1: at least 0"),
        ({"world_size": 0}, "world_size=0: at least 1"),
        ({"remainder": "keep"}, "remainder='keep': one of drop, pad, uneven"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Schedule(Sequential(10), **({"batch_size": 4} | arguments))


def test_orders_of_the_other_kind_are_refused():
    with pytest.raises(TypeError, match="NamedBatches is no order of samples"):
        Schedule(NamedBatches(), 4)
    with pytest.raises(TypeError, match="Sequential is no order of batches"):
        BatchSchedule(Sequential(10))


def test_steps_and_places_outside_are_refused():
    plan = Schedule(Sequential(10), 2, rank=1, world_size=2)
    for step in (-1, 2):
        with pytest.raises(IndexError, match=f"step {step}: rank 1 has 2 from here to the epoch's end"):
            plan.batch(0, step)
    for done in (-1, 11):
        with pytest.raises(ValueError, match=f"done={done} of an epoch that has 10"):
            plan.steps(done)
    with pytest.raises(ValueError, match="epoch=-1: at least 0"):
        plan.batch(-1, 0)
