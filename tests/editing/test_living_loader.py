"""Loaders over datasets that were changed: the engine gives what the slow path does, on all ranks, resumed anywhere."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orders import in_order

import fastloader as fl
from fastloader.formats.fld.runs import as_ranges, lay_runs

FIELDS = {"n": fl.IntField(), "image": fl.JPEGImageField(quality=80), "text": fl.TextField()}


def picture(number: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    return rng.integers(0, 255, (24 + number % 5, 32, 3), np.uint8)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("living") / "x.fld"
    with fl.DatasetWriter(where, FIELDS, shard_size="12KB", keys=True, page_size=4096) as writer:
        for i in range(61):
            writer.write_sample({"n": i, "image": picture(i), "text": f"text {i} " * (i % 7)}, f"k{i}")
    editor = fl.edit(where)
    editor.delete(where=("n", "in", [0, 7, 8, 9, 30, 60]))
    editor.add_column("score", fl.FloatField(), lambda sample: sample["n"] / 4, fields=["n"])
    editor.add_column(
        "thumb", fl.JPEGImageField(quality=80), lambda sample: sample["image"][:16, :16], fields=["image"]
    )
    editor.update({f"k{i}": {"image": picture(100 + i), "text": None} for i in (3, 4, 5, 40)})
    editor.update(where=("n", ">", 50), values=lambda sample: {"score": -sample["score"]})
    with fl.DatasetWriter(where, None, mode="a") as writer:
        for i in range(70, 75):
            sample = {"n": i, "image": picture(i), "text": "new", "score": i / 4, "thumb": picture(i)[:16, :16]}
            writer.write_sample(sample, f"k{i}")
    editor.rename_column("text", "caption")
    assert len(fl.open(where).dataset.shards) > 4
    return where


def by_number(batches: Any) -> dict[int, dict[str, Any]]:
    """Samples of batches by their number ``n``."""
    found: dict[int, dict[str, Any]] = {}
    for batch in batches:
        for i, n in enumerate(batch["n"].tolist()):
            assert n not in found
            found[n] = {name: values[i] for name, values in batch.items()}
    return found


def assert_same(found: dict[int, dict[str, Any]], reader: fl.DatasetReader) -> None:
    assert sorted(found) == sorted(sample["n"] for sample in reader)
    for sample in reader:
        for name, value in sample.items():
            given = found[sample["n"]][name]
            if value is None:
                assert given is None or given is np.ma.masked
            else:
                np.testing.assert_array_equal(given, value)


@pytest.mark.parametrize("io", ["mmap", "pread", "auto"])
@pytest.mark.parametrize("order", ["sequential", "random", "quasi_random"])
def test_the_engines_batches_are_those_of_the_slow_path(original: Path, io: Any, order: Any) -> None:
    reader = fl.open(original)
    with fl.DataLoader(reader, 7, **in_order(order, 2), io=io, seed=3) as loader:
        assert_same(by_number(loader), reader)
        assert_same(by_number(loader), reader)


def test_batches_of_a_reader_are_its_samples(original: Path) -> None:
    reader = fl.open(original)
    indices = np.random.default_rng(0).permutation(len(reader))
    assert_same(by_number([reader.read_batch(indices)]), reader)
    assert len(reader) == 60
    assert reader.field_names == ["n", "image", "caption", "score", "thumb"]
    assert "k7" not in reader
    assert reader["k40"]["score"] == 10.0
    assert [reader.key_of(i) for i in range(3)] == ["k1", "k2", "k3"]


def test_a_pipeline_draws_by_the_number_that_samples_have(original: Path, tmp_path: Path) -> None:
    """What is written anew by compacting gives the same batches as what was deleted and lies beside."""
    pipelines = {"image": [fl.ops.RandomResizedCrop(16)], "thumb": [fl.ops.RandomResizedCrop(8)]}
    options: dict[str, Any] = {"order": "random", "seed": 5, "pipelines": pipelines}
    before = fl.open(original)
    with fl.DataLoader(before, 8, **options) as loader:
        found = [pickle.dumps(batch) for batch in loader]
    with fl.DatasetWriter(tmp_path / "plain.fld", before.fields, shard_size="20KB") as writer:
        for i in range(len(before)):
            given = before.read_sample(i)
            given |= {name: before.read_payload(i, name) for name in ("image", "thumb")}
            writer.write_sample(given)
    with fl.DataLoader(fl.open(tmp_path / "plain.fld"), 8, **options) as loader:
        assert [pickle.dumps(batch) for batch in loader] == found


@pytest.mark.parametrize("order", ["random", "quasi_random"])
def test_each_sample_reaches_just_one_rank(original: Path, order: Any) -> None:
    reader = fl.open(original)
    seen: list[int] = []
    for rank in range(3):
        with fl.DataLoader(reader, 4, **in_order(order, 1), rank=rank, world_size=3) as loader:
            seen += [n for batch in loader for n in batch["n"].tolist()]
    assert sorted(seen) == sorted(sample["n"] for sample in reader)


def test_a_run_goes_on_with_the_snapshot_it_began_with_at_every_step(original: Path, tmp_path: Path) -> None:
    import shutil

    where = tmp_path / "x.fld"
    shutil.copytree(original, where)
    options: dict[str, Any] = {"batch_size": 9, "seed": 2, "fields": ["n", "score"]}
    states, batches = [], []
    began = fl.open(where)
    with fl.DataLoader(began, **options) as loader:
        states.append(loader.state_dict())
        for batch in loader:
            batches.append(batch["n"].tolist())
            states.append(loader.state_dict())
    assert {state["snapshot"] for state in states} == {began.snapshot}
    editor = fl.edit(where)
    editor.delete(indices=range(20))
    editor.drop_column("caption")
    editor.compact()
    for step, state in enumerate(states[:-1]):
        later = fl.DataLoader(fl.open(where), **options)
        later.load_state_dict(json.loads(json.dumps(state)))
        assert [batch["n"].tolist() for batch in later] == batches[step:]
        assert later.reader.snapshot == began.snapshot
        assert later.reader.field_names == began.field_names
        assert later.state_dict()["snapshot"] == began.snapshot
    editor.drop_snapshots()
    last = fl.DataLoader(fl.open(where), **options)
    with pytest.raises(fl.StateError, match=rf"the state is of snapshot {began.snapshot}, which .* does not have"):
        last.load_state_dict(states[1])
    del states[1]["snapshot"]
    with pytest.raises(fl.StateError, match="is 60 in the state and 40 here"):
        last.load_state_dict(states[1])
    assert len(last) == 5


def test_a_state_of_a_single_file_is_good_for_the_folder_it_becomes(tmp_path: Path) -> None:
    where = tmp_path / "x.fld"
    with fl.DatasetWriter(where, {"n": fl.IntField()}) as writer:
        writer.write_many({"n": list(range(20))})
    loader = fl.DataLoader(fl.open(where), 5, seed=1)
    batches = iter(loader)
    next(batches)
    state, rest = loader.state_dict(), [batch["n"].tolist() for batch in batches]
    fl.edit(where).delete(indices=[3])
    with fl.DatasetWriter(where, None, mode="a") as writer:
        writer.write_many({"n": [20, 21]})
    again = fl.DataLoader(fl.open(where), 5, seed=1)
    again.load_state_dict(state)
    assert [batch["n"].tolist() for batch in again] == rest
    assert len(fl.open(where)) == 21
    assert len(fl.open(where, snapshot=1)) == 20


def test_expressions_and_joined_datasets_see_what_is_left(original: Path, tmp_path: Path) -> None:
    reader = fl.open(original)
    numbers = [sample["n"] for sample in reader]
    found = [n for batch in reader.shuffle(seed=1).batch(8) for n in batch["n"].tolist()]
    assert sorted(found) == sorted(numbers)
    assert found != numbers
    fl.concatenate(tmp_path / "both.fld", [original, original])
    assert [sample["n"] for sample in fl.open(tmp_path / "both.fld")] == numbers * 2
    assert fl.verify(tmp_path / "both.fld").ok


def test_a_state_of_an_expression_is_refused_in_another_snapshot(tmp_path: Path) -> None:
    where = tmp_path / "x.fld"
    with fl.DatasetWriter(where, {"n": fl.IntField()}, shard_size=40) as writer:
        writer.write_many({"n": list(range(20))})
    passing = iter(fl.open(where).shuffle(seed=1).batch(4))
    next(passing)
    state, rest = passing.state_dict(), [batch["n"].tolist() for batch in passing]
    fl.edit(where).update({3: {"n": 33}})
    with pytest.raises(fl.StateError, match=r"open\(20 samples of snapshot 2\).*open\(\.\.\., snapshot=\.\.\.\)"):
        fl.open(where).shuffle(seed=1).batch(4).iterate(state=state)
    again = fl.open(where, snapshot=1).shuffle(seed=1).batch(4).iterate(state=state)
    assert [batch["n"].tolist() for batch in again] == rest


def test_a_pickled_reader_is_of_its_snapshot(original: Path) -> None:
    reader = fl.open(original, snapshot=2)
    again = pickle.loads(pickle.dumps(reader))
    assert again.snapshot == reader.snapshot
    assert [s["n"] for s in again] == [s["n"] for s in reader]
    assert again.field_names == ["n", "image", "text"]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_runs_are_what_going_row_by_row_gives(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    some = st.lists(st.integers(0, 11), unique=True)
    removed, gone, beside = [], set(), []
    for shard, count in enumerate(counts):
        rows = sorted(row for row in data.draw(some) if row < count)
        gone |= {(shard, row) for row in rows}
        removed += [(shard, first, size) for first, size in as_ranges(np.array(rows, np.int64))]
    for _ in range(data.draw(st.integers(0, 3))):
        shard = data.draw(st.integers(0, len(counts) - 1))
        rows = sorted(row for row in data.draw(some) if row < counts[shard])
        beside.append((shard, None if data.draw(st.booleans()) else as_ranges(np.array(rows, np.int64))))
    runs, sources = lay_runs(np.array(counts, np.int64), np.array(removed, np.int64).reshape(-1, 3), beside)

    def held(shard: int, row: int) -> tuple[int, ...]:
        return tuple(
            i for i, (of, ranges) in enumerate(beside)
            if of == shard and (ranges is None or any(first <= row < first + size for first, size in ranges))
        )  # fmt: skip

    expected = [(s, r, held(s, r)) for s, count in enumerate(counts) for r in range(count) if (s, r) not in gone]
    assert len(runs) == len(expected)
    which, rows_found = runs.locate(np.arange(len(expected)))
    found = [(sources[w].shard, r, sources[w].beside) for w, r in zip(which.tolist(), rows_found.tolist(), strict=True)]
    assert found == expected
    assert [runs.where(i) for i in range(len(expected))] == list(zip(which.tolist(), rows_found.tolist(), strict=True))
    starts = np.cumsum([0, *counts])
    for place in range(int(starts[-1])):
        shard = int(np.searchsorted(starts, place, "right")) - 1
        row = place - int(starts[shard])
        sample = runs.sample_at(place)
        assert (sample is None) == ((shard, row) in gone)
        assert sample is None or expected[sample][:2] == (shard, row)
        assert sample is None or runs.places_of(np.array([sample])).tolist() == [place]
