"""Formats of others in stores: the same samples as from files, in the same order."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.formats.test_tfrecord_files import record
from tests.stores.fault_proxy import fault_proxy

import fastloader as fl
from fastloader.dataset.dataset import as_node
from fastloader.dataset.running import new_run
from fastloader.formats import indexes, tfrecord
from fastloader.formats.objects import Places, at_once
from fastloader.formats.remote import RemoteObjects
from fastloader.stores import ChangedError, MemoryStore, open_store
from fastloader.testing import identical
from fastloader.testing.seaweed import PUBLIC
from fastloader.torch import TorchMapDataset

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
    for pattern in ("**/*.jsonl", "**"):
        assert [s["key"] for s in fl.open(f"{bucket.url}/q/{pattern}")] == ["q/deep/x.jsonl", "q/y.jsonl"]
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
    for key in ("two/a.fld", "two/b.fld"):
        bucket.put(key, (tmp_path / "a.fld").read_bytes())
    with pytest.raises(fl.FormatError, match=r"several \.fld datasets"):
        fl.open(f"{bucket.url}/two/*.fld")
    for name in ("unnamed", "shards.fld"):
        reader = fl.open(f"{bucket.url}/{name}")
        assert isinstance(reader, fl.DatasetReader)
        assert [sample["n"] for sample in reader] == list(range(5))


def test_objects_are_known_by_their_versions(bucket):
    def origin(path):
        return as_node(fl.open(f"{bucket.url}/{path}")).origin(new_run())

    for i in range(100):
        bucket.put(f"many/{i % 2}/{i:03d}.bin", bytes([i]))
        bucket.put(f"beside/{i:03d}.bin", b"")
    bucket.put("a.jsonl", b'{"x": 1}\n')
    before = {path: origin(path) for path in ("many", "many/*/09*.bin", "a.jsonl")}
    for path, told in before.items():
        assert origin(path) == told
    bucket.put("many/0/098.bin", b"x")
    bucket.put("a.jsonl", b'{"x": 2}\n')
    for path, told in before.items():
        assert origin(path) != told


def test_the_versions_of_many_objects_come_from_a_list(bucket, monkeypatch):
    for i in range(100):
        bucket.put(f"many/{i:03d}.bin", bytes([i]))
    paths = [f"{bucket.url}/many/{i:03d}.bin" for i in range(100)]
    asked = []
    stat = MemoryStore.stat
    monkeypatch.setattr(MemoryStore, "stat", lambda self, key: asked.append(key) or stat(self, key))
    monkeypatch.setattr(
        MemoryStore, "list", lambda self, prefix="": (stat(self, k) for k in sorted(self._objects)[:90])
    )
    told = Places().origins(paths)
    assert sorted(asked) == [f"many/{i:03d}.bin" for i in range(90, 100)]  # which the list did not have
    assert told == [stat(bucket, f"many/{i:03d}.bin").version for i in range(100)]


def test_an_object_that_changes_under_a_pass_is_an_error(bucket):
    bucket.put("a.jsonl", b'{"x": 1}\n' * 20_000)
    iterator = iter(fl.open(f"{bucket.url}/a.jsonl"))
    next(iterator)
    bucket.put("a.jsonl", b'{"x": 2}\n' * 20_000)
    with pytest.raises(ChangedError, match=r"a\.jsonl"):
        list(iterator)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("listed", ["folder", "pattern", "urls", "pickled"])
def test_objects_that_are_samples_are_those_that_were_listed(s3, tmp_path, listed, cached):
    """Replaced under a pass, or between two, one is an error that names it: never old and new ones in one pass."""
    store, at = open_store(f"s3://foreign/replaced/{listed}-{cached}", s3.storage_options())

    def write(base):
        for i in range(200):  # more than are asked for ahead
            file = io.BytesIO()
            np.savez(file, x=np.full(5, base + i))
            store.put(f"{at}/{i:03}.npz", file.getvalue())

    write(0)
    url = f"{store.url}/{at}"
    path = {"pattern": f"{url}/*.npz", "urls": [f"{url}/{i:03}.npz" for i in range(200)]}.get(listed, url)
    options = {"cache_dir": tmp_path, "cache_size": "1GB"} if cached else {}
    data = fl.open(path, s3.storage_options(), rows=False, **options)
    data = pickle.loads(pickle.dumps(data)) if listed == "pickled" else data
    batches, given = iter(data.batch(4)), []
    given += [int(x[0]) for _ in range(3) for x in next(batches)["x"]]
    write(1000)
    with pytest.raises(ChangedError, match=r"replaced/.*\d\.npz.*open the dataset anew"):
        given.extend(int(x[0]) for batch in batches for x in batch["x"])
    assert given == list(range(len(given)))
    with pytest.raises(ChangedError, match=r"000\.npz"):
        next(iter(data.options(on_error="skip")))
    assert int(next(iter(fl.open(path, s3.storage_options(), rows=False, **options)))["x"][0]) == 1000


def test_an_object_that_was_never_listed_is_the_one_that_was_first_read(bucket):
    bucket.put("a.bin", b"one")
    objects = RemoteObjects()
    first = objects.fetch(f"{bucket.url}/a.bin")
    assert first.read(0, 3) == b"one"
    bucket.put("a.bin", b"two")
    with pytest.raises(ChangedError, match=r"a\.bin"):
        objects.fetch(f"{bucket.url}/a.bin").read(0, 3)
    with pytest.raises(ChangedError, match=r"a\.bin"):
        objects.open(f"{bucket.url}/a.bin")


def test_options_of_stores_reach_every_format_and_others_are_refused(bucket, s3, tmp_path):
    store, at = open_store("s3://foreign/options", s3.storage_options())
    for name, (data, wanted) in files().items():
        store.put(f"{at}/all/{name}", data)
        assert identical(list(fl.open(f"{store.url}/{at}/all/{name}", s3.storage_options())), wanted)
    both = [f"{store.url}/{at}/all/a.jsonl", f"{store.url}/{at}/all/a.jsonl"]
    assert len(fl.open(both, s3.storage_options())) == 40
    assert len(fl.open(f"{store.url}/{at}/all/*.jsonl", s3.storage_options(), where=None)) == 20
    bucket.put("a.jsonl", b'{"x": 1}\n')
    (tmp_path / "a.jsonl").write_bytes(b'{"x": 1}\n')
    with pytest.raises(ValueError, match="memory:// takes no storage_options"):
        fl.open(f"{bucket.url}/a.jsonl", {"region": "x"}, format="jsonl")
    with pytest.raises(fl.StoreError, match=r"storage_options are not understood.*colour"):
        fl.open(f"{store.url}/{at}/all/a.jsonl", s3.storage_options(colour="red"))
    for options in ({"storage_options": {"region": "x"}}, {"cache_dir": tmp_path}, {"cache_size": "1GB"}):
        with pytest.raises(ValueError, match=rf"a\.jsonl.*: {next(iter(options))} \w+ for URLs; this is a local path"):
            fl.open(tmp_path / "a.jsonl", **options)
        with pytest.raises(ValueError, match="for URLs"):
            fl.open([tmp_path / "a.jsonl"], **options)


def test_the_cache_serves_the_second_pass_of_every_format(s3, tmp_path):
    store, at = open_store("s3://foreign/cached", s3.storage_options())
    for name, (data, _) in files().items():
        store.put(f"{at}/each/{name}", data)
    for i in range(5):
        store.put(f"{at}/raw/{i}.bin", bytes([i]) * 100)
    with fault_proxy(s3.endpoint) as proxy:
        options = s3.storage_options(proxy.url, hedge_after=60.0)
        for name, (_, wanted) in files().items():
            for _ in range(2):
                proxy.requests.clear()
                found = fl.open(f"{store.url}/{at}/each/{name}", options, cache_dir=tmp_path, cache_size="100MB")
                assert identical(list(found), wanted)
            assert {method for method, _, span in proxy.requests if span} == set(), name
        folder = fl.open(f"{store.url}/{at}/raw", options, cache_dir=tmp_path, cache_size="100MB")
        assert [sample["data"][0] for sample in folder] == list(range(5))
        proxy.requests.clear()
        assert [sample["data"][0] for sample in pickle.loads(pickle.dumps(folder))] == list(range(5))
        assert {method for method, _, _ in proxy.requests} == {"HEAD"}
        store.put(f"{at}/raw/3.bin", b"\x09" * 50)  # another version has other copies
        with pytest.raises(ChangedError, match=r"raw/3\.bin"):
            list(folder)
        anew = fl.open(f"{store.url}/{at}/raw", options, cache_dir=tmp_path, cache_size="100MB")
        assert [sample["data"][0] for sample in anew] == [0, 1, 2, 9, 4]


def test_credentials_are_those_of_now(s3, monkeypatch, tmp_path):
    """The environment, a profile, nobody's: each is looked for when a dataset is opened, not once a process."""
    options = s3.storage_options()
    store, at = open_store("s3://foreign/credentials", options)
    store.put(f"{at}/a.jsonl", b'{"x": 1}\n')
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", options["endpoint"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "else")
    with pytest.raises(
        fl.StoreError, match=r"s3://foreign/credentials/a\.jsonl.*check the bucket's name, the credentials"
    ):
        fl.open("s3://foreign/credentials/a.jsonl")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret_access_key"])
    assert len(fl.open("s3://foreign/credentials/a.jsonl")) == 1
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (tmp_path / "credentials").write_text(
        f"[team]\naws_access_key_id = {options['access_key_id']}\n"
        f"aws_secret_access_key = {options['secret_access_key']}\n"
    )
    assert len(fl.open("s3://foreign/credentials/a.jsonl", {"profile": "team"})) == 1
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert len(fl.open("s3://foreign/credentials/*.jsonl")) == 1
    monkeypatch.delenv("AWS_PROFILE")
    open_store(f"s3://{PUBLIC}", options)[0].put("formats/a.jsonl", b'{"x": 1}\n')
    assert len(fl.open(f"s3://{PUBLIC}/formats/*.jsonl", {"anonymous": True})) == 1
    with pytest.raises(fl.StoreError, match=r"anonymous|refused"):
        fl.open("s3://foreign/credentials/a.jsonl", {"anonymous": True})


