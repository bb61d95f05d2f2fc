"""Copies on disk: shared, checked, within their limit, never at the cost of anybody else's files."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import pickle
import secrets
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from orders import in_order
from tests.stores.fault_proxy import fault_proxy

import fastloader as fl
from fastloader import kernels
from fastloader.errors import StoreError
from fastloader.stores import BlockCache, MemoryStore, open_store
from fastloader.stores.cache import BLOCK, CachedObject
from fastloader.testing.seaweed import S3Server

SIZE = 5 * BLOCK + 1000


class Counting(MemoryStore):
    """Counts what is read."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reads: list[tuple[int, int | None]] = []

    def read(self, key: str, begin: int = 0, size: int | None = None, *, version: str | None = None) -> memoryview:
        self.reads.append((begin, size))
        return super().read(key, begin, size, version=version)


@pytest.fixture
def content() -> bytes:
    """What the object holds."""
    return np.random.default_rng(0).bytes(SIZE)


@pytest.fixture
def store(content: bytes) -> Counting:
    """A store with one object."""
    made = Counting(f"cache-{secrets.token_hex(4)}")
    made.put("object", content)
    return made


def cached(store: MemoryStore, cache: BlockCache) -> CachedObject:
    """The object, through the cache."""
    found = store.stat("object")
    return CachedObject(cache, store, "object", found.size, found.version)


def blocks_of(folder: Path) -> list[Path]:
    """The blocks there are, in order."""
    return sorted(folder.glob("*/*/*.block"), key=lambda path: int(path.stem))


