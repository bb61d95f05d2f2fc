"""What an order gives is checked before anything is read by it, and the order is blamed, not the file."""

import numpy as np
import pytest

import fastloader as fl
from fastloader.samplers import (
    BatchSchedule,
    LengthBuckets,
    OrderError,
    QuasiRandom,
    Schedule,
    Sequential,
    Shuffled,
    Subset,
    Weighted,
)
from fastloader.samplers.quasi_random import Pages

SAMPLES = 40


class Mine:
    """An order that gives what a function makes of the right answer."""

    def __init__(self, change):
        self.change = change

    def __len__(self):
        return SAMPLES

    def samples(self, epoch, first, count):
        right = np.arange(first, first + count)
        return self.change(right) if first >= 20 else right

    def describe(self, epoch=None):
        return {"kind": "mine"}


class MyBatches:
    """The same in batches."""

    def __init__(self, change):
        self.change = change

    def num_batches(self, epoch):
        return 4

    def batch(self, epoch, number):
        return Mine(self.change).samples(epoch, 10 * number, 10)


def swapped(right, value):
    changed = right.astype(np.asarray(value).dtype)
    changed[3] = value
    return changed


RANGE = "the dataset has samples 0 to 39"
WRONG = {
    "negative": (lambda right: swapped(right, -3), f"gave the sample number -3; {RANGE}"),
    "too large": (lambda right: swapped(right, 40), f"gave the sample number 40; {RANGE}"),
    "too large, signless": (lambda right: swapped(right, np.uint64(2**63 + 5)), f"number 9223372036854775813; {RANGE}"),
    "small and negative": (lambda right: swapped(right, np.int8(-1)), f"gave the sample number -1; {RANGE}"),
    "floats": (lambda right: right * 1.0, r"gave float64, beginning with (np.float64\()?20.0\)?; .* whole numbers"),
    "truth values": (lambda right: right > 0, "gave bool, .* whole numbers"),
    "words": (lambda right: right.astype(str), "gave <U21, .* whole numbers"),
    "nested": (lambda right: right.reshape(2, -1), r"gave an array of shape \(2, 5\); .* one dimension"),
    "ragged": (lambda right: [[1], [2, 3]], "gave a list that is no array"),
    "nothing": (lambda right: None, r"gave an array of shape \(\)"),
    "an iterator": (iter, r"gave an array of shape \(\)"),
}
SOUND = {
    "a list": list,
    "plain numbers": lambda right: right.tolist(),
    "small": lambda right: right.astype(np.uint8),
    "of other bytes": lambda right: right.astype(">i4"),
    "every other": lambda right: np.repeat(right, 2)[::2],
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    path = tmp_path_factory.mktemp("given") / "a.fld"
    with fl.DatasetWriter(path, {"n": fl.IntField()}) as writer:
        writer.write_many({"n": i} for i in range(SAMPLES))
    return fl.open(path)


@pytest.mark.parametrize("kind", [Mine, MyBatches])
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize(("change", "says"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_of_the_order(reader, kind, on_error, change, says):
    loader = fl.DataLoader(reader, 10, num_workers=1, sampler=kind(change), on_error=on_error)
    with pytest.raises(OrderError, match=f"{kind.__name__}, epoch 0, step 2: .*{says}"):
        list(loader)
    assert not loader.stats()["bad_values"]


@pytest.mark.parametrize("count", [0, 7, 11])
def test_an_order_gives_as_many_as_it_is_asked_for(reader, count):
    loader = fl.DataLoader(reader, 10, sampler=Mine(lambda right: np.resize(right, count)))
    with pytest.raises(OrderError, match=f"Mine, epoch 0, step 2: gave {count} sample numbers; it was asked for 10"):
        list(loader)


@pytest.mark.parametrize("kind", [Mine, MyBatches])
@pytest.mark.parametrize("change", SOUND.values(), ids=SOUND)
def test_whole_numbers_may_come_in_any_form(reader, kind, change):
    loader = fl.DataLoader(reader, 10, num_workers=1, sampler=kind(change))
    assert np.concatenate([batch["n"] for batch in loader]).tolist() == list(range(SAMPLES))


def test_what_fills_up_the_last_step_is_checked_too():
    plan = Schedule(Mine(lambda right: right - 100), 16, world_size=3, rank=2, remainder="pad", dataset_length=SAMPLES)
    with pytest.raises(OrderError, match="step 0: gave the sample number -"):
        plan.batch(0, 0)


def test_without_a_dataset_only_the_form_is_checked():
    assert Schedule(Mine(lambda right: right + 100), 10).batch(0, 2)[0] == 120
    assert BatchSchedule(MyBatches(lambda right: right + 100)).batch(0, 2)[0] == 120


PAGES = Pages(np.array([0, 50]), np.array([50, 50]))


@pytest.mark.parametrize(
    "sampler",
    [
        Sequential(100), Shuffled(100, 1), Shuffled(20), Weighted(np.ones(100)), Weighted(np.ones(20)),
        LengthBuckets(np.ones(100, int), 4), Subset([1, 2], 100), QuasiRandom(PAGES),
    ],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_an_order_of_another_dataset_is_refused_when_the_loader_is_made(reader, sampler):
    stated = sampler.describe()["dataset"]
    says = f"sampler: this {type(sampler).__name__} is for a dataset of {stated} samples, and this has {SAMPLES}"
    with pytest.raises(ValueError, match=says):
        fl.DataLoader(reader, 4, sampler=sampler)
