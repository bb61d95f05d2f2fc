"""Datasets in a bucket: read and loaded as local ones are, written so that nobody ever sees half of one."""

from __future__ import annotations

import json
import multiprocessing
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from left_behind import python_threads
from orders import in_order
from tests.stores.fault_proxy import fault_proxy

import fastloader as fl
from fastloader.errors import NotFoundError, StoreError
from fastloader.formats.fld import FieldSpec
from fastloader.formats.fld.remote_target import BucketTarget, ObjectTarget
from fastloader.stores import (
    ChangedError,
    LocalStore,
    MemoryStore,
    NoConditionsError,
    ObjectPath,
    RefusedError,
    client,
    open_store,
)
from fastloader.testing import identical
from fastloader.testing.seaweed import PUBLIC, S3Server

COUNT = 150
FIELDS = {
    "data": fl.BytesField(), "number": fl.IntField(), "row": fl.NDArrayField(np.float32, (5,)), "text": fl.JSONField(),
}  # fmt: skip


def sample(i: int) -> dict[str, Any]:
    """Sample i, with a value missing now and then."""
    rng = np.random.default_rng(i)
    return {
        "data": rng.bytes(5_000 + 50 * i), "number": i, "row": None if i % 7 == 3 else rng.random(5, np.float32),
        "text": {"i": i},
    }  # fmt: skip


def write(path: Any, **options: Any) -> None:
    """All samples, with keys."""
    options = {"keys": True, "compression": {"text": "zstd"}} | options
    with fl.DatasetWriter(path, FIELDS, "64KiB", **options) as writer:
        for i in range(COUNT):
            writer.write_sample(sample(i), key=f"key {i}" if options["keys"] else None)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fl.DatasetReader]:
    """The same samples on disk."""
    path = tmp_path_factory.mktemp("local") / "data"
    write(path, shard_size="300KB")
    with fl.open(path) as reader:
        yield reader


@pytest.fixture(scope="module")
def url(s3: S3Server) -> str:
    """Shards in a bucket."""
    write("s3://datasets/sharded", shard_size="300KB", storage_options=s3.storage_options())
    return "s3://datasets/sharded"


@pytest.fixture
def fresh() -> str:
    """A URL that nobody has used."""
    return f"s3://datasets/{secrets.token_hex(6)}"


def batches(reader: fl.DatasetReader, order: Any, **options: Any) -> list[dict[str, Any]]:
    """An epoch."""
    return list(fl.DataLoader(reader, batch_size=16, **in_order(order, 4), seed=5, num_workers=2, **options))