def test_what_a_store_refuses_is_never_left_out(s3):
    store, at = open_store("s3://foreign/refused", s3.storage_options())
    for i in range(4):
        store.put(f"{at}/raw/{i}.bin", bytes([i]))
    with fault_proxy(s3.endpoint) as proxy:
        dataset = fl.open(
            "s3://foreign/refused/raw", s3.storage_options(proxy.url, attempts=1, hedge_after=60.0)
        ).options(on_error="skip")
        proxy.fault, proxy.concerns = "503", lambda path: path.endswith("2.bin")
        with pytest.raises(fl.StoreError, match=r"s3://foreign/refused/raw/2\.bin"):
            list(dataset)
        proxy.fault = "none"
        store.delete(f"{at}/raw/2.bin")  # what is gone for good is another matter
        assert [sample["data"] for sample in dataset] == [b"\0", b"\1", b"\3"]


def test_nobody_waits_for_a_server_under_the_lock_of_hdf5(bucket, monkeypatch):
    """The thread that brings the bytes may collect garbage, which takes that lock."""
    data, wanted = files()["a.h5"]
    bucket.put("a.h5", data)
    read = MemoryStore.read
    taken = []

    def try_lock():
        taken.append(h5py._objects.phil.acquire(blocking=False))
        if taken[-1]:
            h5py._objects.phil.release()

    def look(self, *args, **kwargs):
        thread = threading.Thread(target=try_lock)
        thread.start()
        thread.join()
        return read(self, *args, **kwargs)

    monkeypatch.setattr(MemoryStore, "read", look)
    assert identical(list(fl.open(f"{bucket.url}/a.h5")), wanted)
    assert taken
    assert all(taken)


