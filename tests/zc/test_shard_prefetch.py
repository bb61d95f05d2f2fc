"""Reading ahead: which shards, that their bytes move, that it happens in the background and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import threading
import weakref

import numpy as np
import pytest
from page_cache import drop, is_resident, on_disk

from fastloader.errors import StoreError
from fastloader.zc import ShardLoader, ZCWriter

SAMPLE = 6 << 20


def write(path, samples):
    with ZCWriter(path) as writer:
        for sample in samples:
            writer.write_sample(sample)
    return path


@pytest.fixture
def paths(tmp_path):
    return [write(tmp_path / f"{i}.zc", [bytes([i]) * 10, bytes([i]) * 20]) for i in range(5)]


@pytest.fixture
def cold(tmp_path):
    """Shards on disk that are not in memory."""
    with on_disk(tmp_path) as folder:
        data = np.random.default_rng(0).bytes(SAMPLE)
        paths = [write(folder / f"{i}.zc", [data, data]) for i in range(3)]
        for path in paths:
            drop(path)
        yield paths


@pytest.fixture
def read_ahead(monkeypatch):
    """What was read ahead, by the first byte of the shard's data."""
    seen = []
    monkeypatch.setattr("fastloader.zc.prefetch.populate", lambda view, stopped: seen.append(int(view[0])))
    return seen


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "fastloader-prefetch"]


def bytes_read() -> int:
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))


def test_the_bytes_of_the_next_shard_move_into_memory(cold):
    loader = ShardLoader(cold)
    data = [shard.data for shard in loader._shards.files]
    assert [is_resident(view).mean() < 0.9 for view in data] == [True, True, True]
    bytes(loader.get_sample(0)[:10])
    before = bytes_read()
    assert loader.prefetch_next() == range(1, 2)
    loader.wait_prefetch()
    assert is_resident(data[1]).all()
    assert bytes_read() - before > SAMPLE
    assert [is_resident(view).mean() < 0.9 for view in (data[0], data[2])] == [True, True]
    assert threads() == []


def test_before_anything_is_read_the_first_shards_are_next(paths, read_ahead):
    loader = ShardLoader(paths)
    assert loader.prefetch_next(2) == range(2)
    loader.wait_prefetch()
    assert read_ahead == [0, 1]


@pytest.mark.parametrize(
    ("read", "count", "expected"),
    [
        (lambda loader: loader.get_sample(0), 1, [1]),
        (lambda loader: loader.get_sample(3), 2, [2, 3]),
        (lambda loader: loader.get_sample(-1), 3, []),
        (lambda loader: loader.get_sample(7), 99, [4]),
        (lambda loader: loader.get_batch([9, 8, 2]), 2, [2, 3]),
        (lambda loader: loader.get_batch([]), 1, [0]),
        (lambda loader: loader.get_sample(0), 0, []),
    ],
)
def test_the_next_shards_are_those_behind_the_last_sample_read(paths, read_ahead, read, count, expected):
    loader = ShardLoader(paths)
    read(loader)
    assert list(loader.prefetch_next(count)) == expected
    loader.wait_prefetch()
    assert read_ahead == expected


@pytest.mark.parametrize(("count", "kind"), [(-1, ValueError), (1.5, TypeError), ("1", TypeError)])
def test_a_count_is_a_number_from_0_up(paths, count, kind):
    with pytest.raises(kind):
        ShardLoader(paths).prefetch_next(count)


def test_it_happens_in_the_background_once_for_each_shard_in_order(paths, monkeypatch):
    seen, go_on = [], threading.Event()

    def read_slowly(view, stopped):
        assert go_on.wait(60)
        seen.append(int(view[0]))

    monkeypatch.setattr("fastloader.zc.prefetch.populate", read_slowly)
    loader = ShardLoader(paths)
    loader.prefetch_next(2)
    assert len(threads()) == 1
    assert seen == []
    loader.prefetch_next(1)
    loader.get_sample(2)
    loader.prefetch_next(2)
    assert len(threads()) == 1
    go_on.set()
    loader.wait_prefetch()
    assert seen == [0, 1, 2, 3]
    assert threads() == []
    loader.prefetch_next(1)
    loader.wait_prefetch()
    assert seen == [0, 1, 2, 3, 2]


def test_waiting_for_nothing_returns(paths):
    loader = ShardLoader(paths)
    loader.wait_prefetch()
    loader.wait_prefetch()
    assert threads() == []


def test_a_failure_is_raised_once_by_waiting_and_the_others_are_read(paths, monkeypatch):
    seen = []

    def fail(view, stopped):
        seen.append(int(view[0]))
        if seen[-1] == 1:
            raise MemoryError("no room")

    monkeypatch.setattr("fastloader.zc.prefetch.populate", fail)
    loader = ShardLoader(paths)
    loader.prefetch_next(3)
    with pytest.raises(MemoryError, match="no room"):
        loader.wait_prefetch()
    loader.wait_prefetch()
    assert seen == [0, 1, 2]
    assert threads() == []


def test_a_file_that_became_shorter_is_an_error_that_names_it(tmp_path):
    path = write(tmp_path / "a.zc", [bytes(SAMPLE)])
    loader = ShardLoader(path)
    os.truncate(path, 4096)
    loader.prefetch_next()
    with pytest.raises(StoreError, match=r"a\.zc: reading ahead failed: .*; the file became shorter") as caught:
        loader.wait_prefetch()
    assert caught.value.errno


@pytest.mark.parametrize("end", ["close", "drop"])
def test_the_thread_ends_with_the_loader(paths, monkeypatch, end):
    started = threading.Event()
    ended = []

    def read_for_ever(view, stopped):
        started.set()
        while not stopped():
            pass
        ended.append(int(view[0]))

    monkeypatch.setattr("fastloader.zc.prefetch.populate", read_for_ever)
    loader = ShardLoader(paths)
    loader.prefetch_next(3)
    assert started.wait(60)
    (thread,) = threads()
    if end == "close":
        loader.close()
        assert threads() == []
    else:
        del loader
        gc.collect()
        thread.join(60)
    assert ended == [0]


def test_a_closed_loader_holds_no_file(paths, monkeypatch):
    monkeypatch.setattr("fastloader.zc.prefetch.populate", lambda view, stopped: None)
    loader = ShardLoader(paths)
    held = [weakref.ref(shard) for shard in loader._shards.files]
    loader.prefetch_next(5)
    loader.close()
    gc.collect()
    assert [ref() for ref in held] == [None] * 5