def assert_same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Batch by batch."""
    assert len(one) == len(other)
    for mine, yours in zip(one, other, strict=True):
        assert identical(mine, yours)


def keys_below(s3: S3Server, url: str) -> list[str]:
    """What is in the bucket."""
    store, key = open_store(url, s3.storage_options())
    return [one.key.removeprefix(f"{key}/") for one in store.list(key)]


def test_samples_batches_and_keys_are_those_of_the_local_copy(url: str, local: fl.DatasetReader, s3: S3Server) -> None:
    with fl.open(url, s3.storage_options()) as reader:
        assert (len(reader), reader.field_names, reader.has_keys) == (COUNT, list(FIELDS), True)
        for i in (0, 3, 77, COUNT - 1):
            assert identical(reader.read_sample(i), local.read_sample(i))
        numbers = [140, 3, 3, 10, 71]
        assert identical(reader.read_batch(numbers), local.read_batch(numbers))
        assert reader.index_of("key 99") == 99
        assert bytes(reader.read_payload(5, "data") or b"") == sample(5)["data"]


@pytest.mark.parametrize("order", ["sequential", "random", "quasi_random"])
def test_an_epoch_is_that_of_the_local_copy(url: str, local: fl.DatasetReader, s3: S3Server, order: str) -> None:
    with fl.open(url, s3.storage_options()) as reader:
        assert_same(batches(reader, order), batches(local, order))
        assert_same(batches(reader, order, auto_tune=True), batches(local, order))


def test_expressions_read_objects_too(url: str, local: fl.DatasetReader, s3: S3Server) -> None:
    steps = [reader.shuffle(seed=1).batch(10) for reader in (fl.open(url, s3.storage_options()), fl.open(local.path))]
    assert_same(list(steps[0]), list(steps[1]))


def test_expressions_join_datasets_of_several_stores(fresh: str, local: fl.DatasetReader, s3: S3Server) -> None:
    write(fresh, shard_size="300KB", storage_options=s3.storage_options())
    remote = fl.open(fresh, s3.storage_options())
    for others in ([fl.open(local.path)], [fl.open(fresh, s3.storage_options())]):
        joined = remote.concat(*others)
        numbers = [int(n) for batch in joined.batch(30) for n in batch["number"]]
        assert numbers == 2 * list(range(COUNT))


def test_one_object_is_a_dataset_too(fresh: str, local: fl.DatasetReader, s3: S3Server) -> None:
    write(fresh + ".fld", storage_options=s3.storage_options())
    with fl.open(fresh + ".fld", s3.storage_options()) as reader:
        assert identical(reader.read_sample(9), local.read_sample(9))
        assert_same(batches(reader, "random"), batches(local, "random"))


def test_a_batch_larger_than_the_memory_for_reads_is_made(fresh: str, s3: S3Server) -> None:
    with fl.DatasetWriter(fresh, {"x": fl.BytesField()}, shard_size="20MB", storage_options=s3.storage_options()) as to:
        for i in range(12):
            to.write_sample({"x": bytes([i]) * 2_000_000})
    with fl.open(fresh, s3.storage_options()) as reader:
        loader = fl.DataLoader(reader, batch_size=6, shuffle=False, memory_limit="9MB", num_workers=1)
        assert [[data[0] for data in batch["x"]] for batch in loader] == [list(range(6)), list(range(6, 12))]


def _numbers(reader: fl.DatasetReader) -> list[int]:
    return [int(n) for batch in fl.DataLoader(reader, batch_size=16, seed=5) for n in batch["number"]]


def test_a_spawned_process_loads_the_same(url: str, s3: S3Server) -> None:
    with fl.open(url, s3.storage_options()) as reader:
        expected = _numbers(reader)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(_numbers, (reader,)) == expected


def test_a_forked_child_loads_the_same_though_its_parent_is_in_an_epoch(url: str, s3: S3Server) -> None:
    with fl.open(url, s3.storage_options()) as reader:
        loader = fl.DataLoader(reader, batch_size=16, seed=5)
        passing = iter(loader)
        first = next(passing)["number"].tolist()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, np.array(_numbers(reader), np.int64).tobytes())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            theirs = np.frombuffer(pipe.read(), np.int64).tolist()
        os.waitpid(child, 0)
        assert theirs == first + [int(n) for batch in passing for n in batch["number"]]


def test_opening_and_loading_fetch_little_more_than_is_needed(url: str, s3: S3Server) -> None:
    with fault_proxy(s3.endpoint) as proxy, fl.open(url, s3.storage_options(proxy.url, hedge_after=60.0)) as reader:
        reader.read_sample(0, ["number"])
        assert sum(_span(one) for one in proxy.requests) < 2 * (4096 + (256 << 10))  # head and tail of one shard
        loader = fl.DataLoader(reader, batch_size=16, fields=["data"], order="random")
        assert sum(len(batch["data"]) for batch in loader) == COUNT
        io = loader.stats()["io"]
        assert io["payload_bytes"] <= io["read_bytes"] <= 1.1 * io["payload_bytes"]


def test_of_large_tables_only_the_blocks_that_are_needed_come(fresh: str, s3: S3Server) -> None:
    count = 100_000
    with fl.DatasetWriter(
        fresh, {"x": fl.BytesField(), "n": fl.IntField()}, storage_options=s3.storage_options()
    ) as to:
        to.write_many({"x": [b"%d" % i for i in range(count)], "n": list(range(count))})
    with fault_proxy(s3.endpoint) as proxy, fl.open(fresh, s3.storage_options(proxy.url, hedge_after=60.0)) as reader:
        size = reader.dataset.shards[0].size
        assert reader.read_sample(70_000) == {"x": b"70000", "n": 70_000}
        batch = reader.read_batch([5, 99_999, 50_000])
        assert (batch["x"], batch["n"].tolist()) == ([b"5", b"99999", b"50000"], [5, 99_999, 50_000])
        assert sum(_span(one) for one in proxy.requests) < size / 4
        loader = fl.DataLoader(reader, batch_size=10_000, order="random")
        assert sorted(int(n) for batch in loader for n in batch["n"]) == list(range(count))


def test_the_first_batch_comes_before_a_whole_shard_was_fetched(fresh: str, s3: S3Server) -> None:
    with fl.DatasetWriter(fresh, {"x": fl.BytesField()}, storage_options=s3.storage_options()) as to:
        to.write_many({"x": bytes([i]) * 500_000} for i in range(60))
    with fault_proxy(s3.endpoint) as proxy, fl.open(fresh, s3.storage_options(proxy.url, hedge_after=60.0)) as reader:
        batches = iter(fl.DataLoader(reader, batch_size=2, order="random", memory_limit="9MB", num_workers=1))
        assert len(next(batches)["x"]) == 2
        assert sum(_span(one) for one in proxy.requests) < reader.dataset.shards[0].size / 2
        assert sum(len(batch["x"]) for batch in batches) == 58


def _span(request: tuple[str, str, str]) -> int:
    begin, _, end = request[2].removeprefix("bytes=").partition("-")
    return int(end) - int(begin) + 1 if end else 0


def test_an_object_that_is_replaced_under_an_epoch_is_an_error(fresh: str, s3: S3Server) -> None:
    write(fresh, shard_size="300KB", storage_options=s3.storage_options())
    with fl.open(fresh, s3.storage_options()) as reader:
        victim = reader.dataset.path / reader.dataset.shards[1].path  # type: ignore[union-attr]
        reader.read_batch(range(COUNT), ["number"])
        data = bytearray(victim.store.read(victim.key))  # type: ignore[union-attr]
        data[-1] ^= 1
        victim.store.put(victim.key, data)  # type: ignore[union-attr]
        with pytest.raises(StoreError, match=rf"{victim}: is not the object it was"):
            batches(reader, "random")
        with pytest.raises(StoreError, match=rf"{victim}: .*is not the object it was"):
            reader.read_batch(range(COUNT), ["data"])


def test_local_ways_of_reading_are_refused(url: str, s3: S3Server) -> None:
    with fl.open(url, s3.storage_options()) as reader, pytest.raises(ValueError, match="io='pread' is for local files"):
        batches(reader, "random", io="pread")


def test_what_is_not_there_is_not_found(fresh: str, s3: S3Server) -> None:
    with pytest.raises(NotFoundError, match=fresh):
        fl.open(fresh, s3.storage_options())


def test_a_writer_that_fails_leaves_nothing(fresh: str, s3: S3Server) -> None:
    options = s3.storage_options()
    writer = fl.DatasetWriter(fresh, FIELDS, "64KiB", shard_size="100KB", num_workers=0, storage_options=options)
    for i in range(COUNT):
        writer.write_sample(sample(i))
    with pytest.raises(fl.SampleError):
        writer.write_sample({"data": "no bytes"})
    assert keys_below(s3, fresh) == []


def test_shards_that_a_killed_writer_left_are_called_that(fresh: str, s3: S3Server) -> None:
    options = s3.storage_options()
    write(fresh, shard_size="100KB", storage_options=options)
    store, key = open_store(fresh, options)
    with pytest.raises(fl.FormatError, match=r"several \.fld datasets"):
        fl.open(f"{fresh}/shard-*", options)
    store.delete(f"{key}/manifest.json")  # it would have come last
    for path in (fresh, f"{fresh}/shard-*"):
        with pytest.raises(fl.FormatError, match=rf"{fresh}: holds shards without manifest\.json.*did not finish"):
            fl.open(path, options)
    write(fresh, shard_size="100KB", storage_options=options)
    assert len(fl.open(fresh, options)) == COUNT


def test_keys_that_come_twice_are_found_across_shards_and_leave_nothing(fresh: str, s3: S3Server) -> None:
    options = s3.storage_options()
    writer = fl.DatasetWriter(fresh, FIELDS, "64KiB", shard_size="100KB", keys=True, storage_options=options)
    for i in range(40):
        writer.write_sample(sample(i), key=f"key {i % 37}")
    with pytest.raises(fl.SampleError, match="sample 39: key 'key 2' was given to sample 2 already"):
        writer.close()
    assert keys_below(s3, fresh) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StoreError("the answer was lost")])
@pytest.mark.parametrize("done", [True, False])
def test_a_manifest_that_may_be_there_has_its_shards(error: BaseException, done: bool) -> None:
    """Whoever is interrupted while it is put can't tell whether it was."""

    class Interrupted(MemoryStore):
        def put(self, key: str, data: Any, **conditions: Any) -> Any:
            put = super().put(key, data, **conditions) if done or not key.endswith("manifest.json") else None
            if not key.endswith("manifest.json"):
                return put
            raise error

    where = ObjectPath(Interrupted(f"interrupted-{secrets.token_hex(4)}"), "data")
    specs = [FieldSpec("n", fl.IntField(), 0, 0)]
    target = BucketTarget(where, specs, 4096, keys=False, shard_size=1000)
    with pytest.raises(type(error)):
        target.finish()
    target.discard()
    found = [one.key for one in where.store.list("data")]
    if done:
        assert len(found) == 2
        assert fl.verify(str(where)).ok
    else:
        assert "data/manifest.json" not in found
        assert bool(found) == isinstance(error, KeyboardInterrupt)


