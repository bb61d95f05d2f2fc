"""Formats of others in stores: the same samples as from files, in the same order."""

from __future__ import annotations

import io
import itertools
import pickle

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastloader as fl
from fastloader.stores import ChangedError, MemoryStore, open_store
from fastloader.testing import identical

_names = itertools.count()


@pytest.fixture
def bucket():
    """A store in memory, of its own."""
    return MemoryStore(f"formats-{next(_names)}")


def files():
    """A small file of each format, and what it holds."""
    table = pa.table({"x": list(range(20)), "text": [f"t{i}" for i in range(20)]})
    rows = table.to_pylist()
    parquet, arrow, npz, hdf5 = (io.BytesIO() for _ in range(4))
    pq.write_table(table, parquet, row_group_size=6)
    with pa.ipc.new_file(arrow, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    np.savez(npz, x=np.arange(20))
    with h5py.File(hdf5, "w") as file:
        file.create_dataset("x", data=np.arange(20), chunks=(4,))
    numbers = [{"x": np.int64(i)} for i in range(20)]
    lines = "".join(f'{{"x": {i}, "text": "t{i}"}}\n' for i in range(20))
    commas = "x,text\n" + "".join(f"{i},t{i}\n" for i in range(20))
    return {
        "a.parquet": (parquet.getvalue(), rows), "a.arrow": (arrow.getvalue(), rows),
        "a.npz": (npz.getvalue(), numbers), "a.h5": (hdf5.getvalue(), numbers), "a.jsonl": (lines.encode(), rows),
        "a.csv": (commas.encode(), rows),
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(files()))
def test_an_object_gives_what_a_file_gives(name, bucket):
    data, wanted = files()[name]
    bucket.put(f"deep/{name}", data)
    dataset = fl.open(f"{bucket.url}/deep/{name}")
    assert identical(list(dataset), wanted)
    assert identical(dataset[7], wanted[7])
    assert identical(list(pickle.loads(pickle.dumps(dataset))), wanted)
    iterator = iter(dataset)
    next(iterator)
    assert identical(list(dataset.iterate(state=iterator.state_dict())), wanted[1:])


def test_folders_and_patterns_of_objects(bucket):
    for key in ("p/cat/1.bin", "p/cat/2.bin", "p/dog/3.bin", "p/.hidden/4.bin", "q/deep/x.jsonl", "q/y.jsonl"):
        bucket.put(key, b'{"key": "%s"}\n' % key.encode() if key.endswith("l") else key.encode())
    folder = fl.open(f"{bucket.url}/p")
    assert folder.classes == ("cat", "dog")
    assert [sample["path"] for sample in folder] == ["cat/1.bin", "cat/2.bin", "dog/3.bin"]
    assert [s["data"] for s in fl.open(f"{bucket.url}/p/cat/?.bin")] == [b"p/cat/1.bin", b"p/cat/2.bin"]
    assert [s["key"] for s in fl.open(f"{bucket.url}/q/*.jsonl")] == ["q/y.jsonl"]
    assert [s["key"] for s in fl.open(f"{bucket.url}/q/**/*.jsonl")] == ["q/deep/x.jsonl", "q/y.jsonl"]
    both = [f"{bucket.url}/q/y.jsonl", f"{bucket.url}/q/deep/x.jsonl"]
    assert [s["key"] for s in fl.open(both)] == ["q/y.jsonl", "q/deep/x.jsonl"]
    with pytest.raises(fl.NotFoundError, match="nowhere"):
        fl.open(f"{bucket.url}/nowhere")
    with pytest.raises(fl.NotFoundError, match="no file fits the pattern"):
        fl.open(f"{bucket.url}/q/*.csv")


def test_fld_datasets_are_recognised_among_objects(bucket, tmp_path):
    with fl.DatasetWriter(tmp_path / "a.fld", {"n": fl.IntField()}) as writer:
        writer.write_many([i] for i in range(5))
    bucket.put("unnamed", (tmp_path / "a.fld").read_bytes())
    with fl.DatasetWriter(f"{bucket.url}/shards.fld", {"n": fl.IntField()}, shard_size=1) as writer:
        writer.write_many([i] for i in range(5))
    for name in ("unnamed", "shards.fld"):
        reader = fl.open(f"{bucket.url}/{name}")
        assert isinstance(reader, fl.DatasetReader)
        assert [sample["n"] for sample in reader] == list(range(5))


def test_an_object_that_changes_under_a_pass_is_an_error(bucket):
    bucket.put("a.jsonl", b'{"x": 1}\n' * 200)
    iterator = iter(fl.open(f"{bucket.url}/a.jsonl"))
    next(iterator)
    bucket.put("a.jsonl", b'{"x": 2}\n' * 200)
    with pytest.raises(ChangedError, match=r"a\.jsonl"):
        list(iterator)


def test_options_of_stores_are_for_fld_alone(bucket):
    bucket.put("a.jsonl", b'{"x": 1}\n')
    with pytest.raises(ValueError, match=r"are for the URL of one \.fld dataset"):
        fl.open(f"{bucket.url}/a.jsonl", {"region": "x"}, format="jsonl")


def test_many_objects_come_in_an_order_that_is_a_matter_of_the_seed(bucket):
    for i in range(2000):
        bucket.put(f"many/{i:05d}.bin", b"%d" % i)
    dataset = fl.open(f"{bucket.url}/many")
    one, same, other = ([s["data"] for s in dataset.shuffle(seed=seed)] for seed in (1, 1, 2))
    assert one == same != other
    assert sorted(map(int, one)) == sorted(map(int, other)) == list(range(2000))


def test_a_hundred_npz_objects_in_a_bucket_of_a_real_server(s3, monkeypatch):
    for name, value in s3.storage_options().items():
        monkeypatch.setenv({"endpoint": "AWS_ENDPOINT_URL"}.get(name, f"AWS_{name.upper()}"), value)
    store, prefix = open_store("s3://tests/npz")
    for i in range(100):
        file = io.BytesIO()
        np.savez(file, x=np.full((4, 4), i, np.float32), y=np.int64(i))
        store.put(f"{prefix}/{i:03d}.npz", file.getvalue())
    batches = list(fl.open(f"{store.url}/{prefix}").shuffle(seed=3).batch(16).prefetch(2))
    assert sorted(int(y) for batch in batches for y in batch["y"]) == list(range(100))
    assert all((batch["x"][:, 0, 0] == batch["y"]).all() for batch in batches)