def maps(folder: Path) -> list[str]:
    """What this process has mapped of a folder."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line]


def test_what_was_fetched_once_comes_from_disk(store: Counting, content: bytes, tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, "1GB")
    for begin, size in ((10, 100), (BLOCK - 5, 10), (0, SIZE), (SIZE - 7, 7), (3, 0)):
        assert bytes(cached(store, cache).read(begin, size)) == content[begin : begin + size]
    assert sorted(store.reads) == [(i * BLOCK, min(BLOCK, SIZE - i * BLOCK)) for i in range(6)]
    again = pickle.loads(pickle.dumps(cache))
    assert bytes(cached(store, again).read(0, SIZE)) == content
    assert len(store.reads) == 6
    assert (again.hits, again.misses, again.used) == (6, 0, BlockCache.room_for(SIZE))


def test_a_changed_object_has_blocks_of_its_own(store: Counting, content: bytes, tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, "1GB")
    assert bytes(cached(store, cache).read(0, 50)) == content[:50]
    store.put("object", content[::-1])
    assert bytes(cached(store, cache).read(0, 50)) == content[::-1][:50]


@pytest.mark.parametrize("damage", ["flip", "shorter", "longer", "empty", "another"])
def test_a_damaged_block_is_fetched_again(store: Counting, content: bytes, tmp_path: Path, damage: str) -> None:
    cache = BlockCache(tmp_path, "1GB")
    cached(store, cache).read(0, SIZE)
    victim, other = blocks_of(tmp_path)[1:3]
    data = bytearray(victim.read_bytes())
    if damage == "flip":
        data[1000] ^= 1
    elif damage == "shorter":
        del data[-1:]
    elif damage == "longer":
        data += b"x"
    elif damage == "empty":
        data.clear()
    else:
        data = bytearray(other.read_bytes())
    victim.write_bytes(data)
    store.reads.clear()
    assert bytes(cached(store, cache).read(0, SIZE)) == content
    assert store.reads == [(BLOCK, BLOCK)]
    assert bytes(cached(store, cache).read(0, SIZE)) == content
    assert store.reads == [(BLOCK, BLOCK)]


def test_a_process_checks_a_block_once_and_again_after_it_was_written_to(
    store: Counting, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(store, BlockCache(tmp_path, "1GB")).read(0, SIZE)
    summed: list[int] = []
    crc32c = kernels.crc32c
    monkeypatch.setattr(kernels, "crc32c", lambda data, before=0: (summed.append(len(data)), crc32c(data, before))[1])
    cache = BlockCache(tmp_path, "1GB")
    for _ in range(3):
        assert bytes(cached(store, cache).read(0, SIZE)) == content
    assert sum(size for size in summed if size > 100) == SIZE
    summed.clear()
    victim = blocks_of(tmp_path)[2]
    victim.write_bytes(victim.read_bytes())
    assert bytes(cached(store, cache).read(0, SIZE)) == content
    assert sum(size for size in summed if size > 100) == BLOCK


def test_what_was_found_stays_readable_when_its_block_is_removed(
    store: Counting, content: bytes, tmp_path: Path
) -> None:
    one = cached(store, BlockCache(tmp_path, "1GB"))
    assert one.find(0) is None
    one.read(0, 1)
    found = one.find(0)
    assert found is not None
    for block in blocks_of(tmp_path):
        block.unlink()
    assert bytes(found) == content[:BLOCK]
    assert one.find(0) is None


def test_a_block_stays_mapped_until_somebody_removes_it(
    store: Counting, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BlockCache(tmp_path, "1GB")
    one = cached(store, cache)
    assert one.mapped(1) is None
    one.read(0, SIZE)
    one.read(0, SIZE)  # what was written is mapped when it is first read
    opened: list[str] = []
    monkeypatch.setattr(os, "open", lambda path, *rest, plain=os.open: opened.append(str(path)) or plain(path, *rest))
    for number in range(6):
        mapped = one.mapped(number)
        assert mapped is not None
        assert mapped == content[number * BLOCK : (number + 1) * BLOCK]
    assert not opened
    del mapped
    blocks_of(tmp_path)[1].unlink()  # by another process
    assert one.mapped(1) is None
    assert len([line for line in maps(tmp_path) if "deleted" in line]) == 1
    monkeypatch.setattr("fastloader.stores.cache.LOOK", 0.0)
    assert one.mapped(0) is not None
    assert len(maps(tmp_path)) == 5
    assert not any("deleted" in line for line in maps(tmp_path))


def test_no_more_blocks_stay_mapped_than_the_system_allows(
    store: Counting, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastloader.stores.cache._MAPPED", 3)
    one = cached(store, BlockCache(tmp_path, "1GB"))
    for _ in range(2):
        assert bytes(one.read(0, SIZE)) == content
    summed: list[int] = []
    monkeypatch.setattr(kernels, "crc32c", lambda *given: summed.append(1))
    assert bytes(one.read(0, SIZE)) == content
    assert len(maps(tmp_path)) <= 3
    assert not summed  # those that were unmapped meanwhile are known to be right


def test_the_limit_holds_and_what_was_used_last_stays(store: Counting, content: bytes, tmp_path: Path) -> None:
    limit = 4 * (BLOCK + 100)
    cache = BlockCache(tmp_path, limit)
    for number in range(6):
        assert bytes(cached(store, cache).read(number * BLOCK, 10)) == content[number * BLOCK :][:10]
        for age, path in enumerate(reversed(blocks_of(tmp_path))):
            os.utime(path, (1e9 - age, 1e9 - age))  # the later it came, the later it was used
        assert cache.used <= limit
    assert [path.stem for path in blocks_of(tmp_path)][-1] == "5"
    assert "0" not in [path.stem for path in blocks_of(tmp_path)]


def test_nothing_of_others_is_ever_removed(store: Counting, tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 2 * (BLOCK + 100))
    cached(store, cache).read(0, 10)
    mine = blocks_of(tmp_path)[0].parent
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0.block").write_bytes(b"FLBLOCK2 but elsewhere, and as long as a tail is"[:32])
    theirs = [
        tmp_path / "notes.txt", cache.folder / "0.block", mine / "photo.jpg", mine / "77.block", mine / "1.block.bak",
        cache.folder / "short" / "5.block", outside / "0.block",
    ]  # fmt: skip
    for path in theirs[:-1]:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"somebody else's")
        os.utime(path, (1, 1))
    (cache.folder / ("a" * 40)).symlink_to(outside)
    (mine / "88.block").symlink_to(outside / "0.block")
    for _ in range(3):
        for number in range(6):
            cached(store, cache).read(number * BLOCK, 10)
    assert all(path.read_bytes() for path in theirs)
    assert (mine / "88.block").is_symlink()


def _fill(cache: BlockCache, content: bytes, rounds: int) -> None:
    store = MemoryStore("child")
    store.put("object", content)
    for _ in range(rounds):
        for number in range(6):
            begin = number * BLOCK
            assert bytes(cached(store, cache).read(begin, 1000)) == content[begin : begin + 1000]


def test_processes_share_it(content: bytes, tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 4 * (BLOCK + 100))
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_fill, args=(cache, content, 5)) for _ in range(3)]
    for child in children:
        child.start()
    _fill(cache, content, 5)
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    # A block of each process may be on its way when another counts anew.
    assert cache.used <= (4 + len(children)) * (BLOCK + 100)
    assert not list(cache.folder.glob("*/.*"))


def test_killed_at_any_moment_it_stays_usable(store: Counting, content: bytes, tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 3 * (BLOCK + 100))
    context = multiprocessing.get_context("fork")
    for moment in range(12):
        child = context.Process(target=_fill, args=(cache, content, 1000))
        child.start()
        child.join(0.01 + 0.01 * moment)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert bytes(cached(store, cache).read(0, SIZE)) == content
    _fill(cache, content, 2)
    assert cache.used <= 3 * (BLOCK + 100) + 12 * (BLOCK + 100)  # what was under construction goes within the hour


@pytest.mark.parametrize("written", [None, 0, 100_000])
def test_what_a_killed_process_left_goes_in_time(store: Counting, tmp_path: Path, written: int | None) -> None:
    cache = BlockCache(tmp_path, 2 * (BLOCK + 100))
    cached(store, cache).read(0, 10)
    first = blocks_of(tmp_path)[0]
    left = first.parent / ".3.writing-00ff"
    with left.open("xb") as file:  # before anything was written, after the tail, among the bytes
        if written is not None:
            file.seek(BLOCK)
            file.write(first.read_bytes()[BLOCK:])
            file.seek(0)
            file.write(first.read_bytes()[:written])
    os.utime(left, (1, 1))
    for number in range(6):
        cached(store, cache).read(number * BLOCK, 10)
    assert not left.exists()


def test_too_small_or_nonsensical_limits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"at least {2 * (BLOCK + 32)} bytes"):
        BlockCache(tmp_path, "1MB")


def test_a_disk_that_is_nearly_full_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9 - 5_000_000, 5_000_000)
    )
    with pytest.raises(StoreError, match=rf"^{tmp_path}/.*too little room for a cache: 5000000 bytes are free"):
        BlockCache(tmp_path)


@pytest.mark.parametrize("counted", [False, True])
def test_a_disk_that_is_full_keeps_nothing_and_that_is_all(
    store: Counting, content: bytes, counted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither blocks nor their count, which on some file systems takes room again when it is written over."""
    cache = BlockCache(tmp_path, "1GB")
    if counted:
        cached(store, cache).read(0, 10)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(2):
        assert bytes(cached(store, cache).read(0, SIZE)) == content
    assert len(blocks_of(tmp_path)) == len(list(tmp_path.glob("*/*/*"))) == counted