def test_of_two_writers_the_second_is_told_and_leaves_nothing(fresh: str, s3: S3Server) -> None:
    options = s3.storage_options()
    slow = fl.DatasetWriter(fresh, FIELDS, "64KiB", shard_size="300KB", storage_options=options)
    slow.write_sample(sample(0))
    write(fresh, shard_size="300KB", storage_options=options)
    before = keys_below(s3, fresh)
    with pytest.raises(StoreError, match="changed by another writer"):
        slow.close()
    assert keys_below(s3, fresh) == before
    assert len(fl.open(fresh, options)) == COUNT


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_of_two_writers_of_one_object_the_second_is_told(fresh: str, s3: S3Server, large: bool, before: bool) -> None:
    options = s3.storage_options()
    data = bytes(20 << 20) if large else b"small"

    def written(number: int) -> fl.DatasetWriter:
        writer = fl.DatasetWriter(fresh, {"n": fl.IntField(), "data": fl.BytesField()}, storage_options=options)
        writer.write_sample({"n": number, "data": data})
        return writer

    if before:
        written(0).close()
    slow, quick = written(1), written(2)
    quick.close()
    with pytest.raises(ChangedError, match=f"{fresh}: was changed by another writer"):
        slow.close()
    assert [int(one["n"]) for one in fl.open(fresh, options)] == [2]
    written(3).close()  # nobody else has touched it since
    assert [int(one["n"]) for one in fl.open(fresh, options)] == [3]


