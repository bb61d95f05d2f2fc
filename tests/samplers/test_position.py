"""Saved positions: small, readable by another world, and refused where they mean something else."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.samplers import (
    BatchSchedule,
    FromIterable,
    LengthBuckets,
    Pages,
    Position,
    QuasiRandom,
    Schedule,
    Sequential,
    Shuffled,
    StateError,
    Subset,
    Weighted,
)

PAGES = Pages([0, 5, 8, 8, 20], [5, 3, 0, 12, 4])
LENGTHS = [5, 3, 9, 1, 7, 7, 2, 8, 4, 6]
SAVED = [  # these never change: a checkpoint of today must resume tomorrow
    (Schedule(Sequential(10), 2), {"kind": "sequential", "dataset": 10}),
    (Schedule(Shuffled(10, 7), 2), {"kind": "shuffled", "dataset": 10, "seed": 7}),
    (
        Schedule(Subset([4, 2, 9], 10, Shuffled(3, 7)), 2),
        {"kind": "subset, shuffled", "dataset": 10, "seed": 7, "indices": "76dd9eabb6ac6b7c"},
    ),
    (
        Schedule(Weighted([1, 2, 3]), 2),
        {
            "kind": "weighted", "dataset": 3, "seed": 0, "num_samples": 3, "replacement": 1,
            "weights": "d4eae4443a284f83",
        },
    ),
    (
        Schedule(QuasiRandom(PAGES, 2, 7, 2, 3), 2),
        {
            "kind": "quasi_random", "dataset": 24, "seed": 7, "window": 2, "lanes": 2, "run": 3,
            "pages": "57562cafa04b10d8",
        },
    ),
    (
        Schedule(FromIterable([3, 1, 2], 10), 2),
        {"kind": "iterable", "dataset": 10, "source": "list", "length": 3, "order": "84890dff90e6168a"},
    ),
    (
        BatchSchedule(LengthBuckets(LENGTHS, 2, num_buckets=3, seed=7)),
        {
            "kind": "length_buckets", "dataset": 10, "seed": 7, "batch_size": 2, "max_tokens": 0, "drop_last": 0,
            "lengths": "41bae1be1b7a548e",
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "order"), SAVED)
def test_a_state_is_a_few_numbers_that_never_change_their_form(plan, order):
    state = Position.of(plan, 3, 2).to_dict()
    assert state == {"version": 1, "epoch": 3, "done": 2, "order": order}
    assert len(json.dumps(state)) < 250
    position = Position.from_dict(json.loads(json.dumps(state)))
    assert position == Position.of(plan, 3, 2)
    position.check(plan)


@given(
    st.integers(1, 400), st.integers(1, 16), st.integers(1, 16), st.integers(1, 8), st.integers(1, 8),
    st.integers(0, 20), st.integers(0, 2**64 - 1),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_a_state_of_one_world_is_taken_up_by_another(length, before, after, size, other_size, steps, seed):
    plans = [Schedule(Shuffled(length, seed), size, rank=rank, world_size=before) for rank in range(before)]
    steps = min(steps, plans[0].steps())
    seen = [
        sample
        for step in range(steps)
        for plan in plans
        if step < plan.steps()
        for sample in plan.batch(5, step).tolist()
    ]
    states = {json.dumps(Position.of(plan, 5, plan.done_after(steps - 1) if steps else 0).to_dict()) for plan in plans}
    (state,) = states  # every rank saves the same
    for rank in range(after):
        plan = Schedule(Shuffled(length, seed), other_size, rank=rank, world_size=after)
        position = Position.from_dict(json.loads(state))
        position.check(plan)
        for step in range(plan.steps(position.done)):
            seen += plan.batch(position.epoch, step, position.done).tolist()
    assert sorted(seen) == list(range(length))


@pytest.mark.parametrize(
    ("saved", "loaded", "message"),
    [
        (Shuffled(10, 7), Shuffled(10, 8), "seed is 7 in the state and 8 here"),
        (Shuffled(10, 7), Shuffled(11, 7), "dataset is 10 in the state and 11 here"),
        (Sequential(10), Shuffled(10), "kind is sequential in the state and shuffled here; seed is nothing in the st"),
        (Subset([1, 2], 10), Subset([1, 3], 10), "indices is .{16} in the state and .{16} here"),
        (Subset([1, 2], 10), Subset([1, 2], 11), "dataset is 10 in the state and 11 here"),
        (Subset([1], 9), Subset([1], 9, Shuffled(1)), "kind is subset, sequential in the state and subset, shuffled"),
        (Weighted([1, 2]), Weighted([1, 3]), "weights is .{16} in the state"),
        (Weighted([1, 2]), Weighted([1, 2], 3), "num_samples is 2 in the state and 3 here"),
        (Weighted([1, 2]), Weighted([1, 2], replacement=False), "replacement is 1 in the state and 0 here"),
        (QuasiRandom(PAGES, 2), QuasiRandom(PAGES, 3), "window is 2 in the state and 3 here"),
        (QuasiRandom(PAGES, 2), QuasiRandom(PAGES, 2, lanes=2), "lanes is 1 in the state and 2 here"),
        (QuasiRandom(PAGES, 2), QuasiRandom(PAGES, 2, run=2), "run is 1 in the state and 2 here"),
        (QuasiRandom(PAGES, 2), QuasiRandom(PAGES.in_runs(2), 2), "pages is .{16} in the state"),
    ],
)
def test_a_state_of_another_order_is_refused_with_the_difference(saved, loaded, message):
    position = Position.of(Schedule(saved, 2), 0, 1)
    with pytest.raises(StateError, match=message) as caught:
        position.check(Schedule(loaded, 2))
    assert "start without the state" in str(caught.value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"batch_size": 3}, "batch_size is 2 in the state and 3 here"),
        ({"max_tokens": 90}, "max_tokens is 0 in the state and 90 here"),
        ({"num_buckets": 4}, "lengths is .{16} in the state"),
        ({"drop_last": True}, "drop_last is 0 in the state and 1 here"),
        ({"seed": 1}, "seed is 0 in the state and 1 here"),
    ],
)
def test_a_state_of_other_batches_is_refused(option, message):
    position = Position.of(BatchSchedule(LengthBuckets(LENGTHS, 2)), 0, 1)
    with pytest.raises(StateError, match=message):
        position.check(BatchSchedule(LengthBuckets(LENGTHS, **({"batch_size": 2} | option))))


def test_an_order_of_ones_own_is_known_by_class_and_length():
    class Backwards:
        def __init__(self, length):
            self.length = length

        def __len__(self):
            return self.length

        def samples(self, epoch, first, count):
            return Sequential(self.length).samples(epoch, first, count)[::-1]

    position = Position.of(Schedule(Backwards(10), 2), 0, 4)
    position.check(Schedule(Backwards(10), 5))
    with pytest.raises(StateError, match="length is 10 in the state and 11 here"):
        position.check(Schedule(Backwards(11), 2))
    with pytest.raises(StateError, match=r"kind is .*Backwards in the state and sequential here"):
        position.check(Schedule(Sequential(10), 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "the state has version 2; this fastloader reads 1"),
        ({"epoch": -1}, "in the state, epoch=-1: at least 0"),
        ({"done": "many"}, "in the state, done='many': a whole number is needed"),
        ({"order": [1]}, "the state's order is no dictionary"),
        ({"order": {"kind": [1]}}, "the state's order is no dictionary of numbers and strings"),
    ],
)
def test_broken_states_are_refused(change, message):
    state = Position.of(Schedule(Sequential(10), 2), 0, 4).to_dict() | change
    with pytest.raises(StateError, match=message):
        Position.from_dict(state)


def test_what_is_no_state_is_refused():
    with pytest.raises(StateError, match="the state has no done, order, version; give what"):
        Position.from_dict({"epoch": 1})
    with pytest.raises(StateError, match="a state is a dictionary, not a list"):
        Position.from_dict([])


def test_the_error_is_a_value_error_and_can_be_sent_to_another_process():
    with pytest.raises(ValueError, match="not a list") as caught:
        Position.from_dict([])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
