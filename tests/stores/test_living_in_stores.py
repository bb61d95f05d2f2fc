"""Datasets that change in buckets of a real S3 server: conditional puts, snapshots, loaders over what is left."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from orders import in_order
from two_writers import check_two_writers

import fastloader as fl
from fastloader.testing.seaweed import S3Server

FIELDS = {"n": fl.IntField(), "data": fl.BytesField(), "text": fl.TextField()}


@pytest.fixture
def options(s3: S3Server) -> dict[str, Any]:
    return s3.storage_options()


def written(url: str, options: dict[str, Any], samples: int = 40) -> str:
    with fl.DatasetWriter(url, FIELDS, shard_size="2KB", keys=True, storage_options=options) as writer:
        for i in range(samples):
            writer.write_sample({"n": i, "data": b"%d" % i * 50, "text": f"text {i}"}, f"k{i}")
    return url


def keys_of(store: Any, prefix: str) -> set[str]:
    return {found.key.removeprefix(f"{prefix}/") for found in store.list(prefix)}


def test_a_dataset_in_a_bucket_changes_and_its_snapshots_stay(options: dict[str, Any]) -> None:
    url = written("s3://living/train.fld", options)
    editor = fl.edit(url, options)
    first = fl.open(url, options)
    loader = fl.DataLoader(first, 6, seed=1)
    passing = iter(loader)
    next(passing)
    state, rest = loader.state_dict(), [batch["n"].tolist() for batch in passing]
    editor.delete(where=("n", "<", 4))
    editor.add_column("score", fl.FloatField(), lambda sample: sample["n"] / 2, fields=["n"])
    editor.update({"k9": {"data": b"new", "score": -1.0}})
    editor.rename_column("text", "caption")
    reader = fl.open(url, options)
    assert reader["k9"]["data"] == b"new"
    expected = {sample["n"]: sample for sample in reader}
    assert sorted(expected) == list(range(4, 40))
    for order in ("random", "quasi_random", "sequential"):
        with fl.DataLoader(fl.open(url, options), 7, **in_order(order, 1)) as fetching:  # type: ignore[arg-type]
            found = {
                n: {name: batch[name][i] for name in reader.field_names}
                for batch in fetching
                for i, n in enumerate(batch["n"].tolist())
            }
            assert fetching.stats()["io"]["mode"] == "remote"
        assert found == expected
    again = fl.DataLoader(fl.open(url, options), 6, seed=1)
    again.load_state_dict(state)
    assert [batch["n"].tolist() for batch in again] == rest
    editor.compact(shard_size="1MB")
    assert {sample["n"]: sample for sample in fl.open(url, options)} == expected
    assert fl.verify(url, options, decode=True).ok
    assert [one.number for one in editor.snapshots()] == [6, 5, 4, 3, 2, 1]
    assert len(fl.open(url, options, snapshot=1)) == 40
    gone, freed = editor.drop_snapshots(1)
    assert gone == [5, 4, 3, 2, 1]
    assert freed > 0
    shards = {shard.path for shard in fl.open(url, options).dataset.shards}
    assert keys_of(reader.path.store, "train.fld") == {"manifest.json", *shards}  # type: ignore[union-attr]


def test_of_two_writers_in_a_bucket_one_wins_and_the_other_loses_nothing(options: dict[str, Any]) -> None:
    check_two_writers("s3://living/two.fld", options)


@pytest.mark.parametrize(("bucket", "at"), [("living", "killed.fld/"), ("all-of-it", "")])
def test_what_killed_writers_left_in_a_bucket_goes_when_it_is_old(
    options: dict[str, Any], bucket: str, at: str
) -> None:
    url = written(f"s3://{bucket}/{at}", options, 20)
    reader = fl.open(url, options)
    store, shards = reader.path.store, {shard.path for shard in reader.dataset.shards}  # type: ignore[union-attr]
    left = {"shard-0badcafe-00000.fld", "beside-0badcafe-00003.fld"}
    others = {"notes.txt", "deeper/shard-0badcafe-00000.fld"}
    for name in (*left, *others):
        store.put(f"{at}{name}", b"x" * 1000)
    everything = {"manifest.json", *shards, *left, *others}
    editor = fl.edit(url, options)
    assert editor.drop_snapshots() == ([], 0)
    assert editor.drop_snapshots(unnamed_days=1) == ([], 0)
    assert keys_of(store, at.rstrip("/")) == everything
    with pytest.raises(ValueError, match="unnamed_days=-1: a number of days"):
        editor.drop_snapshots(unnamed_days=-1)
    assert editor.drop_snapshots(unnamed_days=0) == ([], 2000)
    assert keys_of(store, at.rstrip("/")) == everything - left
    assert [sample["n"] for sample in fl.open(url, options)] == list(range(20))


def test_who_comes_second_takes_its_objects_away_again(options: dict[str, Any]) -> None:
    url = written("s3://living/second.fld", options, 20)
    store = fl.open(url, options).path.store  # type: ignore[union-attr]

    def values(sample: dict[str, Any]) -> int:
        if sample["n"] == 15:
            fl.edit(url, options).delete(keys=["k1"])
        return int(sample["n"])

    with pytest.raises(fl.StoreError, match="was changed by another writer in the meantime"):
        fl.edit(url, options).add_column("c", fl.IntField(), values)
    reader = fl.open(url, options)
    shards = {shard.path for shard in reader.dataset.shards}
    assert keys_of(store, "second.fld") == {"manifest.json", "snapshots/00000001.json", *shards}
    fl.edit(url, options).add_column("c", fl.IntField(), lambda sample: sample["n"])
    assert np.array_equal(fl.open(url, options).read_batch(range(19), ["c"])["c"], [0, *range(2, 20)])


def test_a_reader_sees_whole_states_while_another_writes(options: dict[str, Any]) -> None:
    url = written("s3://living/seen.fld", options, 20)
    wrong: list[BaseException] = []

    def write() -> None:
        try:
            for turn in range(2):
                fl.edit(url, options).delete(indices=[turn])
                fl.edit(url, options).add_column(f"c{turn}", fl.IntField(), lambda sample: sample["n"] * 2)
                fl.edit(url, options).compact()
        except BaseException as error:
            wrong.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    running = True
    while running:
        running = writer.is_alive()
        reader = fl.open(url, options)
        batch = reader.read_batch(range(len(reader)))
        for name in reader.field_names[3:]:
            assert np.array_equal(batch[name], batch["n"] * 2)
        assert [data[:2].strip() for data in batch["data"]] == [(b"%d" % n * 50)[:2] for n in batch["n"].tolist()]
    writer.join()
    assert not wrong
    assert len(fl.open(url, options)) == 18


def test_a_single_object_is_refused_with_what_to_do(options: dict[str, Any]) -> None:
    with fl.DatasetWriter("s3://living/one.fld", {"n": fl.IntField()}, storage_options=options) as writer:
        writer.write_sample([1])
    with pytest.raises(fl.StoreError, match="is a single object, which can't be changed; write it with shard_size"):
        fl.edit("s3://living/one.fld", options).delete(indices=[0])