def test_stores_that_know_no_conditions_are_looked_at_before_one_object_is_put() -> None:
    class Simple(MemoryStore):
        def put(self, key: str, data: Any, *, if_absent: bool = False, if_match: str | None = None) -> Any:
            if if_absent or if_match is not None:
                raise NoConditionsError("no conditions here")
            return super().put(key, data)

    where = ObjectPath(Simple(f"simple-{secrets.token_hex(4)}"), "data.fld")
    specs = [FieldSpec("n", fl.IntField(), 0, 0)]
    ObjectTarget(where, specs, 4096, keys=False).finish()
    ObjectTarget(where, specs, 4096, keys=False).finish()
    slow = ObjectTarget(where, specs, 4096, keys=False)
    where.store.put("data.fld", b"something else")
    with pytest.raises(ChangedError, match=r"data\.fld"):
        slow.finish()
    slow.discard()


def test_a_client_told_of_no_conditions_says_so(fresh: str, s3: S3Server) -> None:
    store, key = open_store(fresh, s3.storage_options(conditional_put="disabled"))
    with pytest.raises(NoConditionsError, match=key):
        store.put(key, b"x", if_absent=True)
    write(fresh, storage_options=s3.storage_options(conditional_put="disabled"))
    assert len(fl.open(fresh, s3.storage_options())) == COUNT


