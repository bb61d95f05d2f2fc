"""What is made once and kept: caches in memory and in files, filters resolved ahead, batches put together."""

from __future__ import annotations

import pickle
from collections import namedtuple

import numpy as np
import pytest
from expression_model import plain

import fastloader as fl

D = fl.Dataset
Pair = namedtuple("Pair", "left right")


class Counting:
    """A function that knows what it was called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, number):
        self.calls.append(number)
        return {"n": number, "a": np.full(3, number)}


SOURCES = {"map-style": D.range(12), "iterable": D.from_iterable(range(12))}


@pytest.fixture(params=SOURCES)
def source(request):
    return SOURCES[request.param]


@pytest.fixture(params=["memory", "file"])
def path(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "kept.cache"


def test_a_cache_makes_each_element_once(source, path):
    count = Counting()
    cached = source.map(count).cache(path)
    wanted = plain(list(source.map(Counting())))
    assert count.calls == []
    for _ in range(3):
        assert plain(list(cached)) == wanted
    assert plain([cached[i] for i in (5, 0)]) == [wanted[5], wanted[0]]
    assert len(cached) == 12
    assert count.calls == list(range(12))


def test_a_cache_is_shuffled_behind_not_before(source, path):
    cached = source.shuffle(4, seed=1).cache(path)
    assert list(cached.iterate(epoch=1)) == list(cached) == list(source.shuffle(4, seed=1))
    assert list(cached.shuffle(seed=2).iterate(epoch=1)) != list(cached.shuffle(seed=2))


def test_changing_what_a_cache_gave_does_not_change_what_it_keeps(source, path):
    cached = source.map(Counting()).cache(path)
    wanted = plain(list(cached))
    for sample in cached:
        sample["n"] = -1
        with pytest.raises(ValueError, match="read-only"):
            sample["a"][:] = 0
    assert plain(list(cached)) == wanted


def test_in_memory_only_what_was_asked_for_is_made():
    count = Counting()
    cached = D.range(1000).map(count).cache()
    list(cached.take(3))
    cached[7]
    list(cached.take(5))
    assert count.calls == [0, 1, 2, 7, 3, 4]
    assert "in memory: 6 elements" in cached.explain()


def test_a_file_is_used_again(source, tmp_path):
    one, two = Counting(), Counting()
    list(source.map(one).cache(tmp_path / "kept"))
    assert plain(list(source.map(two).cache(tmp_path / "kept"))) == plain(list(source.map(Counting())))
    assert two.calls == []
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


def test_a_file_of_many_pieces(tmp_path):
    big = D.range(40).map(lambda n: np.full(50_000, n))
    cached = big.cache(tmp_path / "kept")
    assert (tmp_path / "kept").exists() is False
    assert [int(a[-1]) for a in cached] == list(range(40))
    assert (tmp_path / "kept").stat().st_size > 3 * (4 << 20)


def test_a_pass_that_fails_leaves_no_cache(source, path, tmp_path):
    def fail(number):
        if number == 7 and broken:
            raise OSError("gone")
        return number

    broken = [True]
    cached = source.map(fail).cache(path)
    for _ in range(2):
        with pytest.raises(fl.ElementError, match="element 7"):
            list(cached)
        assert list(tmp_path.iterdir()) == []
    broken.clear()
    assert list(cached) == list(range(12))


@pytest.mark.parametrize("at", [0, 30, -40, -5])
def test_a_damaged_file_is_refused(at, tmp_path):
    path = tmp_path / "kept"
    list(D.range(12).map(str).cache(path))
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(fl.FormatError, match="remove it and it will be made anew"):
        list(D.range(12).map(str).cache(path))


@pytest.mark.parametrize("size", [0, 7, 40, -1])
def test_a_cut_file_is_refused(size, tmp_path):
    path = tmp_path / "kept"
    list(D.range(12).cache(path))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(fl.FormatError):
        list(D.range(12).cache(path))


def test_a_file_of_another_expression_is_refused(tmp_path):
    list(D.range(12).cache(tmp_path / "kept"))
    with pytest.raises(fl.FormatError, match="another expression"):
        list(D.range(13).cache(tmp_path / "kept"))


def test_a_filter_is_resolved_once_and_then_dealt_equally():
    asked = []
    kept = D.range(100).filter(lambda n: asked.append(n) or n % 7 == 0)
    assert asked == []
    assert "when first needed" in kept.explain()
    assert len(kept) == 15
    shards = [kept.shuffle(seed=1).shard(4, i, "drop") for i in range(4)]
    assert [len(shard) for shard in shards] == [3] * 4
    assert len({n for shard in shards for n in shard}) == 12
    assert asked == list(range(100))
    assert "15 kept" in kept.explain()


def test_a_resolved_filter_travels_with_a_pickle():
    dataset = D.range(50).filter(odd)
    len(dataset)
    ODD_CALLS.clear()
    assert list(pickle.loads(pickle.dumps(dataset))) == list(range(1, 50, 2))
    assert ODD_CALLS == []


ODD_CALLS = []


def odd(number):
    ODD_CALLS.append(number)
    return number % 2


def test_a_filter_can_skip_what_it_cannot_judge():
    dataset = D.range(-3, 4).filter(lambda n: 6 // n > 0)
    assert list(dataset.options(on_error="skip")) == [1, 2, 3]
    with pytest.raises(fl.ElementError, match="element 3: ZeroDivisionError"):
        len(dataset)


def test_the_filter_of_a_shuffle_is_streamed():
    dataset = D.range(20).shuffle(seed=1).filter(odd)
    assert isinstance(dataset, fl.IterDataset)
    assert isinstance(D.range(20).filter(odd).shuffle(seed=1), fl.MapDataset)
    assert isinstance(D.range(20).filter(odd, ahead=False), fl.IterDataset)


@pytest.fixture
def reader(tmp_path):
    fields = {"n": fl.IntField(), "score": fl.FloatField(), "text": fl.BytesField()}
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        writer.write_many({"n": i, "score": i / 7, "text": b"x" * i} for i in range(200))
    return fl.open(tmp_path / "x.fld")


def test_a_filter_by_columns_equals_one_by_samples(reader, monkeypatch):
    wanted = reader.filter(lambda s: s["n"] % 3 == 1 and s["score"] > 5)
    for rows in (65_536, 7):
        monkeypatch.setattr("fastloader.dataset.filtering.ROWS_AT_ONCE", rows)
        found = reader.filter(lambda c: (c["n"] % 3 == 1) & (c["score"] > 5), columns=["n", "score"])
        assert [s["n"] for s in found] == [s["n"] for s in wanted] == list(range(37, 200, 3))
    twice = reader.concat(reader.skip(190)).filter(lambda c: c["n"] > 195, columns="n")
    assert [s["n"] for s in twice] == [196, 197, 198, 199] * 2


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda c: c["n"], r"gave int64 of shape \(200,\) for 200 rows"),
        (lambda c: True, r"gave bool of shape \(\) for 200 rows"),
        (lambda c: c["x"], "KeyError"),
    ],
)
def test_a_filter_by_columns_that_gives_no_mask(function, says, reader):
    with pytest.raises(fl.ElementError, match=says):
        len(reader.filter(function, columns="n"))


def test_columns_that_are_not_there(reader):
    with pytest.raises(ValueError, match="unknown size; there are n, score, text"):
        reader.filter(bool, columns=["n", "size"])
    with pytest.raises(ValueError, match="unchanged, and these are map"):
        reader.map(dict).filter(bool, columns="n")
    with pytest.raises(ValueError, match="leave out ahead=False"):
        reader.filter(bool, columns="n", ahead=False)
    with pytest.raises(ValueError, match="none chosen; there are"):
        D.from_reader(reader, [])


# Batches


@pytest.mark.parametrize(
    ("elements", "batch"),
    [
        ([1, 2], np.array([1, 2])),
        ([1.5, 2.5], np.array([1.5, 2.5])),
        ([1, 2.5], [1, 2.5]),
        (["a", "b"], ["a", "b"]),
        ([None, 1], [None, 1]),
        ([np.zeros(2), np.ones(2)], np.array([[0.0, 0], [1, 1]])),
        ([np.zeros(2), np.ones(3)], [np.zeros(2), np.ones(3)]),
        ([(1, "a"), (2, "b")], (np.array([1, 2]), ["a", "b"])),
        ([Pair(1, 2), Pair(3, 4)], Pair(np.array([1, 3]), np.array([2, 4]))),
        ([{"x": 1, "y": {"z": b"a"}}, {"y": {"z": b"b"}, "x": 2}], {"x": np.array([1, 2]), "y": {"z": [b"a", b"b"]}}),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [D.from_sequence, D.from_iterable])
def test_batches_are_put_together_by_parts_and_taken_apart_again(make, elements, batch):
    dataset = make(elements)
    (found,) = dataset.batch(2)
    assert type(found) is type(batch)
    assert shown(found) == shown(batch)
    assert shown(list(dataset.batch(2).unbatch())) == shown(elements)


def shown(value):
    """Like ``plain``, which can't make a named tuple."""
    if isinstance(value, Pair):
        return ("pair", *map(shown, value))
    if isinstance(value, list):
        return [shown(one) for one in value]
    return plain(value)


