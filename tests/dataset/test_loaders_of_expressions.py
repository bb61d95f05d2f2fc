"""A ``DataLoader`` over an expression that only chooses samples: the same samples, dealt and resumed as any others."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl

COUNT = 60
D = fl.Dataset


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    path = tmp_path_factory.mktemp("chosen") / "x.fld"
    with fl.DatasetWriter(path, {"n": fl.IntField(), "x": fl.IntField()}, shard_size=400) as writer:
        writer.write_many({"n": i, "x": -i} for i in range(COUNT))
    return fl.open(path)


def numbers(loader):
    return [int(n) for batch in loader for n in batch["n"]]


CHOICES = {
    "filter by columns": lambda r: r.filter(lambda c: c["n"] % 3 == 0, columns="n"),
    "filter": lambda r: r.filter(lambda sample: sample["n"] % 7 < 3),
    "take": lambda r: r.take(17),
    "skip": lambda r: r.skip(40),
    "shard": lambda r: r.shard(3, 1),
    "backwards": lambda r: r[::-1],
    "several": lambda r: r.skip(5).filter(lambda c: c["n"] % 2 == 0, columns="n").take(20)[::3],
    "twice": lambda r: r.take(5).repeat(2),
    "endless, bounded": lambda r: r.take(5).repeat().take(12),
    "nothing": lambda r: r.take(0),
    "all": D.from_reader,
}


@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_the_samples_are_those_of_the_expression(reader, choose):
    wanted = [sample["n"] for sample in choose(reader)]
    assert numbers(fl.DataLoader(choose(reader), 4, shuffle=False)) == wanted
    assert sorted(numbers(fl.DataLoader(choose(reader), 4, seed=1))) == sorted(wanted)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_restored_on_another_number_of_ranks_what_is_left_comes_once(reader, data):
    choose = CHOICES[data.draw(st.sampled_from(list(CHOICES)))]
    wanted = sorted(sample["n"] for sample in choose(reader))
    options = {"batch_size": data.draw(st.integers(1, 9)), "seed": data.draw(st.integers(0, 5)), "num_workers": 1}
    before, after = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    ranks = [fl.DataLoader(choose(reader), rank=rank, world_size=before, **options) for rank in range(before)]
    steps = data.draw(st.integers(0, min(map(len, ranks))))
    given, states = [], set()
    for loader in ranks:
        batches = iter(loader)
        given += numbers([next(batches) for _ in range(steps)])
        states.add(json.dumps(loader.state_dict()))
        batches.close()
    (state,) = states
    for rank in range(after):
        loader = fl.DataLoader(choose(reader), rank=rank, world_size=after, **options)
        loader.load_state_dict(json.loads(state))
        given += numbers(loader)
    assert sorted(given) == wanted


def test_a_state_of_another_choice_is_refused(reader):
    loader = fl.DataLoader(reader.take(20), 4)
    next(iter(loader))
    with pytest.raises(fl.StateError, match="indices is"):
        fl.DataLoader(reader.skip(40), 4).load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda r: r.map(len).take(3), r"map\(\) does more than choose samples"),
        (lambda r: r.batch(3), r"batch\(3\) does more than choose samples"),
        (lambda r: r.shuffle(seed=1).take(5), r"shuffle\(seed=1\) chooses anew in each pass"),
        (lambda r: r.take(5).options(threads=2).take(3), r"options\(threads=2\) is a setting"),
        (lambda r: r.take(5).prefetch(2), r"prefetch\(2\) is a setting"),
        (lambda r: r.concat(r.take(2)), r"concat\(\) brings several datasets together"),
        (lambda r: r.repeat().skip(1), r"repeat\(\) has no end"),
        (lambda r: r.filter(len, ahead=False), r"filter\(\) takes elements as they come"),
        (lambda r: D.range(5).take(2), r"range\(0, 5, 1\) has none; write it as .fld first"),
        (lambda r: D.from_iterable([1]), "from_iterable has none; write it as .fld first"),
    ],
)
def test_the_step_that_stands_in_the_way_is_named(reader, make, says):
    with pytest.raises(TypeError, match=f"a dataset that only chooses samples of a reader, and {says}"):
        fl.DataLoader(make(reader))


def test_the_fields_are_those_of_the_expression_unless_the_loader_says_others(reader):
    some = D.from_reader(reader, "x").take(8)
    assert {tuple(batch) for batch in fl.DataLoader(some, 4)} == {("x",)}
    assert {tuple(batch) for batch in fl.DataLoader(some, 4, fields=["n"])} == {("n",)}


def test_indices_beside_it_are_refused(reader):
    with pytest.raises(ValueError, match="indices: the dataset chooses samples already"):
        fl.DataLoader(reader.take(5), indices=[1])


def test_the_adapters_take_it_too(reader):
    pytest.importorskip("torch")
    from fastloader.torch import TorchLoader

    assert np.concatenate([b["n"].numpy() for b in TorchLoader(reader.take(9), 4, shuffle=False)]).tolist() == [
        *range(9)
    ]