def test_google_is_told_the_generation_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = open_store("gs://bucket", {"anonymous": True})
    told: list[Any] = []
    real = client.module()

    class Google:
        @staticmethod
        def head(_store: Any, _key: str) -> dict[str, Any]:
            return {"e_tag": '"a"', "version": "17"}

        @staticmethod
        def put(_store: Any, _key: str, _data: bytes, *, mode: Any, use_multipart: bool) -> dict[str, Any]:
            told.append(mode)
            return {"e_tag": '"b"', "version": "18"}

        _store = real._store

    monkeypatch.setattr(client, "module", lambda: Google)
    store.put("k", b"x", if_match='"a"')
    assert told == [{"e_tag": '"a"', "version": "17"}]
    with pytest.raises(ChangedError, match="gs://bucket/k"):
        store.put("k", b"x", if_match='"other"')


def test_writing_anew_replaces_and_adding_adds(fresh: str, s3: S3Server) -> None:
    options = s3.storage_options()
    write(fresh, shard_size="300KB", keys=False, storage_options=options)
    before = set(keys_below(s3, fresh))
    with fl.DatasetWriter(fresh, FIELDS, shard_size="300KB", storage_options=options) as writer:
        writer.write_sample(sample(1))
        assert len(fl.open(fresh, options)) == COUNT  # until it is closed
    assert set(keys_below(s3, fresh)) & before == {"manifest.json"}
    with fl.DatasetWriter(fresh, None, mode="a", storage_options=options) as writer:
        writer.write_sample(sample(2))
    assert [int(one["number"]) for one in fl.open(fresh, options)] == [1, 2]


def test_one_object_and_a_folder_do_not_take_each_others_name(fresh: str, s3: S3Server) -> None:
    options = s3.storage_options()
    write(fresh, storage_options=options)
    with pytest.raises(StoreError, match="is an object"):
        write(fresh, shard_size="300KB", storage_options=options)
    write(fresh + "-2", shard_size="300KB", storage_options=options)
    with pytest.raises(StoreError, match="is a folder of shards"):
        write(fresh + "-2", storage_options=options)


def test_an_upload_given_up_leaves_no_parts_on_the_server(s3: S3Server) -> None:
    store, _ = open_store("s3://uploads", s3.storage_options())
    store.put("first", b"so that there is a bucket")
    upload = store.upload("large")
    upload.write(bytes(40 << 20))
    upload.abort()
    request = urllib.request.Request(f"{s3.filer}/buckets/uploads/.uploads/", headers={"Accept": "application/json"})
    end = time.monotonic() + 30
    while True:  # a busy server takes its time to forget
        with urllib.request.urlopen(request) as reply:
            left = json.load(reply)["Entries"]
        if left is None or time.monotonic() > end:
            break
        time.sleep(0.1)
    assert left is None


