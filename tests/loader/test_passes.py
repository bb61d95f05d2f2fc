"""Passes of a loader: several at once, what is told of them, and what becomes of errors in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

import fastloader as fl
from fastloader.loader.finishing import made_bytes
from fastloader.samplers import EpochDigest

COUNT = 100
BAD = (5, 17, 50)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("passes") / "x.fld"
    with fl.DatasetWriter(target, {"n": fl.IntField(), "b": fl.BytesField()}) as writer:
        writer.write_many({"n": i, "b": b"%04d" % i} for i in range(COUNT))
    return target


@pytest.fixture(scope="module")
def damaged(path):
    file = fl.open(path).dataset.file(0)
    data = bytearray(path.read_bytes())
    for number in BAD:
        data[file.payloads(1).extent(number)[0]] ^= 1
    target = path.with_name("bad.fld")
    target.write_bytes(data)
    return target


@pytest.fixture
def shards(tmp_path):
    with fl.DatasetWriter(tmp_path / "s", {"n": fl.IntField(), "b": fl.BytesField()}, shard_size=4000) as writer:
        writer.write_many({"n": i, "b": b"%0100d" % i} for i in range(COUNT))
    return tmp_path / "s"


def numbers(batches):
    return [batch["n"].tolist() for batch in batches]


# Several at once


def test_the_state_is_that_of_the_newest_pass(path):
    loader = fl.DataLoader(fl.open(path), 10, seed=3)
    first = iter(loader)
    for _ in range(9):
        next(first)
    second = iter(loader)
    given = [next(second) for _ in range(3)]
    list(first)
    state = loader.state_dict()
    again = fl.DataLoader(fl.open(path), 10, seed=3)
    again.load_state_dict(state)
    assert numbers(again) == numbers(second)
    assert len(given) == 3


def test_the_digest_is_that_of_the_newest_pass(path):
    loader = fl.DataLoader(fl.open(path), 10)
    passes = iter(loader), iter(loader)
    for _ in range(10):
        for one in passes:
            next(one)
    assert loader.digest().check(EpochDigest.expected(loader.plan.order, 1))


def test_a_pass_that_goes_on_does_not_move_a_loaded_state(path):
    loader = fl.DataLoader(fl.open(path), 10, seed=3)
    old = iter(loader)
    next(old)
    state = loader.state_dict()
    next(old)
    loader.load_state_dict(state)
    next(old)
    assert loader.state_dict() == state
    loader.set_epoch(7)
    next(old)
    assert loader.state_dict()["epoch"] == 7


def test_what_was_delivered_is_told_until_the_next_pass_begins(path):
    loader = fl.DataLoader(fl.open(path), 10)
    list(loader)
    loader.set_epoch(5)
    assert loader.digest().check(EpochDigest.expected(loader.plan.order, 0))
    iter(loader)
    assert loader.digest() == EpochDigest(5)


# Errors


def test_behind_an_error_it_is_raised_again(damaged):
    passing = iter(fl.DataLoader(fl.open(damaged), 5, shuffle=False))
    next(passing)
    for _ in range(3):
        with pytest.raises(fl.ChecksumError, match="sample 5, field 'b'"):
            next(passing)


def test_a_pass_that_was_closed_is_over(path):
    passing = iter(fl.DataLoader(fl.open(path), 5))
    next(passing)
    passing.close()
    assert list(passing) == []


def test_a_pass_of_the_parent_is_none_of_a_forked_child(path):
    passing = iter(fl.DataLoader(fl.open(path), 5, num_workers=1))
    next(passing)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            next(passing)
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as told:
        assert told.read().startswith("PassError: this pass belongs to another process; a forked child begins")


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_a_shard_that_is_gone_is_told_at_its_turn(policy, shards):
    seen = set()
    for workers in (1, 2, 8):
        reader = fl.open(shards)
        shutil.copytree(shards, shards.with_name(f"copy-{workers}"))
        reader = fl.open(shards.with_name(f"copy-{workers}"))
        gone = sorted(shards.with_name(f"copy-{workers}").glob("*.fld"))[1]
        first = len(fl.open(sorted(shards.glob("*.fld"))[0]))
        gone.unlink()
        given = []
        with pytest.raises(fl.NotFoundError, match=f"sample {first}") as caught:  # noqa: PT012
            for batch in fl.DataLoader(reader, 4, shuffle=False, num_workers=workers, on_error=policy):
                given.append(batch["n"].tolist())
        assert caught.value.sample == first
        seen.add(len(given))
        assert len(given) == first // 4
    assert len(seen) == 1


# What is told of them


def test_samples_that_were_skipped_are_not_in_the_digest(damaged):
    loader = fl.DataLoader(fl.open(damaged), 10, shuffle=False, on_error="skip")
    delivered = [number for batch in numbers(loader) for number in batch]
    assert not loader.digest().check(EpochDigest.expected(loader.plan.order, 0))
    assert loader.digest() == EpochDigest(0).add(delivered)


def test_what_was_counted_outlives_the_engine(damaged):
    with fl.DataLoader(fl.open(damaged), 10, shuffle=False, on_error="skip") as loader:
        list(loader)
    for passes in (1, 2):
        told = loader.stats()
        assert [bad["sample"] for bad in told["bad"]] == [*BAD] * passes
        assert (told["bad_values"], told["batches"], told["samples"]) == (3 * passes, 10 * passes, COUNT * passes)
        list(loader)
        loader.close()


# Functions of the user's


def failing(value):
    """Changes what it is given before it fails, as careless functions do."""
    wrong = np.isin(value, BAD)
    value += 1000
    if wrong.any():
        raise ZeroDivisionError("a bad one")
    return value


CALLABLES = {
    "transform": {"transforms": {"n": failing}},
    "collate_fn": {"collate_fn": lambda batch: {"n": failing(batch["n"])}},
}


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("what", CALLABLES)
def test_a_function_that_fails_names_the_sample(what, workers, path):
    loader = fl.DataLoader(fl.open(path), 10, shuffle=False, num_workers=workers, **CALLABLES[what])
    given = []
    with pytest.raises(fl.DecodeError, match=f"sample 5.*{what} failed: ZeroDivisionError: a bad one") as caught:
        given.extend(loader)
    assert given == []
    assert caught.value.sample == 5
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("what", CALLABLES)
def test_what_a_function_fails_on_is_skipped(what, workers, path):
    loader = fl.DataLoader(fl.open(path), 10, shuffle=False, num_workers=workers, on_error="skip", **CALLABLES[what])
    expected = [i + (i in BAD) for i in range(COUNT)]
    assert [n - 1000 for batch in numbers(loader) for n in batch] == expected
    assert sorted(bad["sample"] for bad in loader.stats()["bad"]) == [*BAD]
    assert loader.digest() == EpochDigest(0).add(expected)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("what", CALLABLES)
def test_others_stand_in_for_a_batch_that_a_function_fails_on_altogether(what, workers, path):
    options = {"shuffle": False, "num_workers": workers, "on_error": "skip", **CALLABLES[what]}
    expected = [i + (i in BAD) for i in range(COUNT)]
    loader = fl.DataLoader(fl.open(path), 1, **options)
    assert [n - 1000 for (n,) in numbers(loader)] == expected
    assert sorted(bad["sample"] for bad in loader.stats()["bad"]) == [*BAD]
    assert loader.digest() == EpochDigest(0).add(expected)
    for step in (4, 5, 17):  # before, behind and within what was skipped
        loader.set_epoch(0)
        passing = iter(loader)
        for _ in range(step):
            next(passing)
        again = fl.DataLoader(fl.open(path), 1, **options)
        again.load_state_dict(loader.state_dict())
        assert [n - 1000 for (n,) in numbers(again)] == expected[step:]


def test_what_stands_in_is_tried_sample_by_sample_too(path):
    bad = [*range(4), 5, 9]  # the first batch altogether; some of the next two, and one stands in with them
    loader = fl.DataLoader(
        fl.open(path), 4, shuffle=False, num_workers=0, on_error="skip", transforms={"n": partial(refuse, bad)}
    )
    assert numbers(loader)[:3] == [[4, 6, 6, 7], [4, 6, 6, 7], [8, 10, 10, 11]]
    assert sorted(one["sample"] for one in loader.stats()["bad"]) == bad


def test_a_function_that_fails_on_every_sample_is_an_error_even_when_skipping(path):
    transforms = {"n": partial(refuse, range(COUNT))}
    with pytest.raises(fl.DecodeError, match="sample 0, field 'n': the transform failed: ValueError: refused"):
        list(fl.DataLoader(fl.open(path), 4, shuffle=False, on_error="skip", transforms=transforms))


def refuse(bad, value):
    if np.isin(value, list(bad)).any():
        raise ValueError("refused")
    return value


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_a_function_that_fails_on_whole_batches_alone_is_an_error(policy, path):
    def fail(value):
        if len(value) > 1:
            raise ZeroDivisionError("together")
        return value

    loader = fl.DataLoader(fl.open(path), 10, shuffle=False, on_error=policy, transforms={"n": fail})
    with pytest.raises(
        fl.DecodeError, match=r"on none of its samples that were tried alone: ZeroDivisionError.*samples 0, 1, 2"
    ) as caught:
        list(loader)
    assert caught.value.sample is None


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
@pytest.mark.parametrize("what", CALLABLES)
def test_memory_that_is_not_there_is_the_fault_of_no_sample(what, policy, path):
    def fail(value):
        raise MemoryError("all of it is taken")

    functions = {"transforms": {"n": fail}} if what == "transform" else {"collate_fn": fail}
    with pytest.raises(MemoryError, match="all of it is taken"):
        list(fl.DataLoader(fl.open(path), 10, on_error=policy, **functions))


def test_nothing_can_be_missing_of_what_a_function_makes(path):
    loader = fl.DataLoader(fl.open(path), 10, on_error="replace", **CALLABLES["transform"])
    with pytest.raises(fl.DecodeError, match="the transform failed"):
        list(loader)


def test_what_functions_make_counts_for_the_limit(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"x": fl.NDArrayField("uint8", (1 << 16,))}) as writer:
        writer.write_many({"x": np.full(1 << 16, i % 251, np.uint8)} for i in range(400))

    def slots(**options):
        loader = fl.DataLoader(
            fl.open(tmp_path / "x.fld"), 8, num_workers=4, prefetch_factor=4, memory_limit="10MB", **options
        )
        list(map(len, loader))
        return loader.stats()["slots"]

    assert slots(transforms={"x": lambda x: x.astype(np.float64)}) < slots(transforms={"x": lambda x: x})


class Dawdling:
    """In order, and slow to tell what comes second: the first batch is read by then, and not yet transformed."""

    def __len__(self):
        return 160

    def samples(self, epoch, first, count):
        if first == 8:
            time.sleep(0.1)
        return np.arange(first, first + count)


def test_no_batch_is_made_ahead_before_it_is_known_what_functions_make_of_them(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"x": fl.NDArrayField("uint8", (1 << 16,))}) as writer:
        writer.write_many({"x": np.full(1 << 16, i, np.uint8)} for i in range(160))
    lock, now, most = threading.Lock(), 0, 0

    def enlarge(x):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.2)
        with lock:
            now -= 1
        return x.astype(np.float64)  # 4 MiB

    options = {"sampler": Dawdling(), "num_workers": 4, "prefetch_factor": 4, "transforms": {"x": enlarge}}
    loader = fl.DataLoader(fl.open(tmp_path / "x.fld"), 8, memory_limit="10MB", **options)
    list(map(len, loader))
    assert most <= 2  # the one being waited for, and the next


def test_bytes_made_in_python_are_counted_once(path):
    (batch, *_) = fl.DataLoader(fl.open(path), 10)
    own = np.zeros(1000, np.uint8)
    assert made_bytes(batch) == 0
    assert made_bytes({**batch, "own": own, "view": own[:10], "pair": (own[5:], [np.zeros(7)])}) == 1000 + 56


STUCK = """
import os, signal, sys, threading, time
import fastloader as fl
began = threading.Event()
def stuck(value):
    began.set()
    time.sleep(3600)
def interrupt():  # again if the interpreter lost it, as it does in a finalizer
    began.wait()
    while True:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(20)
threading.Thread(target=interrupt, daemon=True).start()
try:
    list(fl.DataLoader(fl.open(sys.argv[1]), 10, num_workers=2, transforms={"n": stuck}))
except KeyboardInterrupt:
    print("caught")
"""


def test_a_function_that_is_stuck_does_not_keep_the_program(path):
    ran = subprocess.run([sys.executable, "-c", STUCK, str(path)], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, "caught\n"), ran.stderr
