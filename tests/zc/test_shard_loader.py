"""Samples of several shards: the right bytes, without a copy, from threads, forks and pickles, until closed."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import tracemalloc

import numpy as np
import pytest
from forking import forked
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.errors import FormatError, NotFoundError
from fastloader.formats.zc import ZCShard
from fastloader.zc import ShardLoader, ZCWriter


def write(path, samples, **options):
    with ZCWriter(path, **options) as writer:
        for sample in samples:
            writer.write_sample(sample)
    return path


def shards(folder, contents):
    return [write(folder / f"{i}.zc", samples) for i, samples in enumerate(contents)]


CONTENTS = [[b"a", b"bb"], [], [b"ccc", b"", b"d" * 5000], [b"e"]]
ALL = [sample for samples in CONTENTS for sample in samples]


@pytest.fixture
def paths(tmp_path):
    return shards(tmp_path, CONTENTS)


def test_samples_are_numbered_through_all_shards(paths):
    with ShardLoader(paths) as loader:
        assert (loader.total_samples, loader.num_shards) == (6, 4)
        assert [bytes(loader.get_sample(i)) for i in range(6)] == ALL
        assert [bytes(loader.get_sample(i)) for i in range(-6, 0)] == ALL
        assert [bytes(sample) for sample in loader.get_batch([5, 0, -1, 2, 2, -6])] == [
            b"e",
            b"a",
            b"e",
            b"ccc",
            b"ccc",
            b"a",
        ]
        assert repr(loader) == "ShardLoader(6 samples in 4 shards)"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=20), max_size=5), min_size=1, max_size=5), st.data())
def test_batches_are_what_samples_are(tmp_path_factory, contents, data):
    paths = shards(tmp_path_factory.mktemp("zc"), contents)
    expected = [sample for samples in contents for sample in samples]
    loader = ShardLoader(paths)
    total = loader.total_samples
    assert total == len(expected)
    indices = data.draw(st.lists(st.integers(-total, total - 1), max_size=10)) if total else []
    assert [bytes(sample) for sample in loader.get_batch(indices)] == [expected[i] for i in indices]
    assert [bytes(loader.get_sample(i)) for i in indices] == [expected[i] for i in indices]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.int64])
def test_batches_take_arrays_of_any_whole_numbers(paths, dtype):
    batch = ShardLoader(paths).get_batch(np.array([5, 0, 3], dtype))
    assert [bytes(sample) for sample in batch] == [ALL[5], ALL[0], ALL[3]]


@pytest.mark.parametrize("index", [6, -7, 2**40, -(2**63)])
def test_numbers_outside_are_index_errors_that_say_how_many_there_are(paths, index):
    loader = ShardLoader(paths)
    with pytest.raises(IndexError, match=rf"0\.zc and 3 more: sample {index} of 6$"):
        loader.get_sample(index)
    with pytest.raises(IndexError, match=rf"0\.zc and 3 more: sample {index} of 6$"):
        loader.get_batch(np.array([0, index]))
    with pytest.raises(IndexError, match=rf"1\.zc: sample {index} of 0$"):
        ShardLoader(paths[1]).get_sample(index)


@pytest.mark.parametrize("index", [1.0, "1", None, [1]])
def test_what_is_no_number_is_a_type_error(paths, index):
    loader = ShardLoader(paths)
    with pytest.raises(TypeError):
        loader.get_sample(index)
    with pytest.raises(TypeError, match="one-dimensional sequence of whole numbers"):
        loader.get_batch([index])


def test_an_empty_batch_is_empty(paths):
    assert ShardLoader(paths).get_batch([]) == []


def test_one_path_is_one_shard_and_none_is_an_error(paths):
    assert ShardLoader(str(paths[2])).total_samples == 3
    with pytest.raises(ValueError, match="no shards are given"):
        ShardLoader([])


def test_samples_are_read_only_views_of_the_mapped_file(paths, monkeypatch):
    mapped = []
    open_shard = ZCShard.__init__
    monkeypatch.setattr(ZCShard, "__init__", lambda self, path: mapped.append(self) or open_shard(self, path))
    loader = ShardLoader(paths)
    for sample in [loader.get_sample(4), *loader.get_batch([4, 3, 2])]:
        assert isinstance(sample, memoryview)
        assert sample.readonly
        assert not len(sample) or np.shares_memory(np.frombuffer(sample, np.uint8), mapped[2].bytes)
    assert mapped[2].path == paths[2]


def test_reading_takes_no_memory_for_the_bytes(tmp_path):
    path = write(tmp_path / "a.zc", [bytes(8 << 20)] * 4)
    loader = ShardLoader(path)
    tracemalloc.start()
    try:
        samples = [loader.get_sample(0), *loader.get_batch([1, 2, 3])]
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert sum(len(sample) for sample in samples) == 32 << 20


def test_samples_outlive_the_loader(paths):
    with ShardLoader(paths) as loader:
        sample = loader.get_sample(4)
    del loader
    for path in paths:
        path.unlink()
    assert bytes(sample) == b"d" * 5000


def test_a_closed_loader_says_so(paths):
    loader = ShardLoader(paths)
    loader.close()
    loader.close()
    assert repr(loader) == "ShardLoader(closed)"
    calls = [
        lambda: loader.get_sample(0), lambda: loader.get_batch([0]), loader.prefetch_next, loader.wait_prefetch,
        lambda: loader.total_samples, lambda: loader.num_shards, lambda: pickle.dumps(loader),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match="this loader is closed"):
            call()


def test_a_bad_shard_among_good_ones_is_named(paths):
    paths[2].write_bytes(b"junk")
    with pytest.raises(FormatError, match=r"2\.zc: is no ZCLD shard"):
        ShardLoader(paths)
    paths[2].unlink()
    with pytest.raises(NotFoundError, match=r"2\.zc: there is no such file"):
        ShardLoader(paths)


def test_a_pickle_opens_the_same_shards_from_anywhere(paths, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(ShardLoader([path.name for path in paths]))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [bytes(sample) for sample in pickle.loads(data).get_batch(range(6))] == ALL
    assert len(data) < 1000


def test_a_pickle_does_not_open_other_shards(paths):
    data = pickle.dumps(ShardLoader(paths))
    write(paths[2], [b"cc", b"c", b"d" * 5000])
    with pytest.raises(FormatError, match=r"2\.zc: is not the file it was"):
        pickle.loads(data)


def in_spawned(loader, queue):
    queue.put([bytes(sample) for sample in loader.get_batch(range(-6, 0))])


def test_a_spawned_process_reads_the_same(paths):
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    child = context.Process(target=in_spawned, args=(ShardLoader(paths), queue))
    child.start()
    assert queue.get() == ALL
    child.join()
    assert child.exitcode == 0


def test_a_forked_child_reads_and_prefetches_while_the_parents_thread_is_busy(paths, monkeypatch):
    loader = ShardLoader(paths)
    busy, go_on = threading.Event(), threading.Event()

    def read_slowly(view, stopped):
        busy.set()
        go_on.wait()

    monkeypatch.setattr("fastloader.zc.prefetch.populate", read_slowly)
    loader.prefetch_next(2)
    busy.wait()
    seen = []

    def child():
        monkeypatch.setattr("fastloader.zc.prefetch.populate", lambda view, stopped: seen.append(view.tobytes()))
        loader.prefetch_next(1)
        loader.wait_prefetch()
        ok = seen == [loader._shards.files[0].data.tobytes()]
        ok &= [bytes(sample) for sample in loader.get_batch(range(6))] == ALL
        loader.close()
        return ok

    with loader._prefetcher._lock:  # a lock that is held for ever in the child
        assert forked(child)
    go_on.set()
    loader.wait_prefetch()
    loader.close()


def test_many_threads_read_the_same(paths):
    loader = ShardLoader(paths)
    rng = np.random.default_rng(0)
    plans = [rng.integers(-6, 6, (300, 7)) for _ in range(6)]
    wrong = []

    def read(plan):
        for indices in plan:
            batch = [bytes(sample) for sample in loader.get_batch(indices)]
            if batch != [ALL[i] for i in indices] or bytes(loader.get_sample(indices[0])) != ALL[indices[0]]:
                wrong.append(indices)
            loader.prefetch_next(2)

    threads = [threading.Thread(target=read, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loader.wait_prefetch()
    assert wrong == []
