"""States that do not fit are refused; those that may differ are not."""

from __future__ import annotations

import json
import multiprocessing
from itertools import islice

import pytest
from expression_model import drawn, plain, tagged

import fastloader as fl

D = fl.Dataset


def after(dataset, count=5):
    iterator = iter(dataset)
    for _ in range(count):
        next(iterator)
    state = json.loads(json.dumps(iterator.state_dict()))
    iterator.close()
    return state


CHAIN = D.from_iterable(range(50)).shuffle(6, seed=1).map(tagged).batch(2)


def test_a_state_is_small_and_plain():
    state = after(CHAIN)
    assert set(state) == {"version", "expression", "epoch", "place"}
    assert len(json.dumps(state)) < 200


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (D.from_iterable(range(50)).shuffle(6, seed=2).map(tagged).batch(2), "shuffle(6, seed=2)"),
        (D.from_iterable(range(50)).shuffle(5, seed=1).map(tagged).batch(2), "shuffle(5, seed=1)"),
        (D.from_iterable(range(50)).map(tagged).batch(2), "from_iterable.map()"),
        (D.range(50).shuffle(6, seed=1).map(tagged).batch(2), "range(0, 50, 1)"),
        (CHAIN.take(3), "take(3)"),
    ],
)
def test_a_state_of_another_expression_is_refused(other, says):
    with pytest.raises(fl.StateError, match="of another expression") as info:
        other.iterate(state=after(CHAIN))
    assert says in str(info.value)


def test_what_does_not_change_positions_may_change():
    wanted = plain(list(CHAIN)[5:])
    for other in (
        D.from_iterable(range(50)).shuffle(6, seed=1).map(tagged, 3).batch(2).prefetch(2),
        D.from_iterable(range(50)).prefetch().shuffle(6, seed=1).map(tagged, "auto").options(threads=2).batch(2),
    ):
        assert plain(list(other.iterate(state=after(CHAIN)))) == wanted
        iterator = iter(CHAIN)
        iterator.load_state_dict(after(other))
        assert plain(list(iterator)) == wanted


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 2}, {"place": 7}, {"place": [1]}, {"place": [-1, None]}, {"place": [1.5, None]}, {"place": "x"},
        {"place": [1, [2, [True, None, 0]]]}, {"epoch": -1}, {"epoch": "one"}, {"place": [1, [2, [0, None, 0, 0]]]},
    ],
)  # fmt: skip
def test_a_damaged_state_is_refused(damage):
    with pytest.raises(fl.StateError):
        CHAIN.iterate(state=after(CHAIN) | damage)