def test_of_many_objects_each_is_one_request(s3):
    store, at = open_store("s3://foreign/requests", s3.storage_options())
    for i in range(20):
        store.put(f"{at}/raw/{i:02d}.bin", bytes(i))  # the first is empty
    with fault_proxy(s3.endpoint) as proxy:
        dataset = fl.open("s3://foreign/requests/raw", s3.storage_options(proxy.url, hedge_after=60.0))
        assert [sample["path"] for sample in fl.open("s3://foreign/requests/raw", s3.storage_options(), fields="path")]
        proxy.requests.clear()
        assert [len(sample["data"]) for sample in dataset] == list(range(20))
        assert len(proxy.requests) <= 22


def fetched(proxy):
    """Bytes of ranges that were asked for."""
    spans = [span.removeprefix("bytes=").split("-") for method, _, span in proxy.requests if method == "GET" and span]
    return sum(int(end) - int(begin) + 1 for begin, end in spans)


def test_of_a_large_object_only_what_is_asked_for_comes(s3):
    """Columns and row groups of Parquet, batches and columns of Arrow, chunks of HDF5, rows of NPZ."""
    store, at = open_store("s3://foreign/parts", s3.storage_options())
    wide = np.random.default_rng(0).bytes(2_000_000)
    table = pa.table({"n": range(200), "wide": [wide[10_000 * i :][:10_000] for i in range(200)]})
    parquet, arrow, npz, hdf5 = (io.BytesIO() for _ in range(4))
    pq.write_table(table, parquet, row_group_size=50, compression="none", use_dictionary=False)
    with pa.ipc.new_file(arrow, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    rows = np.frombuffer(wide, np.uint8).reshape(200, 10_000)
    np.savez(npz, n=np.arange(200), wide=rows)
    with h5py.File(hdf5, "w") as file:
        file.create_dataset("n", data=np.arange(200))
        file.create_dataset("wide", data=rows, chunks=(10, 10_000))
    for name, data in (("a.parquet", parquet), ("a.arrow", arrow), ("a.npz", npz), ("a.h5", hdf5)):
        store.put(f"{at}/{name}", data.getvalue())
        with fault_proxy(s3.endpoint) as proxy:
            url, options = f"{store.url}/{at}/{name}", s3.storage_options(proxy.url, hedge_after=60.0)
            assert [int(sample["n"]) for sample in fl.open(url, options, fields="n")] == list(range(200))
            assert fetched(proxy) < 900_000, name
            proxy.requests.clear()
            assert bytes(fl.open(url, options)[57]["wide"]) == wide[570_000:580_000]
            assert fetched(proxy) < 1_500_000, name
            if name == "a.parquet":
                proxy.requests.clear()
                (found,) = fl.open(url, options, where=[("n", "==", 123)])
                assert found["wide"] == wide[1_230_000:1_240_000]
                assert fetched(proxy) < 900_000


def test_the_index_of_an_object_is_kept_for_its_version(s3, monkeypatch, tmp_path):
    monkeypatch.setenv("FASTLOADER_CACHE", str(tmp_path))
    monkeypatch.setattr(indexes, "WORTH_KEEPING", 1)
    scans = []
    scan = tfrecord.scan
    monkeypatch.setattr(tfrecord, "scan", lambda source: scans.append(source.path) or scan(source))
    store, at = open_store("s3://foreign/index", s3.storage_options())
    for count in (5, 9):
        store.put(f"{at}/a.tfrecord", b"".join(record(b"\x07%d" % i) for i in range(count)))
        for _ in range(2):
            dataset = fl.open(f"{store.url}/{at}/a.tfrecord", s3.storage_options())
            assert [sample["data"] for sample in dataset] == [b"\x07%d" % i for i in range(count)]
    assert scans == [f"{store.url}/{at}/a.tfrecord"] * 2
    assert len(list((tmp_path / "indexes").iterdir())) == 1


def test_ctrl_c_waits_for_no_server(s3):
    """Nor does the end of the program."""
    store, at = open_store("s3://foreign/silent", s3.storage_options())
    for i in range(8):
        store.put(f"{at}/{i}.bin", b"x")
    code = (
        "import json, sys, threading, fastloader as fl\n"
        "dataset = fl.open(sys.argv[1], json.loads(sys.argv[2]))\n"
        "print('ready', flush=True)\n"
        "input()\n"
        "try:\n    list(dataset)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    with fault_proxy(s3.endpoint) as proxy:
        words = [sys.executable, "-c", code, f"{store.url}/{at}", json.dumps(s3.storage_options(proxy.url))]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            proxy.fault, proxy.silence = "silence", 300.0
            process.stdin.write("\n")
            process.stdin.flush()
            while proxy.spoilt < 8:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=90)  # a read may take two minutes
        assert (process.returncode, said) == (0, "interrupted\n")


def test_of_several_at_once_the_first_failure_is_told():
    def work(number):
        if number % 7 == 5:
            raise ValueError(f"no {number}")
        return -number

    assert at_once(work, range(5)) == [0, -1, -2, -3, -4]
    with pytest.raises(ValueError, match=r"no 5$"):
        at_once(work, range(12))


@pytest.mark.long
def test_ten_thousand_objects_come_in_an_order_that_is_a_matter_of_the_seed(s3):
    count = 10_000
    store, at = open_store("s3://foreign/many", s3.storage_options())
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda i: store.put(f"{at}/objects/{i:05d}.bin", b"%d" % i), range(count)))
    dataset = fl.open("s3://foreign/many/objects", s3.storage_options())
    assert len(dataset) == count
    one, same = (list(dataset.shuffle(seed=1)) for _ in range(2))
    assert one == same
    assert all(sample["path"] == f"{int(sample['data']):05d}.bin" for sample in one)
    other = [
        sample["path"]
        for sample in fl.open("s3://foreign/many/objects", s3.storage_options(), fields="path").shuffle(seed=2)
    ]
    assert other != [sample["path"] for sample in one]
    assert sorted(other) == sorted(sample["path"] for sample in one) == [f"{i:05d}.bin" for i in range(count)]