@pytest.mark.parametrize(
    ("elements", "says"),
    [
        ([{"a": 1}, {"b": 1}], r"row 1 of the batch has \['b'\] where row 0 has \['a'\]"),
        ([{"a": 1}, 5], "row 1 of the batch has a int where row 0 has"),
        ([(1, 2), (1,)], "row 1 of the batch has 1 parts where row 0 has 2 parts"),
    ],
)
def test_elements_that_make_no_batch(elements, says):
    for dataset in (D.from_sequence(elements), D.from_iterable(elements)):
        with pytest.raises(fl.ElementError, match="batch, element 0: ValueError: " + says):
            list(dataset.batch(2))


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({"a": [1, 2], "b": [1]}, r"columns of \[1, 2\] rows"),
        ({}, "columns of no rows"),
        (5, "a int is no batch"),
        ({"a": "text"}, "a str is no batch"),
    ],
)
def test_what_is_no_batch_is_not_taken_apart(batch, says):
    with pytest.raises(fl.ElementError, match="unbatch.*element 0: .*" + says):
        list(D.from_sequence([batch]).unbatch())


def test_missing_values_come_back_from_native_batches(tmp_path):
    fields = {"n": fl.IntField(), "a": fl.NDArrayField("float32", (2,))}
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        writer.write_many({"n": i if i % 2 else None, "a": None if i % 3 else np.ones(2, np.float32)} for i in range(9))
    reader = fl.open(tmp_path / "x.fld")
    rows = list(reader.batch(4).unbatch())
    assert plain(rows) == plain(list(reader))
    assert not isinstance(rows[3]["a"], np.ma.MaskedArray)


# Readers


def test_a_reader_is_a_dataset_and_stays_a_reader(reader):
    assert isinstance(reader, fl.DatasetReader)
    assert sum(len(batch["n"]) for batch in fl.DataLoader(reader, 32)) == 200
    with reader as same:
        assert same is reader
        iterator = iter(reader)
        first = [next(iterator)["n"] for _ in range(3)]
        state = iterator.state_dict()
        assert first + [s["n"] for s in reader.iterate(state=state)] == list(range(200))
        assert reader.shuffle(seed=1)[0] == reader[reader.shuffle(seed=1)[0]["n"]]
        copy = pickle.loads(pickle.dumps(reader.shuffle(seed=1).batch(9)))
        assert plain(list(copy)) == plain(list(reader.shuffle(seed=1).batch(9)))
        dataset = reader.batch(4)
    with pytest.raises(ValueError, match="closed"):
        list(dataset)
