"""Batches of samples that nothing has changed are made by the native engine, and are what Python would make."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
from expression_model import plain
from hypothesis import given, settings
from hypothesis import strategies as st
from left_behind import left, threads, until

import fastloader as fl
from fastloader.dataset.native import native_plan
from fastloader.dataset.running import new_run

COUNT = 23
FIELDS = {
    "n": fl.IntField(), "a": fl.NDArrayField("float32", (2, 3)), "text": fl.JSONField(),
    "varying": fl.NDArrayField("int16", (None,)),
}  # fmt: skip


def write(path, count=COUNT, first=0, fields=FIELDS, **options):
    with fl.DatasetWriter(path, fields, **options) as writer:
        writer.write_many(
            {
                "n": i, "a": np.full((2, 3), i, np.float32), "text": None if i % 7 == 3 else f"number {i}",
                "varying": np.arange(i % 4, dtype=np.int16),
            }
            for i in range(first, first + count)
        )  # fmt: skip
    return fl.open(path)


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("native")
    return [write(folder / "one.fld"), write(folder / "two.fld", 11, 100, shard_size=400), write(folder / "no.fld", 0)]


def engine_threads():
    """The threads of all engines in this process."""
    return threads("fl-engine")


def gone(mine):
    return not left(lambda: engine_threads() & mine)


def itself(value):
    return value


def slowly(rows, size, drop_last=False):
    """The same batches by Python, from samples read one by one."""
    return rows.batch(size, drop_last, collate_fn=list)


def numbers(batches):
    return [batch["n"].tolist() for batch in batches]


def numbers_slowly(batches):
    return [[sample["n"] for sample in batch] for batch in batches]


CHOOSING = {
    "all": lambda one, two, no: one,
    "shuffled": lambda one, two, no: one.shuffle(seed=5),
    "in windows": lambda one, two, no: one.shuffle(4, seed=5),
    "taken and skipped": lambda one, two, no: one.skip(3).take(14),
    "a shard": lambda one, two, no: one.shard(3, 1),
    "backwards": lambda one, two, no: fl.Dataset.from_reader(one)[::-1],
    "filtered": lambda one, two, no: one.filter(lambda sample: sample["n"] % 3),
    "filtered by column": lambda one, two, no: one.filter(lambda c: c["n"] % 3 > 0, columns=["n"]).shuffle(seed=1),
    "repeated": lambda one, two, no: one.shuffle(seed=2).repeat(3),
    "of several": lambda one, two, no: one.concat(two, no, two.take(3)).shuffle(seed=8),
    "nothing": lambda one, two, no: no.shuffle(),
    "with options": lambda one, two, no: one.options(threads=1).take(9),
}


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("name", CHOOSING)
def test_the_engine_gives_what_python_would(name, drop_last, readers):
    rows = CHOOSING[name](*readers)
    batches = rows.batch(5, drop_last)
    for epoch in (0, 3):
        iterator = batches.iterate(epoch=epoch)
        found = list(iterator)
        assert iterator.stats()["native"]["batches"] == len(found) == len(batches)
        assert numbers(found) == numbers_slowly(slowly(rows, 5, drop_last).iterate(epoch=epoch))
        assert plain(found) == plain([batches.at(i, epoch) for i in range(len(batches))])
    assert "native engine" in batches.explain()


@pytest.mark.parametrize("name", CHOOSING)
def test_restoring_at_every_batch(name, readers):
    batches = CHOOSING[name](*readers).batch(4).prefetch(3)
    wanted = plain(list(batches))
    iterator = iter(batches)
    for i in range(len(wanted) + 1):
        state = json.loads(json.dumps(iterator.state_dict()))
        assert len(json.dumps(state)) < 300
        assert plain(list(batches.iterate(state=state))) == wanted[i:]
        next(iterator, None)


ABOVE = {
    "take": lambda batches: batches.take(3),
    "skip": lambda batches: batches.skip(2),
    "shuffle": lambda batches: batches.shuffle(seed=4),
    "shard": lambda batches: batches.shard(2, 1),
    "repeat": lambda batches: batches.repeat(2),
    "prefetch": lambda batches: batches.prefetch(2),
    "options": lambda batches: batches.options(threads=3),
    "concat": lambda batches: batches.concat(batches.take(1)),
    "endless": lambda batches: batches.repeat().take(9),
}
THROUGH = {
    "map": lambda batches: batches.map(itself),
    "map in threads": lambda batches: batches.map(itself, 3),
    "map and take": lambda batches: batches.map(itself, 2).take(4),
    "map and skip": lambda batches: batches.map(itself).skip(1),
    "map and repeat": lambda batches: batches.map(itself).repeat(2),
    "map and concat": lambda batches: batches.map(itself).concat(batches.map(itself, 2).skip(2)),
    "map and options": lambda batches: batches.map(itself).options(threads=2),
    "map and prefetch": lambda batches: batches.map(itself).prefetch(2).map(itself),
}


@pytest.mark.parametrize("name", [*ABOVE, *THROUGH])
def test_steps_above_batches_leave_them_to_the_engine(name, readers):
    batches = readers[0].shuffle(seed=1).batch(4)
    above = (ABOVE | THROUGH)[name](batches)
    for epoch in (0, 2):
        iterator = above.iterate(epoch=epoch)
        found = list(iterator)
        iterator.close()
        assert iterator.stats()["native"]["batches"] >= len(found) > 0
        assert plain(found) == plain([above.at(i, epoch) for i in range(len(above))])
    assert (name in THROUGH) == ("native engine" not in above.explain().splitlines()[0])
    state = above.iterate()
    next(state)
    next(state)
    assert plain(list(above.iterate(state=state.state_dict()))) == plain([above[i] for i in range(2, len(above))])


@pytest.mark.parametrize(
    "rows",
    [
        lambda one, two, no: one.map(itself).batch(4),
        lambda one, two, no: one.batch(4, collate_fn=list),
        lambda one, two, no: one.enumerate().batch(4),
        lambda one, two, no: one.filter(lambda s: s["n"], ahead=False).batch(4),
        lambda one, two, no: one.cache().batch(4),
        lambda one, two, no: one.concat(fl.Dataset.from_reader(two, ["n"])).take(3).batch(4, collate_fn=list),
    ],
)
def test_what_python_must_do_is_not_left_to_the_engine(rows, readers):
    dataset = rows(*readers)
    iterator = iter(dataset)
    assert list(iterator)
    assert iterator.stats()["native"]["batches"] == 0
    assert "native engine" not in dataset.explain()


def test_readers_with_other_fields_are_joined_by_python(readers, tmp_path):
    other = write_numbers(tmp_path / "other.fld", 4)
    dataset = fl.Dataset.from_reader(readers[0], "n").concat(other).batch(30)
    assert "native engine" not in dataset.explain()
    assert numbers(dataset) == [[*range(COUNT), *range(4)]]


def write_numbers(path, count):
    with fl.DatasetWriter(path, {"n": fl.IntField()}) as writer:
        writer.write_many({"n": i} for i in range(count))
    return fl.open(path)


def test_batches_over_the_end_of_a_pass(readers):
    endless = readers[0].shuffle(seed=1).repeat().batch(10)
    iterator = iter(endless)
    found = [n for _ in range(7) for n in next(iterator)["n"].tolist()]
    assert sorted(found[:COUNT]) == sorted(found[COUNT : 2 * COUNT]) == list(range(COUNT))
    assert found[:COUNT] != found[COUNT : 2 * COUNT]
    assert endless[10**12]["n"].shape == (10,)
    iterator.close()


def test_slices_of_a_reader_are_datasets_too(readers):
    part = readers[0][20:3:-4]
    assert [sample["n"] for sample in part] == [20, 16, 12, 8, 4]
    assert (len(part), part[-1]["n"]) == (5, 4)
    assert numbers(part.batch(3)) == [[20, 16, 12], [8, 4]]
    assert "native engine" in part.batch(3).explain()


def test_fields_are_chosen_before_reading(readers):
    dataset = fl.Dataset.from_reader(readers[0], ["a", "n"])
    assert set(dataset[0]) == set(next(iter(dataset.batch(3)))) == {"a", "n"}


def test_mapped_samples_are_stacked_as_fields_are(readers):
    mapped = readers[0].map(itself).batch(COUNT)[0]
    (native,) = fl.Dataset.from_reader(readers[0], ["n", "a"]).batch(COUNT)
    assert plain({name: mapped[name] for name in native}) == plain(native)
    assert isinstance(mapped["varying"], list)


def test_the_number_of_threads_is_an_option(readers):
    before = engine_threads()
    iterator = iter(readers[0].batch(2).options(threads=3))
    next(iterator)
    assert iterator.stats()["engines"][0]["threads"]["native"] == 3
    until(lambda: len(engine_threads() - before) == 3)
    mine = engine_threads() - before
    iterator.close()
    assert gone(mine)


def test_dropping_an_iterator_ends_the_engine(readers):
    before = engine_threads()
    iterators = [iter(readers[0].batch(2).map(itself).prefetch(2)) for _ in range(3)]
    for iterator in iterators:
        next(iterator)
    until(lambda: engine_threads() - before)
    mine = engine_threads() - before
    for iterator in iterators:
        iterator.close()
    iterator = iter(readers[0].batch(2))
    next(iterator)
    mine |= engine_threads() - before
    del iterator, iterators
    gc.collect()
    assert gone(mine)


def test_prefetch_tells_the_engine_how_far_to_go_ahead(readers):
    batches = readers[0].prefetch(2).batch(4)
    plans = [native_plan(d.node, new_run()) for d in (batches, batches.prefetch(7), batches.take(3).prefetch("auto"))]
    assert [plan.ahead for plan in plans] == [None, 7, None]
    assert plans[1].loader().options.prefetch_factor == -(-7 // plans[1].threads)
    first = batches.map(itself).prefetch(5).explain().splitlines()[0]
    assert first.split(maxsplit=1) == ["prefetch(5)", "a Python thread of its own, up to 5 elements ahead"]


def test_a_prefetch_that_random_access_passes_by_is_told(readers):
    second = readers[0].map(itself).prefetch(5).shuffle(seed=1).explain().splitlines()[1]
    assert second.split(maxsplit=1) == ["prefetch(5)", "no effect: what stands above asks by random access"]


def broken(path, at):
    """A dataset where the payloads of some samples are damaged."""
    reader = write(path, fields=FIELDS)
    data = bytearray(path.read_bytes())
    for i in at:
        text = f'"number {i}"'.encode()
        assert data.count(text) == 1
        data[data.index(text) + 3] ^= 1
    path.write_bytes(data)
    del reader
    return fl.open(path)


def test_a_bad_sample_is_named_by_both_paths(tmp_path, readers):
    bad = broken(tmp_path / "bad.fld", [5])
    for dataset in (readers[0].concat(bad).batch(4), readers[0].concat(bad).batch(4).shuffle(seed=3)):
        errors = []
        for read in (lambda d=dataset: list(d), lambda d=dataset: [d[i] for i in range(len(d))]):
            with pytest.raises(fl.ChecksumError) as info:
                read()
            errors.append((info.value.sample, info.value.field, info.value.path))
        assert errors == [(5, "text", str(tmp_path / "bad.fld"))] * 2


@settings(max_examples=12, deadline=None, database=None, derandomize=True)
@given(st.sets(st.sampled_from([0, 1, 4, 5, 6, 7, 12, 20]), min_size=1, max_size=4), st.integers(4, 9))
def test_skipping_gives_the_place_to_the_next_good_sample_in_both(tmp_path_factory, at, size):
    rows = broken(tmp_path_factory.mktemp("bad") / "bad.fld", at).shuffle(seed=1)
    native = rows.batch(size).options(on_error="skip")
    iterator = iter(native)
    found = list(iterator)
    assert plain(found) == plain([native[i] for i in range(len(native))])
    python = rows.map(itself).batch(size).options(on_error="skip")
    slow = iter(python)
    assert numbers(found) == [list(map(int, batch["n"])) for batch in slow]
    for stats in (iterator.stats(), slow.stats()):
        assert stats["skipped"] == len(at)
        assert len(stats["bad"]) == len(at)
        assert "crc32c" in stats["bad"][0]
    assert not {n for batch in numbers(found) for n in batch} & at


def test_a_batch_of_bad_samples_alone_is_an_error(tmp_path):
    rows = broken(tmp_path / "bad.fld", [4, 5, 6, 7]).options(on_error="skip")
    for batches in (rows.batch(4), rows.map(itself).batch(4)):
        with pytest.raises(fl.ChecksumError):
            list(batches)