def check_hundred(batches):
    seen = [int(y) for batch in batches for y in batch["y"]]
    assert sorted(seen) == list(range(100))
    assert seen != sorted(seen)
    assert all((batch["x"][:, 0, 0] == batch["y"]).all() for batch in batches)


def test_a_hundred_npz_objects_in_a_bucket_of_a_real_server(hundred):
    url, options = hundred
    dataset = fl.open(url, options).shuffle(seed=3).batch(16).prefetch(2)
    batches = list(dataset)
    check_hundred(batches)
    assert identical(batches, list(dataset))
    iterator = iter(dataset)
    next(iterator)
    assert identical(batches[1:], list(dataset.iterate(state=iterator.state_dict())))


def test_a_hundred_npz_objects_become_torch_tensors(hundred):
    url, options = hundred
    dataset = fl.open(url, options).shuffle(seed=3)
    batches = [{name: torch.from_numpy(value) for name, value in batch.items()} for batch in dataset.batch(16)]
    assert batches[0]["x"].shape == (16, 4, 4)
    check_hundred(batches)
    check_hundred(list(torch.utils.data.DataLoader(dataset, batch_size=16)))  # a dataset of torch's kind too
    for workers in (0, 2):
        samples = TorchMapDataset(fl.open(url, options))
        draw = torch.Generator().manual_seed(3)
        check_hundred(list(torch.utils.data.DataLoader(samples, 16, shuffle=True, generator=draw, num_workers=workers)))


def test_a_hundred_npz_objects_go_into_a_loader_once_they_are_written_as_fld(hundred, tmp_path):
    url, options = hundred
    fl.open(url, options).write(f"{url}.fld", storage_options=options)
    with fl.open(f"{url}.fld", options) as reader:
        check_hundred(list(fl.DataLoader(reader, batch_size=16, seed=3)))