def test_a_folder_that_can_not_be_written_to_is_told(
    store: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BlockCache(tmp_path, "1GB")

    def refused(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "pwrite", refused)
    with pytest.raises(StoreError, match="Read-only file system; cache_dir must be a folder that can be written to"):
        cached(store, cache).read(0, SIZE)


@pytest.mark.parametrize("order", ["random", "quasi_random", "sequential"])
def test_a_second_epoch_asks_the_server_for_nothing(s3: S3Server, tmp_path: Path, order: Any) -> None:
    url = f"s3://cached/{order}"
    with fl.DatasetWriter(
        url, {"x": fl.BytesField()}, "64KiB", shard_size="4MB", storage_options=s3.storage_options()
    ) as to:
        for i in range(100):
            to.write_sample({"x": np.random.default_rng(i).bytes(90_000)})
    with fault_proxy(s3.endpoint) as proxy:
        options = s3.storage_options(proxy.url, hedge_after=60.0)  # a slow machine must not ask twice
        reader = fl.open(url, options, cache_dir=tmp_path, cache_size="100MB")
        loader = fl.DataLoader(reader, batch_size=10, **in_order(order, 8))
        first = sorted(bytes(data) for batch in loader for data in batch["x"])
        size = sum(shard.size for shard in reader.dataset.shards)
        fetched = sum(_span(span) for _, _, span in proxy.requests)
        assert fetched <= size + len(reader.dataset.shards) * 8192 + 10_000
        proxy.requests.clear()
        assert sorted(bytes(data) for batch in loader for data in batch["x"]) == first
        assert not proxy.requests
        io = loader.stats()["io"]
        assert 0 < io["requests"] <= io["cache_misses"]  # some blocks came when the shards were opened
        assert 0 < io["fetched_bytes"] <= fetched
        warm = fl.DataLoader(
            fl.open(url, options, cache_dir=tmp_path, cache_size="100MB"), batch_size=10, **in_order(order, 8)
        )
        assert sorted(bytes(data) for batch in warm for data in batch["x"]) == first
        assert (warm.stats()["io"]["requests"], warm.stats()["io"]["fetched_bytes"]) == (0, 0)
        assert io["cache_hits"] > 0
        assert io["cache_misses"] * BLOCK >= size


def _span(span: str) -> int:
    begin, _, end = span.removeprefix("bytes=").partition("-")
    return int(end) - int(begin) + 1 if end else 0


def test_a_cache_too_small_for_the_order_is_refused_with_the_number(s3: S3Server, tmp_path: Path) -> None:
    url = "s3://cached/too-large"
    with fl.DatasetWriter(
        url, {"x": fl.BytesField()}, "2MiB", shard_size="8MB", storage_options=s3.storage_options()
    ) as to:
        for i in range(20):
            to.write_sample({"x": bytes([i]) * 1_000_000})
    reader = fl.open(url, s3.storage_options(), cache_dir=tmp_path, cache_size="14MB")
    needed = sum(BlockCache.room_for(shard.size) for shard in reader.dataset.shards)
    with pytest.raises(ValueError, match=rf"needs {needed} bytes, the cache may have 14000000"):
        fl.DataLoader(reader, order="random")
    loader = fl.DataLoader(reader, order="quasi_random", window=1, batch_size=5)
    assert sum(len(batch["x"]) for batch in loader) == 20


@pytest.fixture(scope="module")
def rows(s3: S3Server) -> str:
    """An NPZ of 18 MB, of which each row is a sample."""
    store, key = open_store("s3://cached/rows.npz", s3.storage_options())
    file = io.BytesIO()
    np.savez(file, x=np.arange(4500 * 1000, dtype=np.float32).reshape(4500, 1000))
    store.put(key, file.getvalue())
    return "s3://cached/rows.npz"


@pytest.mark.parametrize("steps", ["samples", "batches", "mapped", "buffered", "joined"])
def test_a_shuffled_pass_is_refused_a_cache_too_small_for_it(
    s3: S3Server, rows: str, tmp_path: Path, steps: str
) -> None:
    data = fl.open(rows, s3.storage_options(), cache_dir=tmp_path, cache_size="5MB")
    shuffled = data.shuffle(seed=1)
    made = {
        "samples": shuffled, "batches": shuffled.batch(8), "mapped": shuffled.map(lambda one: one).batch(4),
        "buffered": data.shuffle(4000, seed=1), "joined": data.concat(shuffled),
    }[steps]  # fmt: skip
    size = open_store(rows, s3.storage_options())[0].stat("rows.npz").size
    with pytest.raises(ValueError, match=rf"rows\.npz needs {BlockCache.room_for(size)} bytes, .* may have 5000000"):
        next(iter(made))


def test_passes_that_read_nothing_twice_may_have_a_small_cache(s3: S3Server, rows: str, tmp_path: Path) -> None:
    data = fl.open(rows, s3.storage_options(), cache_dir=tmp_path / "a", cache_size="5MB")
    assert sum(len(batch["x"]) for batch in data.batch(100)) == 4500
    roomy = fl.open(rows, s3.storage_options(), cache_dir=tmp_path / "b", cache_size="12MB")
    assert sum(len(batch["x"]) for batch in roomy.shuffle(100, seed=1).batch(100)) == 4500
    store, _ = open_store("s3://cached", s3.storage_options())
    for i in range(8):
        store.put(f"each/{i}.bin", bytes([i]) * 1_000_000)
    each = fl.open("s3://cached/each", s3.storage_options(), cache_dir=tmp_path / "c", cache_size="5MB")
    assert sorted(one["data"][0] for one in each.shuffle(seed=1)) == list(range(8))


def test_samples_of_readers_for_python_are_refused_it_too(s3: S3Server, tmp_path: Path) -> None:
    url = "s3://cached/for-python"
    with fl.DatasetWriter(url, {"x": fl.BytesField()}, "2MiB", storage_options=s3.storage_options()) as to:
        to.write_many({"x": bytes([i]) * 1_000_000} for i in range(20))
    data = fl.Dataset.from_reader(fl.open(url, s3.storage_options(), cache_dir=tmp_path, cache_size="14MB"))
    with pytest.raises(ValueError, match="for-python needs"):
        next(iter(data.shuffle(seed=1).map(lambda one: one)))
    assert len(list(data.map(lambda one: one["x"][0]))) == 20
