"""Wrong arguments are refused when a step is written, with what was given and what would do."""

from __future__ import annotations

import numpy as np
import pytest

import fastloader as fl

D = fl.Dataset
NUMBERS, STREAM = D.range(10), D.from_iterable(range(10))


@pytest.mark.parametrize("dataset", [NUMBERS, STREAM], ids=["map-style", "iterable"])
@pytest.mark.parametrize(
    ("step", "says"),
    [
        (lambda d: d.map(5), r"map\(5\): a function is needed, not a int"),
        (lambda d: d.map(abs, 0), "num_parallel_calls=0: a whole number from 1 up, 'auto' or None"),
        (lambda d: d.map(abs, "many"), "num_parallel_calls='many'"),
        (lambda d: d.map(abs, True), "num_parallel_calls=True"),
        (lambda d: d.map(abs, seed=-1), "seed=-1: at least 0"),
        (lambda d: d.filter(None), "a function is needed"),
        (lambda d: d.filter(abs, columns=["x"]), "columns"),
        (lambda d: d.flat_map("x"), "a function is needed"),
        (lambda d: d.shuffle(0), "buffer_size=0: at least 1"),
        (lambda d: d.shuffle(5, seed=2**64), r"seed=18446744073709551616: below 2\*\*64"),
        (lambda d: d.shuffle(2.5), "buffer_size=2.5: a whole number"),
        (lambda d: d.batch(0), "batch_size=0: at least 1"),
        (lambda d: d.batch(2, collate_fn=3), "a function is needed"),
        (lambda d: d.prefetch(0), "buffer_size=0: a whole number from 1 to 1048576, or 'auto'"),
        (lambda d: d.prefetch("much"), "buffer_size='much'"),
        (lambda d: d.repeat(-1), "count=-1: at least 0"),
        (lambda d: d.take(-1), "count=-1: at least 0"),
        (lambda d: d.skip(1.5), "count=1.5: a whole number"),
        (lambda d: d.shard(0, 0), "num_shards=0: at least 1"),
        (lambda d: d.shard(2, 2), "index=2: below num_shards=2"),
        (lambda d: d.shard(2, 0, "pad"), "remainder='pad': one of 'uneven', 'drop'"),
        (lambda d: d.enumerate("x"), "str"),
        (lambda d: d.zip([1, 2]), "a dataset or a reader is needed, not a list"),
        (lambda d: d.concat(5), "a dataset or a reader is needed, not a int"),
        (lambda d: d.interleave(d, 5), "a dataset or a reader is needed, not a int"),
        (lambda d: d.interleave(d, cycle_length=0), "cycle_length=0: at least 1"),
        (lambda d: d.interleave(d, block_length=0), "block_length=0: at least 1"),
        (lambda d: d.mix(d, weights=[1]), "1 weights for 2 datasets"),
        (lambda d: d.mix(d, weights=[0, 0]), "not all 0"),
        (lambda d: d.mix(d, weights=[1, -1]), "not below 0"),
        (lambda d: d.mix(d, weights=[1, float("nan")]), "finite"),
        (lambda d: d.mix(d, stop="never"), "stop='never': one of 'first', 'all', 'restart'"),
        (lambda d: d.options(on_error="replace"), "on_error='replace': one of 'raise', 'skip'"),
        (lambda d: d.options(threads=0), "threads=0: at least 1"),
        (lambda d: d.iterate(epoch=-1), "epoch=-1: at least 0"),
        (lambda d: D.zip([d, d]), "a dataset or a reader is needed, not a list"),
    ],
)
def test_wrong_arguments(step, says, dataset):
    with pytest.raises((TypeError, ValueError), match=says):
        step(dataset)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: D.from_sequence(5), "no length and random access"),
        (lambda: D.from_sequence({"a": 1}), "no length and random access"),
        (lambda: D.from_iterable(5), "can't be iterated over"),
        (lambda: D.from_iterable(iter([1])), "gone through once"),
        (lambda: D.from_iterable(n for n in [1]), "from_generator"),
        (lambda: D.from_generator([1]), "a function is needed"),
        (lambda: D.from_reader("x.fld"), "a reader is needed, not a str"),
        (lambda: STREAM.shuffle(), "can't be permuted whole; give a buffer_size"),
        (lambda: NUMBERS.repeat().shuffle(), "endless; give a buffer_size, or shuffle before repeat"),
        (lambda: STREAM.filter(bool, ahead=True), "is an iterable"),
        (lambda: NUMBERS.shuffle().filter(bool, ahead=True), "another order in each pass; filter first"),
        (lambda: NUMBERS.repeat().filter(bool, ahead=True), "is endless"),
        (lambda: NUMBERS[::0], "the step is not 0"),
        (lambda: NUMBERS.iterate(epoch=0, state=iter(NUMBERS).state_dict()), "leave out epoch=0"),
    ],
)
def test_wrong_sources_and_combinations(make, says):
    with pytest.raises((TypeError, ValueError), match=says):
        make()