@pytest.mark.parametrize("state", [None, [], "x", {}, {"version": 1}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(fl.StateError):
        iter(CHAIN).load_state_dict(state)


@pytest.mark.parametrize("place", [51, -1, [0], 2.0, True])
def test_a_position_that_is_not_there_is_refused(place):
    dataset = D.range(50)
    with pytest.raises(fl.StateError):
        dataset.iterate(state=after(dataset) | {"place": place})


@pytest.mark.parametrize("place", [[1, [[0, 0, 1]]], [1, [1, 2]], [1, 2], [1, [[0, 0, 1], [0, 0]]]])
def test_a_damaged_mixture_is_refused(place):
    dataset = D.mix(D.range(9), D.range(9))
    with pytest.raises(fl.StateError):
        dataset.iterate(state=after(dataset) | {"place": place})


@pytest.mark.parametrize(
    "place", [[1, 2, 9, 0, [None, None]], [1, 2, 0, 0, [None]], [1, 2, 0, 0, 5], [1, 2, 0, 0, [3, 4]]]
)
def test_a_damaged_interleaving_is_refused(place):
    dataset = D.range(9).interleave(range, cycle_length=2)
    with pytest.raises(fl.StateError):
        dataset.iterate(state=after(dataset) | {"place": place})


def test_a_source_that_became_shorter_is_an_error():
    numbers = list(range(20))
    dataset = D.from_iterable(numbers)
    state = after(dataset, 15)
    del numbers[10:]
    with pytest.raises(fl.ElementError, match="was at element 15 when the state was saved, and now has 10"):
        list(dataset.iterate(state=state))


def test_a_filter_that_keeps_other_elements_is_another_expression():
    state = after(D.range(50).filter(lambda n: n % 2))
    with pytest.raises(fl.StateError, match="another expression"):
        D.range(50).filter(lambda n: n % 3).iterate(state=state)
    assert list(D.range(50).filter(lambda n: n & 1).iterate(state=state)) == list(range(11, 50, 2))


def test_long_expressions_are_cut_in_states_but_still_told_apart():
    long, other = (D.concat(*(D.range(100 + i, 200 + i) for i in range(60)), D.range(last)) for last in (5, 6))
    state = after(long)
    assert len(json.dumps(state)) < 400
    assert list(long.iterate(state=state)) == list(long)[5:]
    with pytest.raises(fl.StateError):
        other.iterate(state=state)


def test_a_fresh_pass_is_the_same_and_epochs_differ():
    dataset = D.range(20).shuffle(seed=3)
    assert list(dataset) == list(dataset) == list(dataset.iterate(epoch=0))
    assert list(dataset.repeat(3)) == [n for epoch in range(3) for n in dataset.iterate(epoch=epoch)]
    assert len({tuple(dataset.iterate(epoch=epoch)) for epoch in range(5)}) == 5
    nested = dataset.repeat(2).repeat(3)
    assert list(nested) == [n for epoch in range(6) for n in dataset.iterate(epoch=epoch)]


def test_loading_a_state_again_goes_back():
    iterator = iter(CHAIN)
    wanted = plain(list(CHAIN))
    next(iterator)
    state = iterator.state_dict()
    assert plain(list(iterator)) == wanted[1:]
    iterator.load_state_dict(state)
    assert plain(list(iterator)) == wanted[1:]


def work(dataset, state):
    return plain(list(dataset.iterate(state=state)))


def test_a_spawned_child_goes_on_from_a_state():
    dataset = D.range(30).shuffle(seed=1).map(drawn, 2, seed=4).batch(4).prefetch(2)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(work, (dataset, after(dataset, 3))) == plain(list(dataset))[3:]


def test_weights_may_change_after_a_checkpoint():
    def mixture(*weights):
        sources = [D.range(0, 10_000), D.from_iterable(range(10_000, 20_000)), D.range(20_000, 30_000)]
        return D.mix(*sources, weights=weights, seed=3)

    before = mixture(1, 1, 1)
    iterator = iter(before)
    first = [next(iterator) for _ in range(300)]
    state = iterator.state_dict()
    assert list(before.iterate(state=state)) == list(before)[300:]
    later = mixture(0, 9, 1).iterate(state=state)
    then = [next(later) for _ in range(2000)]
    for source in range(3):
        mine = [n for n in first + then if n // 10_000 == source]
        assert mine == list(range(source * 10_000, source * 10_000 + len(mine)))
    shares = [sum(n // 10_000 == source for n in then) / 2000 for source in range(3)]
    assert shares[0] == 0
    assert abs(shares[1] - 0.9) < 0.03


@pytest.mark.parametrize("weights", [[3, 1], [0.5, 0.5], [1e-3, 1]])
def test_a_mixture_has_the_shares_of_its_weights(weights):
    dataset = D.mix(D.range(1).repeat(), D.range(1, 2).repeat(), weights=weights).take(20_000)
    share = sum(dataset) / 20_000
    assert abs(share - weights[1] / sum(weights)) < 0.015


def test_a_mixture_differs_from_epoch_to_epoch_and_seed_to_seed():
    ways = [
        list(D.mix(D.range(50), D.range(100, 150), seed=seed, stop="all").iterate(epoch=epoch))
        for seed, epoch in [(0, 0), (0, 1), (1, 0)]
    ]
    assert len({tuple(way) for way in ways}) == 3
    assert len({tuple(sorted(way)) for way in ways}) == 1


def test_repeating_nothing_without_end_is_an_error():
    for dataset in (D.range(0), D.from_iterable([]), D.range(9).filter(lambda n: n > 9)):
        with pytest.raises(ValueError, match="nothing to repeat"):
            list(dataset.repeat().take(1))
    with pytest.raises(ValueError, match="dataset 1 has nothing"):
        list(D.mix(D.range(3), D.from_iterable([]), stop="restart").take(99))
    assert list(D.range(0).repeat(5)) == list(D.from_iterable([]).repeat(5)) == []


@pytest.mark.parametrize("second", [D.range(4), D.from_iterable(range(4))])
def test_a_strict_zip_wants_equal_lengths(second):
    assert list(second.zip(D.range(4), strict=True)) == [(n, n) for n in range(4)]
    for one, two in ((second, D.range(5)), (D.range(3), second), (D.from_iterable(range(9)), second)):
        with pytest.raises(ValueError, match=r"zip\(strict=True\)"):
            list(one.zip(two, strict=True))
        assert len(list(one.zip(two))) == min(len(list(one)), 4)


# Other numbers of ranks


def mixture(style):
    numbers = fl.Dataset.range(90) if style == "map" else fl.Dataset.from_iterable(range(90))
    other = fl.Dataset.range(1000, 1060).filter(wanted, ahead=style == "map").shuffle(7, seed=2)
    third = fl.Dataset.range(2000, 2020).flat_map(lambda n: [n] * (n % 3)).enumerate()
    return fl.Dataset.mix(numbers, other, third, weights=[3, 2, 1], seed=4, stop="all")


def wanted(number):
    return number % 5 > 0


def dealt(style, world, rank, remainder="uneven", size=3):
    whole = mixture(style).shard(world, rank, remainder)
    return whole.map(str, 2).batch(size, collate_fn=list).prefetch(2)


@pytest.mark.parametrize("style", ["map", "iterable"])
@pytest.mark.parametrize("world", range(1, 17))
def test_the_rest_of_a_mixture_is_dealt_to_any_number_of_ranks(style, world):
    expected = [str(element) for element in mixture(style)]
    for steps, others in ((1, (1, world + 1)), (2, (7, 16))):
        state, given = None, []
        for ranks, some in ((world, steps), (others[0], 1), (others[1], None)):
            passes = [dealt(style, ranks, rank).iterate(state=state) for rank in range(ranks)]
            given += [n for one in passes for batch in islice(one, some) for n in batch]
            if some is not None:
                (saved,) = {json.dumps(one.state_dict()) for one in passes}
                assert len(saved) < 500
                state = json.loads(saved)
        assert sorted(given) == sorted(expected)


def test_ranks_stay_equal_when_the_rest_is_dealt_anew():
    first = [dealt("map", 4, rank, "drop", 1).iterate() for rank in range(4)]
    given = [n for one in first for batch in islice(one, 5) for n in batch]
    (state,) = {json.dumps(one.state_dict()) for one in first}
    rest = [list(dealt("map", 3, rank, "drop", 1).iterate(state=json.loads(state))) for rank in range(3)]
    assert len({len(one) for one in rest}) == 1
    given += [n for one in rest for batch in one for n in batch]
    everything = [str(element) for element in mixture("map")]
    assert len(everything) - 3 < len(given) == len(set(given) & set(everything))


@pytest.mark.parametrize(
    "behind",
    [
        lambda d: d.filter(bool),
        lambda d: d.shuffle(4, seed=1),
        lambda d: d.flat_map(lambda n: [n] * 2),
        lambda d: d.repeat(2),
        lambda d: d.map(str).options(on_error="skip"),
        lambda d: d.shard(2, 1),
    ],
)
def test_where_ranks_do_not_keep_in_step_a_state_is_that_of_its_rank(behind):
    stream = fl.Dataset.from_iterable(range(40))
    steps = behind(stream.shard(2, 0)).iterate()
    next(steps)
    for other in (stream.shard(2, 1), stream.shard(3, 0)):
        with pytest.raises(fl.StateError, match=r"shard\(2, 0\)"):
            behind(other).iterate(state=steps.state_dict())
    assert list(behind(stream.shard(2, 0)).iterate(state=steps.state_dict())) == list(steps)