def test_credentials_come_from_the_environment_and_from_profiles(
    url: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = s3.storage_options()
    place = {"endpoint": options["endpoint"], "region": "us-east-1", "attempts": 1}
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret_access_key"])
    assert len(fl.open(url, place)) == COUNT
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    with pytest.raises(StoreError, match="storage_options"):
        fl.open(url, place)
    (tmp_path / "credentials").write_text(
        f"[team]\naws_access_key_id = {options['access_key_id']}\n"
        f"aws_secret_access_key = {options['secret_access_key']}\n"
    )
    (tmp_path / "config").write_text(f"[profile team]\nregion = us-east-1\nendpoint_url = {options['endpoint']}\n")
    assert len(fl.open(url, {"profile": "team"})) == COUNT
    with pytest.raises(StoreError, match="there is no profile 'nobody'"):
        fl.open(url, {"profile": "nobody"})
    monkeypatch.setenv("AWS_PROFILE", "team")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert len(fl.open(url)) == COUNT


def test_public_buckets_are_read_anonymously(s3: S3Server) -> None:
    write(f"s3://{PUBLIC}/data", shard_size="300KB", storage_options=s3.storage_options())
    write(f"s3://{PUBLIC}/one.fld", storage_options=s3.storage_options())
    options = {"endpoint": s3.endpoint, "anonymous": True, "attempts": 1}
    assert len(fl.open(f"s3://{PUBLIC}/one.fld", options)) == COUNT
    assert len(fl.open(f"s3://{PUBLIC}/data", options)) == COUNT
    with pytest.raises(RefusedError, match="s3://datasets/sharded: access is refused"):
        fl.open("s3://datasets/sharded", options)


def test_memory_and_file_urls_hold_datasets_too(local: fl.DatasetReader, tmp_path: Path) -> None:
    write("memory://tests/data", shard_size="300KB")
    assert_same(batches(fl.open("memory://tests/data"), "random"), batches(local, "random"))
    shutil.copytree(str(local.path), tmp_path / "copy")
    assert_same(batches(fl.open(f"file://{tmp_path}/copy"), "random"), batches(local, "random"))


def test_without_obstore_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore._obstore", None)
    monkeypatch.setattr(client, "_module", None)
    with pytest.raises(ImportError, match=r'pip install "fastloader\[cloud\]"'):
        fl.open("s3://bucket/data")


def test_options_without_effect_are_refused(tmp_path: Path, s3: S3Server) -> None:
    write(tmp_path / "data")
    with pytest.raises(ValueError, match="storage_options are for URLs"):
        fl.open(tmp_path / "data", {"region": "x"})
    with pytest.raises(ValueError, match="cache_dir is for URLs"):
        fl.open(tmp_path / "data", cache_dir=tmp_path)
    with pytest.raises(ValueError, match="cache_size without cache_dir"):
        fl.open("s3://datasets/x", s3.storage_options(), cache_size="1GB")
    with pytest.raises(StoreError, match="storage_options are not understood"):
        fl.open("s3://datasets/x", s3.storage_options(colour="red"))


def test_a_key_leads_nowhere_outside_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leads nowhere outside"):
        LocalStore(tmp_path).read("../secret")


def test_epochs_that_are_left_early_leave_no_thread_and_nothing_undone(url: str, s3: S3Server) -> None:
    with fl.open(url, s3.storage_options()) as reader:
        loader = fl.DataLoader(reader, batch_size=8, order="random", num_workers=2)
        for _ in range(25):
            passing = iter(loader)
            next(passing)
            del passing
        assert not python_threads("fastloader-fetcher")
        assert sum(len(batch["number"]) for batch in loader) == COUNT


def test_a_process_that_ends_in_the_middle_of_an_epoch_ends_well(url: str, s3: S3Server) -> None:
    code = "import json, sys, fastloader as fl; reader = fl.open(sys.argv[1], json.loads(sys.argv[2]))"
    code += "; passing = iter(fl.DataLoader(reader)); next(passing)"
    command = [sys.executable, "-c", code, url, json.dumps(s3.storage_options())]
    for _ in range(4):  # threads of the client that outlive the interpreter would abort one in five
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
