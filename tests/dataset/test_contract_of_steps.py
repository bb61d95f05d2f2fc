"""What every step keeps to, alone and in chains: the list model, resuming anywhere, random access, pickling."""

from __future__ import annotations

import json
import pickle

import pytest
from expression_model import ITERABLE, STEPS, chains, plain, sources
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

import fastloader as fl

MOST = 60


def quickly(examples):
    return settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )  # fmt: skip


def model_of(twin, epoch):
    try:
        wanted = plain(twin.model(epoch))
    except (TypeError, ValueError):  # a batch of elements that are not alike
        reject()
    assume(len(wanted) <= MOST)
    return wanted


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_chain_with_the_step_gives_what_lists_would(name):
    @quickly(25)
    @given(chains(first=name))
    def check(twin):
        for epoch in (0, 2):
            wanted = model_of(twin, epoch)
            assert plain(list(twin.dataset.iterate(epoch=epoch))) == wanted
        assert plain(list(twin.dataset)) == plain(list(twin.dataset))

    check()


@pytest.mark.parametrize("name", sorted(STEPS))
def test_restoring_at_every_element_gives_the_identical_rest(name):
    @quickly(12)
    @given(chains(first=name))
    def check(twin):
        wanted = model_of(twin, 1)
        iterator = twin.dataset.iterate(epoch=1)
        for given_so_far in range(len(wanted) + 1):
            state = json.loads(json.dumps(iterator.state_dict()))
            assert plain(list(twin.dataset.iterate(state=state))) == wanted[given_so_far:]
            if given_so_far < len(wanted):
                assert plain(next(iterator)) == wanted[given_so_far]
        with pytest.raises(StopIteration):
            next(iterator)
        assert list(twin.dataset.iterate(state=iterator.state_dict())) == []

    check()


@pytest.mark.parametrize("name", sorted(STEPS.keys() - ITERABLE))
def test_random_access_agrees_with_iterating(name):
    seen = []

    @quickly(20)
    @given(chains(first=name, random_access=True))
    def check(twin):
        if not isinstance(twin.dataset, fl.MapDataset):  # a filter of something that differs from pass to pass
            return
        wanted, later = model_of(twin, 0), model_of(twin, 3)
        assert len(twin.dataset) == len(wanted)
        assert [plain(twin.dataset[i]) for i in range(len(wanted))] == wanted
        assert [plain(twin.dataset[i - len(wanted)]) for i in range(len(wanted))] == wanted
        assert [plain(twin.dataset.at(i, 3)) for i in range(len(wanted))] == later
        seen.append(twin)

    check()
    assert len(seen) >= 5


@pytest.mark.parametrize("name", sorted(ITERABLE))
def test_what_gives_as_many_as_it_likes_has_no_length(name):
    @quickly(5)
    @given(sources(), st.data())
    def check(twin, data):
        dataset = STEPS[name](data.draw, twin).dataset
        assert isinstance(dataset, fl.IterDataset) or dataset is twin.dataset
        assert dataset is twin.dataset or not hasattr(dataset, "__len__")

    check()


@quickly(40)
@given(chains(), chains(most_steps=2))
def test_several_iterators_at_once_do_not_disturb_each_other(one, two):
    wanted = [model_of(one, 0), model_of(one, 1), model_of(two, 0)]
    iterators = [one.dataset.iterate(), one.dataset.iterate(epoch=1), two.dataset.iterate()]
    got = [[], [], []]
    for _ in range(max(map(len, wanted)) + 1):
        for iterator, found in zip(iterators, got, strict=True):
            found.extend(plain(value) for value in [next(iterator, got)] if value is not got)
    assert got == wanted


@quickly(40)
@given(chains())
def test_expressions_and_iterators_pickle(twin):
    wanted = model_of(twin, 0)
    copy = pickle.loads(pickle.dumps(twin.dataset))
    assert plain(list(copy)) == wanted
    iterator = iter(twin.dataset)
    taken = [plain(next(iterator)) for _ in range(len(wanted) // 2)]
    assert taken + plain(list(pickle.loads(pickle.dumps(iterator)))) == wanted


@quickly(60)
@given(chains())
def test_states_are_small(twin):
    wanted = model_of(twin, 0)
    iterator = iter(twin.dataset)
    for _ in range(len(wanted) // 2):
        next(iterator)
    assert len(json.dumps(iterator.state_dict())) < 900


@quickly(30)
@given(chains())
def test_every_expression_can_be_explained_and_shown(twin):
    assert twin.dataset.explain()
    assert repr(twin.dataset).startswith(("<MapDataset ", "<IterDataset "))
