"""``batch(pad=...)``: made by the engine, read by position or put together by Python, batches are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.testing import identical

D = fl.Dataset


def itself(value):
    return value


def same(one, other):
    """The same keys in the same order, the same arrays to the last bit, and the same mask."""
    assert list(one) == list(other)
    for name in one:
        assert type(one[name]) is type(other[name]), name
        assert identical(np.ma.getdata(one[name]), np.ma.getdata(other[name])), name
        if isinstance(one[name], np.ndarray):
            assert np.array_equal(np.ma.getmaskarray(one[name]), np.ma.getmaskarray(other[name])), name


def write(path, values, field, **options):
    with fl.DatasetWriter(path, {"n": fl.IntField(), "x": field, "b": fl.BytesField()}, **options) as writer:
        writer.write_many({"n": i, "x": value, "b": bytes(range(i % 5))} for i, value in enumerate(values))
    return fl.open(path)


@st.composite
def cases(draw):
    dtype = np.dtype(draw(st.sampled_from(["u1", ">i4", "<f8", "?", "<c16"])))
    value = draw(st.sampled_from([0, 1]))
    lengths = draw(st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=20))
    return {
        "dtype": dtype, "inner": draw(st.sampled_from([(), (2,)])), "lengths": lengths,
        "declared": draw(st.booleans()), "size": draw(st.integers(1, 7)), "shards": draw(st.booleans()),
        "on_error": draw(st.sampled_from([None, "skip"])),
        "ways": draw(st.sampled_from([
            "ragged", "longest", 9, fl.Pad(value=bool(value) if dtype == np.bool_ else value), fl.Pad(multiple_of=4),
            fl.Pad(3, truncate=True), fl.Pad(6),
        ])),
    }  # fmt: skip


@settings(max_examples=80, deadline=None, database=None, derandomize=True)
@given(cases())
def test_the_engine_random_access_and_python_make_the_same_batches(tmp_path_factory, case):
    rng = np.random.default_rng(0)
    values = [
        None if n is None else rng.integers(0, 2, (n, *case["inner"])).astype(case["dtype"]) for n in case["lengths"]
    ]
    field = fl.NDArrayField(case["dtype"], (None, *case["inner"]) if case["declared"] else None)
    path = tmp_path_factory.mktemp("pad") / "x.fld"
    reader = write(path, values, field, **({"shard_size": 300} if case["shards"] else {}))
    pad = {"x": case["ways"], "b": "longest"}
    rows = reader.shuffle(seed=3)

    def results(dataset):
        found = []
        for i in range(len(dataset)):
            with dataset.iterate(state={**dataset.iterate().state_dict(), "place": i}) as passing:
                try:
                    found.append(next(passing))
                except (fl.ShapeError, fl.ElementError) as error:
                    found.append(str(error).partition("has the length ")[2].partition(";")[0])
        return found

    native, python, stream = (
        source.batch(case["size"], pad=pad).options(on_error=case["on_error"])
        for source in (rows, rows.map(itself), rows.filter(lambda sample: True, ahead=False))
    )
    assert "native engine" in native.explain()
    wanted = results(native)
    for number, (batch, mapped) in enumerate(zip(wanted, results(python), strict=True)):
        if isinstance(batch, str):
            assert batch.endswith("and the batch is padded to 6")
            assert mapped == batch
            with pytest.raises(fl.ShapeError, match=batch) as caught:
                native[number]
            assert case["lengths"][caught.value.sample] > 6
            continue
        same(batch, native[number])
        if all(case["lengths"][n] is None for n in batch["n"].tolist()):  # nothing tells Python their dtype
            batch, mapped = ({**one, "x": one["x"].shape[:2]} for one in (batch, mapped))
        same(batch, mapped)
    if not any(isinstance(batch, str) for batch in wanted):
        for batch, streamed in zip(python, stream, strict=True):
            same(batch, streamed)


def test_a_bare_way_is_for_every_field_that_varies(tmp_path):
    values = [np.arange(n, dtype=np.int32) for n in (3, 0, 2)]
    reader = write(tmp_path / "x.fld", values, fl.NDArrayField("int32", (None,)))
    (batch,) = reader.batch(3, pad="longest")
    assert list(batch) == ["n", "x", "x_lengths", "b", "b_lengths"]
    assert batch["x"].tolist() == [[0, 1, 2], [0, 0, 0], [0, 1, 0]]
    same(batch, reader.batch(3, pad="longest")[0])
    with pytest.raises(ValueError, match=r"name them: pad=\{'tokens': 'longest'\}"):
        reader.map(itself).batch(3, pad="longest")
    assert next(iter(D.from_reader(reader, "n").batch(3, pad={})))["n"].tolist() == [0, 1, 2]


def test_lists_as_tokenizers_give_them():
    texts = [[5, 6, 7], [], (8,), None]
    (batch,) = D.from_sequence(texts).map(lambda one: {"ids": one}).batch(4, pad={"ids": fl.Pad(value=-1)})
    assert batch["ids"].tolist() == [[5, 6, 7], [-1] * 3, [8, -1, -1], [-1] * 3]
    assert batch["ids"].dtype == np.int64
    assert np.ma.getmaskarray(batch["ids_lengths"]).tolist() == [False, False, False, True]
    (joined,) = D.from_iterable(texts).map(lambda one: {"ids": one}).batch(4, pad={"ids": "ragged"})
    assert joined["ids"].tolist() == [5, 6, 7, 8]
    assert joined["ids_offsets"].tolist() == [0, 3, 3, 4, 4]


@pytest.mark.parametrize("source", [D.from_sequence, D.from_iterable], ids=["map-style", "iterable"])
@pytest.mark.parametrize(
    ("elements", "says"),
    [
        ([{"x": [1]}, {"y": [2]}], "field 'x': row 1 is not there, but y; pad names parts of dictionaries"),
        ([[1], [2]], "row 0 is not there, but a list"),
        ([{"x": 5}], r"row 0 is int64 of the shape \(\): numbers with a length"),
        ([{"x": np.zeros(3)}, {"x": np.zeros(3, "f4")}], "row 1 is float32 .* they may differ in their length alone"),
        ([{"x": np.zeros((1, 2))}, {"x": np.zeros((1, 3))}], r"row 1 is float64 of the shape \(1, 3\)"),
        ([{"x": [1, 2, 3, 4, 5]}], r"row 0 has the length 5, and the batch is padded to 4; give pad a greater length"),
        ([{"x": [1], "x_lengths": 3}], "also gives 'x_lengths', and a field has that name"),
    ],
)
def test_what_can_not_be_padded_is_named(source, elements, says):
    dataset = source(elements).batch(2, pad={"x": 4})
    with pytest.raises(fl.ElementError, match=says) as caught:
        list(dataset)
    assert (caught.value.step, caught.value.element) == ("batch", 0)


@pytest.mark.parametrize("source", [D.from_sequence, D.from_iterable], ids=["map-style", "iterable"])
def test_skipping_gives_the_row_of_what_is_too_long_to_the_next(source):
    dataset = source([{"x": [n] * n} for n in (1, 9, 2, 3)]).batch(4, pad={"x": 4}).options(on_error="skip")
    iterator = iter(dataset)
    (batch,) = iterator
    assert batch["x_lengths"].tolist() == [1, 2, 2, 3]
    assert iterator.stats()["skipped"] == 1
    assert "length 9" in iterator.stats()["bad"][0]


def test_batches_padded_in_other_ways_are_not_one_plan(tmp_path):
    reader = write(tmp_path / "x.fld", [np.zeros(2)] * 4, fl.NDArrayField("float64", (None,)))
    three, four = reader.batch(4, pad={"x": 3}), reader.batch(4, pad={"x": 4})
    assert [batch["x"].shape for batch in three.concat(four)] == [(4, 3), (4, 4)]
    assert "native engine" in three.concat(three.take(1)).explain().splitlines()[0]
    assert "native engine" not in three.concat(four).explain().splitlines()[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pad": "wide"}, "pad='wide': None, 'list', 'ragged', 'longest', a length, or a fastloader.Pad"),
        ({"pad": {"x": True}}, "pad for 'x'=True"),
        ({"pad": {"n": 3}}, "IntField has one value a sample"),
        ({"pad": {"z": 3}}, "pad for unknown fields z; there are n, x, b"),
        ({"pad": {"x": fl.Pad(value="much")}}, "pad for 'x': value"),
        ({"pad": {"x": 3}, "collate_fn": list}, "collate_fn makes the batch by itself"),
    ],
)
def test_wrong_ways_are_refused_when_the_step_is_written(options, says, tmp_path):
    reader = write(tmp_path / "x.fld", [np.zeros(2)], fl.NDArrayField("float64", (None,)))
    with pytest.raises((ValueError, TypeError), match=says):
        reader.batch(4, **options)