def test_endless_datasets_have_no_length():
    endless = NUMBERS.repeat()
    with pytest.raises(TypeError, match=r"endless and has no length; take\(n\) bounds it"):
        len(endless)
    with pytest.raises(IndexError, match="endless"):
        endless[-1]
    assert endless[10**15 + 3] == 3
    assert len(endless.skip(5).batch(4).map(abs).enumerate().take(7)) == 7
    assert [n for _, n in endless.skip(5).enumerate().take(7)] == [5, 6, 7, 8, 9, 0, 1]
    assert len(endless.zip(NUMBERS)) == 10
    with pytest.raises(ValueError, match="endless, so those behind it never come"):
        list(endless.concat(NUMBERS))
    with pytest.raises(ValueError, match=r"endless; take\(n\)"):
        list(endless.cache("x"))
    with pytest.raises(ValueError, match="no counting from its end"):
        list(endless[-3:])
    assert list(NUMBERS.concat(endless).take(12)) == [*range(10), 0, 1]


@pytest.mark.parametrize("index", [10, -11])
def test_elements_that_are_not_there(index):
    with pytest.raises(IndexError, match=f"element {index} of a dataset of 10"):
        NUMBERS[index]


def test_a_filter_that_gives_no_truth_value_is_an_error():
    for ahead in (None, False):
        with pytest.raises(fl.ElementError, match=r"filter\(<lambda>\), element 0: ValueError"):
            list(NUMBERS.filter(lambda n: np.array([True, False]), ahead=ahead))


@pytest.mark.parametrize("step", [lambda d, f: d.flat_map(f), lambda d, f: d.interleave(f)])
def test_a_function_that_gives_nothing_to_iterate_over_is_an_error(step):
    with pytest.raises(fl.ElementError, match=r"element 0: TypeError: gave a int; a dataset or something to iterate"):
        list(step(STREAM, abs))
    skipping = step(STREAM, lambda n: n if n < 7 else [n]).options(on_error="skip")
    iterator = iter(skipping)
    assert list(iterator) == [7, 8, 9]
    assert iterator.stats()["skipped"] == 7


def test_a_generator_function_that_gives_none():
    with pytest.raises(fl.ElementError, match="abs gave a int, which can't be iterated over"):
        list(D.from_generator(abs, -3))


def test_a_generator_function_that_stops_before_it_begins():
    def stopped():
        raise StopIteration

    with pytest.raises(fl.ElementError, match="from_generator, element 0: StopIteration"):
        list(D.from_generator(stopped))


def test_descriptions_do_not_change():
    with pytest.raises(AttributeError):
        NUMBERS.expression = None
    with pytest.raises(AttributeError):
        NUMBERS.map(abs).node.parent = None
    assert repr(NUMBERS.shuffle(seed=2).batch(3)) == "<MapDataset range(0, 10, 1).shuffle(seed=2).batch(3)>"


def boom(number):
    if number in (1, 5):
        raise ValueError("no")
    return number


@pytest.mark.parametrize("source", [NUMBERS, STREAM], ids=["map-style", "iterable"])
@pytest.mark.parametrize("calls", [None, 2])
@pytest.mark.parametrize(
    "between",
    [
        lambda d: d,
        lambda d: d.map(abs),
        lambda d: d.map(abs, 2),
        lambda d: d.prefetch(2),
        lambda d: d.shuffle(4, seed=1),
        lambda d: d.options(threads=2),
    ],
)
def test_skipping_holds_for_the_steps_before_it_whatever_follows(source, calls, between):
    chain = between(source.map(boom, calls).options(on_error="skip"))
    iterator = iter(chain.batch(5))
    given = np.concatenate(list(iterator))
    assert set(given.tolist()) == {0, 2, 3, 4, 6, 7, 8, 9}
    assert iterator.stats()["skipped"] == 2


def test_skipping_holds_for_no_step_behind_it():
    """Nor for the batch itself, where the setting comes before."""
    skipping = NUMBERS.options(on_error="skip")
    with pytest.raises(fl.ElementError, match=r"map\(boom\), element 1"):
        list(skipping.map(boom).batch(5))
    rows = D.from_sequence([{"x": [n] * n} for n in (1, 9, 2, 3)])
    with pytest.raises(fl.ElementError, match=r"batch, element 0: .*length 9"):
        list(rows.options(on_error="skip").batch(4, pad={"x": 4}))
