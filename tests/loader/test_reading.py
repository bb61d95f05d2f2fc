"""Where batches' bytes come from: mapped, read by io_uring or by threads. They are the same, and none is read twice."""

import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
from itertools import pairwise

import numpy as np
import psutil
import pytest
from every_field import COUNT, FIELDS, fingerprint, sample
from hypothesis import given, settings
from hypothesis import strategies as st
from left_behind import files, left, threads

import fastloader as fl
from fastloader import kernels
from fastloader.loader import reading
from fastloader.loader.reading import Habit, Reading, batches_within, plan_reading
from fastloader.loader.resources import Memory
from fastloader.testing import identical

READ_MODES = ["uring", "pread"] if kernels.has_uring() else ["pread"]
"""Where io_uring is missing or forbidden, threads do the same."""
MODES = ["mmap", *READ_MODES, "auto"]
BEST = READ_MODES[0]
MIB = 1 << 20


@pytest.fixture(
    scope="module",
    params=[{}, {"shard_size": 9000, "missing": True}, {"compression": "zstd", "missing": True}],
    ids=["file", "shards, some missing", "packed, some missing"],
)
def path(request, tmp_path_factory):
    options = dict(request.param)
    missing = options.pop("missing", False)
    target = tmp_path_factory.mktemp("reading") / "x.fld"
    with fl.DatasetWriter(target, FIELDS, page_size=4096, **options) as writer:
        writer.write_many(sample(i, missing) for i in range(COUNT))
    return target


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """64 pages of 64 KiB, with payloads of all sizes up to more than a page."""
    target = tmp_path_factory.mktemp("reading") / "large.fld"
    rng = np.random.default_rng(0)
    with fl.DatasetWriter(target, {"x": fl.BytesField(), "i": fl.IntField()}, page_size=65536) as writer:
        for i in range(1500):
            writer.write_sample({"x": rng.bytes(int(rng.integers(0, 5000)) + (70_000 if i % 300 == 7 else 0)), "i": i})
    return target


@pytest.fixture
def cold(monkeypatch):
    """Small files count as larger than memory, and as not in the page cache."""
    monkeypatch.setattr(reading.resources, "memory", lambda: Memory(0, 1))


def batches(path, **options):
    loader = fl.DataLoader(fl.open(path), 8, seed=3, **options)
    return [fingerprint(batch) for batch in loader], loader


# The same bytes


@pytest.mark.parametrize("order", ["random", "quasi_random", "sequential"])
def test_batches_are_the_same_however_they_are_read(order, path, cold):
    wanted, _ = batches(path, io="mmap", order=order, num_workers=1)
    for io in MODES:
        for workers in (1, 2, 7):
            assert batches(path, io=io, order=order, num_workers=workers)[0] == wanted, (io, workers)


@pytest.mark.parametrize("io", MODES)
def test_a_restart_in_the_middle_gives_the_same_rest(io, path, cold):
    whole, _ = batches(path, io="mmap")
    loader = fl.DataLoader(fl.open(path), 8, seed=3, io=io, num_workers=2)
    passing = iter(loader)
    seen = [fingerprint(next(passing)) for _ in range(5)]
    state = json.loads(json.dumps(loader.state_dict()))
    passing.close()
    resumed = fl.DataLoader(fl.open(path), 8, seed=3, io=io, num_workers=1)
    resumed.load_state_dict(state)
    assert seen + [fingerprint(batch) for batch in resumed] == whole


@pytest.mark.parametrize("io", READ_MODES)
@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.integers(0, 1499), min_size=1, max_size=200),
    memory=st.sampled_from([1, 40_000, 200_000, 1_000_000, 30_000_000]),
    unit=st.sampled_from([0, 4096, 65536]),
    ahead=st.integers(0, 20),
    batch=st.integers(1, 40),
)
def test_any_rows_in_any_memory_are_what_the_mapping_holds(io, large, rows, memory, unit, ahead, batch):
    reader = fl.open(large)
    loader = fl.DataLoader(reader, batch, sampler=rows, io=io, num_workers=2)
    forced = Reading(io, memory, unit, ahead)
    object.__setattr__(loader.options, "reading", lambda *_: forced)
    for step, got in enumerate(loader):
        wanted = reader.read_batch(loader.plan.batch(0, step))
        assert identical(got, wanted)
    assert loader.stats()["samples"] == len(rows)


