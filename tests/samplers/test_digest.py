"""The digest of an epoch: ranks add up to the whole, and whatever is missing or repeated shows."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.samplers import EpochDigest, LengthBuckets, Schedule, Sequential, Shuffled, Weighted
from fastloader.samplers import digest as module
from fastloader.samplers.hashing import MASK, Stream, fold, hashes


def delivered(schedules, epoch):
    """The digest of each rank."""
    for schedule in schedules:
        digest = EpochDigest(epoch)
        for step in range(schedule.steps()):
            digest = digest.add(schedule.batch(epoch, step))
        yield digest


def world(order, batch_size, world_size, **options):
    return [Schedule(order, batch_size, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


@given(st.lists(st.integers(0, 2**63 - 1), max_size=40), st.integers(0, 2**62), st.data())
@settings(max_examples=100, deadline=None)
def test_neither_order_nor_division_matters(samples, epoch, data):
    whole = EpochDigest(epoch).add(samples)
    shuffled = data.draw(st.permutations(samples))
    cut = data.draw(st.integers(0, len(samples)))
    parts = [EpochDigest(epoch).add(shuffled[:cut]), EpochDigest(epoch).add(shuffled[cut:])]
    assert EpochDigest.merge(parts) == whole
    values = [int(hashes(fold(Stream.DIGEST, epoch), np.array([sample]))[0]) for sample in samples]
    assert (whole.count, whole.sum) == (len(samples), sum(values) & MASK)
    assert whole.xor == np.bitwise_xor.reduce(np.array(values, np.uint64), initial=0)


@given(st.integers(0, 500), st.integers(1, 9), st.integers(1, 16), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_what_all_ranks_delivered_is_the_whole_epoch(length, batch_size, world_size, epoch):
    order = Shuffled(length, seed=3)
    together = EpochDigest.merge(delivered(world(order, batch_size, world_size), epoch))
    verdict = together.check(EpochDigest.expected(order, epoch))
    assert verdict
    assert str(verdict) == f"complete: {length} samples, each as often as it should"


@given(st.sets(st.integers(0, 99), min_size=1, max_size=5), st.lists(st.integers(0, 99), max_size=5))
@settings(max_examples=100, deadline=None)
def test_every_loss_and_every_repetition_shows(lost, again):
    kept = [sample for sample in range(100) if sample not in lost] + again
    verdict = EpochDigest(2).add(kept).check(EpochDigest.expected(Sequential(100), 2))
    # What is lost and comes again once is not lost.
    assert verdict.exact == (sorted(kept) == list(range(100)))
    assert verdict.missing - verdict.extra == 100 - len(kept)
    assert verdict.missing <= len(lost)
    assert verdict.extra <= len(again)


@pytest.mark.parametrize(
    ("samples", "missing", "extra", "text"),
    [
        ([0, 1, 2, 3], 0, 0, "complete: 4 samples, each as often as it should"),
        ([0, 1, 3], 1, 0, "3 of 4 samples: sample 2 did not come"),
        ([0, 1, 2, 3, 1], 0, 1, "5 of 4 samples: sample 1 came once too often"),
        ([0, 1, 2, 3, 9], 0, 1, "5 of 4 samples: sample 9 came once too often"),
        ([0, 0], 2, 0, "2 samples, 4 expected: at least 2 did not come"),
        ([0, 0, 1], 1, 0, "3 samples, 4 expected: at least 1 did not come"),
        ([0, 1, 2, 3, 3, 3], 0, 2, "6 samples, 4 expected: at least 2 came that should not have"),
        ([0, 1, 2, 2], 1, 1, "4 samples, as many as expected, but some came again in place of others"),
    ],
)
def test_the_verdict_tells_what_can_be_told(samples, missing, extra, text):
    verdict = EpochDigest(7).add(samples).check(EpochDigest.expected(Sequential(4), 7))
    assert (verdict.missing, verdict.extra, str(verdict)) == (missing, extra, text)
    assert bool(verdict) == (missing == extra == 0)


def test_policies_show_as_what_they_leave_out_or_repeat():
    order = Shuffled(22)
    whole = EpochDigest.expected(order, 0)
    dropped = world(order, 4, 3, remainder="drop")
    assert EpochDigest.merge(delivered(dropped, 0)).check(whole).missing == 1
    assert EpochDigest.merge(delivered(dropped, 0)).check(EpochDigest.expected(order, 0, dropped[0].done_after(1)))
    assert EpochDigest.merge(delivered(world(order, 4, 3, remainder="pad"), 0)).check(whole).extra == 2


def test_the_expected_digest_is_the_same_in_chunks(monkeypatch):
    order = Weighted(np.arange(50), num_samples=1000)
    whole = EpochDigest(4).add(order.samples(4, 0, 1000))
    assert EpochDigest.expected(order, 4) == whole
    monkeypatch.setattr(module, "CHUNK", 7)
    assert EpochDigest.expected(order, 4) == whole
    assert EpochDigest.expected(order, 4, done=30) == EpochDigest(4).add(order.samples(4, 0, 30))


def test_orders_of_batches_have_digests_too():
    order = LengthBuckets(list(range(100)), 8, num_buckets=3)
    assert EpochDigest.expected(order, 1) == EpochDigest(1).add(range(100))
    assert EpochDigest.expected(order, 1, done=2) == EpochDigest(1).add(order.batch(1, 0)).add(order.batch(1, 1))


def test_it_goes_through_json_and_never_changes():
    digest = EpochDigest(3).add(range(1000))
    state = {"epoch": 3, "count": 1000, "sum": "156bbed8f7293dd9", "xor": "136b93a29a079a35"}
    assert digest.to_dict() == state
    assert EpochDigest.from_dict(json.loads(json.dumps(state))) == digest


def test_epochs_are_kept_apart():
    assert EpochDigest(1).add([5]).sum != EpochDigest(2).add([5]).sum
    with pytest.raises(ValueError, match="digests of epochs 1 and 2 can't be merged"):
        EpochDigest.merge([EpochDigest(1), EpochDigest(2)])
    with pytest.raises(ValueError, match="a digest of epoch 1 can't be compared with one of epoch 2"):
        EpochDigest(1).check(EpochDigest(2))


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="there is no digest to merge"):
        EpochDigest.merge([])
    with pytest.raises(ValueError, match=r"samples\[1\]=-1: at least 0"):
        EpochDigest(0).add([0, -1])
    with pytest.raises(ValueError, match="epoch=-1: at least 0"):
        EpochDigest(-1)