# What is read, and how often


@pytest.mark.parametrize("io", READ_MODES)
def test_whole_pages_are_read_once_an_epoch_in_quasi_random_order(io, large):
    loader = fl.DataLoader(fl.open(large), 16, order="quasi_random", window=8, io=io, fields=["x"])
    data = fl.open(large).dataset.file(0).data
    pages = -(-(data.offset + data.size) // 65536)
    for epoch in range(1, 3):
        list(loader)
        assert loader.stats()["io"]["read_bytes"] == epoch * pages * 65536
        assert loader.stats()["io"]["reads"] <= epoch * pages


def test_neighbours_are_read_together(large):
    loader = fl.DataLoader(fl.open(large), 64, sampler=list(range(640)), io=BEST, fields=["x"], num_workers=1)
    list(loader)
    counted = loader.stats()["io"]
    assert 10 <= counted["reads"] < 30
    assert counted["payload_bytes"] <= counted["read_bytes"] < 1.05 * counted["payload_bytes"]


def test_what_two_batches_want_is_read_once(large):
    rows = list(range(0, 1500, 10)) * 4
    loader = fl.DataLoader(fl.open(large), 150, sampler=rows, io=BEST, fields=["x"], num_workers=2)
    list(loader)
    counted = loader.stats()["io"]
    assert counted["read_bytes"] < counted["payload_bytes"] / 2


def test_bytes_in_memory_are_left_to_the_mapping(large, cold):
    reader = fl.open(large)
    reader.read_batch(range(len(reader)))
    loader = fl.DataLoader(reader, 16, io="auto", fields=["x"])
    list(loader)
    counted = loader.stats()["io"]
    assert counted["mode"] == "automatic"
    assert (counted["reads"], counted["batches_in_memory"]) == (0, len(loader))


def test_bytes_on_disk_are_read(cold, tmp_path):
    path = tmp_path / "x.fld"  # larger than what opening it brings in along with the tables
    with fl.DatasetWriter(path, {"x": fl.BytesField()}) as writer:
        writer.write_many({"x": os.urandom(MIB)} for _ in range(24))
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    loader = fl.DataLoader(fl.open(path), 16, io="auto", fields=["x"])
    next(iter(loader))
    assert loader.stats()["io"]["reads"] > 0


REFUSED = """
import ctypes, errno, struct, sys
setup, allow, refuse = 425, 0x7FFF0000, 0x00050000 | errno.EPERM  # io_uring_setup has this number on every system
filters = b"".join(struct.pack("HBBI", *one) for one in (
    (0x20, 0, 0, 0), (0x15, 0, 1, setup), (0x06, 0, 0, refuse), (0x06, 0, 0, allow),
))
memory = ctypes.create_string_buffer(filters)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(memory)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit("no seccomp: " + errno.errorcode[ctypes.get_errno()])

import fastloader as fl
from fastloader import kernels
from fastloader.loader import options, reading
from fastloader.loader.resources import Memory
assert not kernels.has_uring()
reading.resources.memory = lambda: Memory(0, 1)
options.kernels.has_uring = lambda: True  # as if it were refused later, when there are too many rings
reader = fl.open(sys.argv[1])
for io in ("auto", "uring"):
    loader = fl.DataLoader(reader, 16, seed=3, io=io)
    for batch in loader:
        for i, x in zip(batch["i"].tolist(), batch["x"]):
            assert x == reader[i]["x"]
print(loader.stats()["io"]["by"], loader.stats()["samples"])
"""


def test_where_io_uring_is_refused_threads_read(large):
    """As a container's sandbox does it: the kernel has it, and says no."""
    done = subprocess.run([sys.executable, "-c", REFUSED, str(large)], capture_output=True, text=True, timeout=300)
    if "no seccomp" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout.split() == ["pread", "1500"], done.stderr


@pytest.mark.parametrize("io", READ_MODES)
def test_who_reads_is_told(io, large):
    loader = fl.DataLoader(fl.open(large), 16, io=io)
    assert loader.stats()["io"]["by"] is None
    list(loader)
    assert loader.stats()["io"]["by"] == io
    assert "by" not in fl.DataLoader(fl.open(large), io="mmap").stats()["io"]


def test_a_dataset_that_fits_is_brought_into_the_page_cache(large, monkeypatch):
    monkeypatch.setattr(reading, "SMALL", 0)
    loader = fl.DataLoader(fl.open(large), 16, io="auto", fields=["x"])
    list(loader)
    counted = loader.stats()["io"]
    assert counted["mode"] == "populate"
    file = fl.open(large).dataset.file(0)
    assert counted["read_bytes"] >= file.data.size
    assert counted["reads"] == -(-file.size // (2 * MIB))
    list(loader)
    assert loader.stats()["io"]["reads"] == counted["reads"]


def test_what_was_brought_into_the_page_cache_is_not_looked_up_again(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "SMALL", 0)
    with fl.DatasetWriter(tmp_path / "x.fld", {"x": fl.BytesField(), "i": fl.IntField()}) as writer:
        writer.write_many({"x": b"%032d" % i, "i": i} for i in range(120_000))
    reader = fl.open(tmp_path / "x.fld")
    file = reader.dataset.file(0)
    assert file.size - file.data.size > 2 * 2 * MIB, "pieces of tables alone are none that a batch waits for"
    loader = fl.DataLoader(reader, 500, shuffle=False)
    for _ in range(2):
        before = loader.stats()["io"]["batches_in_memory"]
        seen = [number for batch in loader for number in batch["i"].tolist()]
        assert seen == list(range(120_000))
    assert before < len(loader)
    assert loader.stats()["io"]["batches_in_memory"] == before + len(loader)


# Memory


def test_reading_stays_within_its_share_of_the_limit(large):
    for habit in (Habit(), Habit(8), Habit(10_000)):
        plan = plan_reading(BEST, fl.open(large).dataset, habit, 16, 8, 1, 16 * MIB)
        assert plan.memory <= 8 * MIB
    assert plan_reading(BEST, fl.open(large).dataset, Habit(), 1000, 8, 1, None).memory > 8 * MIB
    # In order too, where batches are larger than pages: nothing is given up for want of memory.
    assert plan_reading(BEST, fl.open(large).dataset, Habit(1), 1000, 8, 1, None).memory > 8 * MIB
    loader = fl.DataLoader(fl.open(large), 300, shuffle=False, io=BEST)
    assert sum(len(batch["i"]) for batch in loader) == 1500
    assert loader.stats()["io"]["given_up"] == 0


def test_fewer_batches_are_made_ahead_under_a_limit(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"x": fl.NDArrayField("uint8", (MIB // 4,))}) as writer:
        writer.write_many({"x": np.full(MIB // 4, i % 251, np.uint8)} for i in range(160))

    def most(**options):
        loader = fl.DataLoader(fl.open(tmp_path / "x.fld"), 8, num_workers=4, prefetch_factor=4, **options)
        for _ in range(2):
            for batch in loader:
                assert (batch["x"] == batch["x"][:, :1]).all()
        return loader.stats()["slots"]

    free = most()
    assert most(memory_limit="16MiB") <= 8 < free
    assert most(memory_limit="16MiB", io=BEST) <= 4


@pytest.mark.parametrize(("size", "wanted"), [(1, 9), (10, 8), (20, 3), (33, 1), (1000, 1)])
def test_how_many_batches_a_limit_allows(size, wanted):
    assert batches_within(150, Reading(BEST, 50), size, 9) == wanted


@pytest.mark.parametrize("io", READ_MODES)
def test_iterators_that_wait_for_each_other_do_not_wait_for_ever(io, large):
    reader = fl.open(large)
    loader = fl.DataLoader(reader, 30, io=io, fields=["i", "x"], num_workers=2, seed=1)
    forced = Reading(io, 400_000, 0, 30)
    object.__setattr__(loader.options, "reading", lambda *_: forced)
    first, second = iter(loader), iter(loader)
    for _ in range(3):
        next(first)  # what it reads ahead fills the memory, and nobody takes it
    assert sorted(i for batch in second for i in batch["i"].tolist()) == list(range(1500))
    assert len(list(first)) == 47


# What goes wrong


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
@pytest.mark.parametrize("io", READ_MODES)
def test_a_file_cut_short_under_a_running_loader_is_an_error(io, policy, large, tmp_path):
    path = tmp_path / "cut.fld"
    path.write_bytes(large.read_bytes())
    loader = fl.DataLoader(fl.open(path), 10, shuffle=False, io=io, num_workers=2, prefetch_factor=1, on_error=policy)
    passing = iter(loader)
    next(passing)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(fl.UnreadableError, match="became shorter") as caught:
        list(passing)
    assert caught.value.sample is not None
    assert loader.stats()["bad_values"] == 0
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("io", READ_MODES)
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_a_damaged_payload_follows_the_policy(io, policy, large, tmp_path):
    path = tmp_path / "bad.fld"
    path.write_bytes(large.read_bytes())
    reader = fl.open(path)
    pointer = reader.dataset.file(0).payloads(0).extent(100)[0]
    with path.open("r+b") as file:
        file.seek(pointer)
        byte = file.read(1)[0]
        file.seek(pointer)
        file.write(bytes([byte ^ 1]))
    loader = fl.DataLoader(fl.open(path), 50, shuffle=False, io=io, on_error=policy)
    assert sum(len(batch["i"]) for batch in loader) == 1500
    assert [bad["sample"] for bad in loader.stats()["bad"]] == [100]


def test_a_file_replaced_by_another_is_read_as_it_was(large, tmp_path):
    path = tmp_path / "x.fld"
    path.write_bytes(large.read_bytes())
    reader = fl.open(path)
    wanted = reader.read_batch(range(100), ["x"])["x"]
    other = tmp_path / "other.fld"
    other.write_bytes(b"\0" * path.stat().st_size)
    os.replace(other, path)
    loader = fl.DataLoader(reader, 100, shuffle=False, fields=["x"], io=BEST)
    assert next(iter(loader))["x"] == wanted
    assert loader.stats()["io"]["reads"] == 0 < loader.stats()["io"]["given_up"]


@pytest.mark.parametrize("io", [*READ_MODES, "auto"])
def test_epochs_leave_no_thread_no_descriptor_and_no_memory(io, large, cold):
    process = psutil.Process()
    loader = fl.DataLoader(fl.open(large), 50, io=io, num_workers=2)

    def memory():
        gc.collect()
        return process.memory_info().rss

    list(loader)
    before = memory()
    others, opened = threads(), files()
    for _ in range(30):
        passing = iter(loader)
        next(passing)
        passing.close()
        list(loader)
    assert memory() - before < 20 * MIB
    assert not left(threads, others)
    assert not left(files, opened)


def test_a_child_forked_while_reads_are_on_their_way_loads_for_itself(large):
    loader = fl.DataLoader(fl.open(large), 50, io=BEST, num_workers=2, fields=["i", "x"])
    passing = iter(loader)
    next(passing)
    child = os.fork()
    if child == 0:
        total = sum(int(batch["i"].sum()) for batch in loader)
        del passing, loader
        gc.collect()
        os._exit(total != 1500 * 1499 // 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(passing)) == 29


@pytest.mark.parametrize("io", ["mmap", *READ_MODES])
def test_a_loader_can_be_closed_while_another_thread_waits_for_a_batch(io, large):
    for _ in range(20):
        loader = fl.DataLoader(fl.open(large), 20, io=io, num_workers=2)
        passing = iter(loader)
        next(passing)
        other = threading.Thread(target=loader.close)
        other.start()
        with contextlib.suppress(ValueError, RuntimeError):  # it may also be done before
            list(passing)
        other.join()
    passing = iter(loader)
    next(passing)
    loader.close()
    for _ in range(2):
        with pytest.raises(fl.PassError, match="the loader was closed while this pass was under way"):
            next(passing)


def test_more_shards_than_files_are_kept_open(tmp_path):
    shards = []
    for i in range(300):
        shards.append(tmp_path / f"{i}.fld")
        with fl.DatasetWriter(shards[-1], {"x": fl.BytesField()}) as writer:
            writer.write_many({"x": bytes([i % 256, k]) * 700} for k in range(4))
    fl.concatenate(tmp_path / "all.fld", shards)
    reader = fl.open(tmp_path / "all.fld")
    loader = fl.DataLoader(reader, 100, io=BEST, num_workers=2, seed=5)
    opened = files()
    for step, batch in enumerate(loader):
        assert batch["x"] == reader.read_batch(loader.plan.batch(0, step))["x"]
        assert len(files() - opened) <= 260
    assert loader.stats()["io"]["reads"] > 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"io": "floppy"}, "io='floppy': one of auto, mmap, uring, pread"),
        ({"memory_limit": 4096}, "memory_limit=4096: at least"),
        ({"memory_limit": "lots"}, "memory_limit='lots' is not a size"),
    ],
)
def test_wrong_options(options, message, large):
    with pytest.raises(ValueError, match=message):
        fl.DataLoader(fl.open(large), **options)


def test_without_io_uring_asking_for_it_says_what_else_there_is(large, monkeypatch):
    monkeypatch.setattr(kernels, "has_uring", lambda: False)
    with pytest.raises(ValueError, match="io='pread' reads with threads"):
        fl.DataLoader(fl.open(large), io="uring")


# Quasi-random order and ranks


def test_ranks_read_pages_of_their_own(large):
    data = fl.open(large).dataset.file(0).data
    whole = sum(_bytes_read(large, rank, 4) for rank in range(4))
    assert whole < 1.3 * data.size


def _bytes_read(path, rank, world_size):
    loader = fl.DataLoader(
        fl.open(path), 8, order="quasi_random", window=4, io=BEST, fields=["x"], rank=rank, world_size=world_size
    )
    list(loader)
    return loader.stats()["io"]["read_bytes"]


@pytest.mark.parametrize(("before", "after"), list(pairwise([1, 3, 2, 5, 1])))
def test_a_quasi_random_epoch_goes_on_with_another_number_of_ranks(before, after, large):
    def loaders(ranks, batch_size):
        return [
            fl.DataLoader(
                fl.open(large), batch_size, order="quasi_random", window=4, fields=["i"], rank=rank, world_size=ranks
            )
            for rank in range(ranks)
        ]

    seen = []
    for loader in (started := loaders(before, 8)):
        passing = iter(loader)
        for _ in range(20):
            seen += next(passing)["i"].tolist()
        passing.close()
    for loader in loaders(after, 6):
        loader.load_state_dict(json.loads(json.dumps(started[0].state_dict())))
        seen += [i for batch in loader for i in batch["i"].tolist()]
    assert sorted(seen) == list(range(1500))


def test_a_quasi_random_order_of_some_samples_gives_those_samples(large):
    wanted = np.arange(3, 1500, 7)
    loader = fl.DataLoader(fl.open(large), 50, order="quasi_random", window=4, indices=wanted, fields=["i"])
    got = [i for batch in loader for i in batch["i"].tolist()]
    assert sorted(got) == wanted.tolist() != got
