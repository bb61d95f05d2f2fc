"""Small ranges that threads ask for: told once, by the first good answer or the last failure, in every process."""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stores.fault_proxy import fault_proxy

from fastloader.errors import NotFoundError, StoreError
from fastloader.stores import open_store
from fastloader.stores.asking import MOST, Asked, askers
from fastloader.stores.cloud import SMALL, CloudStore
from fastloader.stores.retrying import Pace, RetryPolicy
from fastloader.testing.seaweed import S3Server

WAIT = 200.0


class Told:
    """Everything that was told, and a way to wait for it."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, BaseException | None]] = []
        self._there = threading.Event()

    def __call__(self, found: Any, error: BaseException | None) -> None:
        self.all.append((found, error))
        self._there.set()

    def first(self) -> tuple[Any, BaseException | None]:
        assert self._there.wait(WAIT)
        return self.all[0]


def asked(told: Told, attempt: Callable[[], Any], again: Any, policy: RetryPolicy) -> Asked:
    return Asked(1000, attempt, again, policy, Pace(), told)


@settings(max_examples=60, deadline=None)
@given(
    first=st.sampled_from(["good", "bad"]), second=st.sampled_from(["good", "bad"]),
    order=st.sampled_from(["first", "second"]), hedged=st.booleans(),
)  # fmt: skip
def test_the_first_good_answer_or_the_last_failure_is_told_once(first, second, order, hedged):
    told = Told()
    turns = {"first": threading.Event(), "second": threading.Event()}
    repeats: list[BaseException | None] = []

    def attempt() -> str:
        assert turns["first"].wait(WAIT)
        if first == "bad":
            raise OSError("first")
        return "first"

    async def again(failure: BaseException | None, end: float) -> str:
        repeats.append(failure)
        while not turns["second"].is_set():
            await asyncio.sleep(0.001)
        if second == "bad":
            raise OSError("second")
        return "second"

    policy = RetryPolicy(hedge_after=0.001 if hedged else 20.0)
    askers().ask(asked(told, attempt, again, policy))
    if hedged:
        while not repeats:
            time.sleep(0.001)
    other = "second" if order == "first" else "first"
    turns[order].set()
    if not hedged:
        turns["first"].set()
    elif (first if order == "first" else second) == "bad":
        time.sleep(0.01)
        assert told.all == []  # the other may still have it
    else:
        assert told.first() == (order, None)
    turns[other].set()
    found, error = told.first()
    time.sleep(0.005)
    assert len(told.all) == 1
    if not hedged:
        assert [str(failure) for failure in repeats] == ([] if first == "good" else ["first"])
    if first == second == "bad":
        assert isinstance(error, OSError)
    else:
        assert found in ("first", "second")


def test_an_attempt_that_hangs_is_repeated_and_one_that_comes_late_is_dropped():
    told, late = Told(), threading.Event()

    async def again(failure: BaseException | None, end: float) -> str:
        return str(failure)

    askers().ask(asked(told, lambda: late.wait(WAIT), again, RetryPolicy(attempt_timeout=0.1)))
    assert told.first() == ("no answer within 0.1 s", None)
    late.set()
    time.sleep(0.01)
    assert len(told.all) == 1


def test_a_repetition_is_not_made_twice_for_being_slow():
    told, repeats = Told(), []

    async def again(failure: BaseException | None, end: float) -> str:
        repeats.append(failure)
        await asyncio.sleep(0.3)
        return "second"

    one = Asked(1000, None, again, RetryPolicy(hedge_after=0.01), Pace(), told)  # somebody else makes the first attempt
    assert askers().watch(one)
    one.failed(OSError("first"))
    assert told.first() == ("second", None)
    assert [str(failure) for failure in repeats] == ["first"]


def test_no_thread_is_ended_by_an_error_and_none_is_swallowed(monkeypatch):
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: seen.append(kind))

    class Panic(BaseException):
        pass

    async def again(failure: BaseException | None, end: float) -> str:
        return repr(failure)

    def panic() -> None:
        raise Panic

    def broken(found: Any, error: BaseException | None) -> None:
        raise ZeroDivisionError

    for _ in range(3 * MOST):
        askers().ask(Asked(1, lambda: 1, again, RetryPolicy(), Pace(), broken))
    told = Told()
    askers().ask(asked(told, panic, again, RetryPolicy()))
    assert told.first() == ("Panic()", None)
    end = time.monotonic() + WAIT
    while len(seen) < 3 * MOST and time.monotonic() < end:  # others may still be at it
        time.sleep(0.001)
    assert seen == [ZeroDivisionError] * 3 * MOST


def test_more_than_there_are_threads_for_all_come():
    many = [Told() for _ in range(3 * MOST)]
    for number, told in enumerate(many):
        askers().ask(asked(told, lambda number=number: number, None, RetryPolicy()))  # type: ignore[misc]
    assert [told.first()[0] for told in many] == list(range(3 * MOST))
    assert sum(thread.name == "fastloader-asker" for thread in threading.enumerate()) <= MOST


@pytest.fixture(scope="module")
def store(s3: S3Server) -> CloudStore:
    made, _ = open_store(f"s3://asking-{secrets.token_hex(4)}", s3.storage_options(direct=False))
    assert isinstance(made, CloudStore)
    for i in range(20):
        made.put(f"{i}", bytes([i]) * 1000)
    made.put("large", bytes(SMALL))
    return made


def wholes(store: CloudStore) -> list[int]:
    found = [store.begin_whole(f"{i}", 4096) for i in range(20)]
    return [coming.result(WAIT)[0][999] for coming in found]


def test_whole_objects_are_asked_for_by_threads_once_they_are_small(store, monkeypatch):
    by_threads: list[str] = []
    plain = CloudStore._get_now
    monkeypatch.setattr(
        CloudStore, "_get_now", lambda self, wanted: by_threads.append(wanted.key) or plain(self, wanted)
    )
    store.begin_whole("0", 4096).result(WAIT)
    assert wholes(store) == list(range(20))
    assert len(by_threads) == 20
    assert len(store.begin_whole("large", SMALL).result(WAIT)[0]) == SMALL
    store.begin_whole("1", 4096).result(WAIT)
    assert len(by_threads) == 21  # the one of which nobody knew that it is large


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(("attempts", "size"), [(1, 1000), (3, 1000), (1, SMALL), (3, SMALL)])
def test_as_many_requests_are_made_as_are_allowed(store, s3, attempts, size, direct):
    with fault_proxy(s3.endpoint) as proxy:
        options = s3.storage_options(proxy.url, attempts=attempts, first_wait=0.001, hedge_after=60.0, direct=direct)
        failing, _ = open_store(store.url, options)
        proxy.fault, proxy.every = "500", 1
        told = Told()
        failing.begin_read("large", 0, size, None, told)
        error = told.first()[1]
        assert isinstance(error, StoreError)
        assert ("3 times" in str(error)) == (attempts == 3)
        assert len(proxy.requests) == attempts
        proxy.fault = None
        proxy.requests.clear()
        told = Told()
        failing.begin_read("not-there", 0, size, None, told)
        assert isinstance(told.first()[1], NotFoundError)
        assert len(proxy.requests) == 1


def read_in_child(store: CloudStore, queue: Any) -> None:
    queue.put(wholes(store) + wholes(store))


def test_a_forked_child_has_threads_of_its_own(store):
    assert wholes(store) + wholes(store) == [*range(20), *range(20)]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=read_in_child, args=(store, queue))
    child.start()
    assert queue.get(timeout=WAIT) == [*range(20), *range(20)]
    child.join(WAIT)
    assert child.exitcode == 0


@pytest.mark.parametrize("direct", [True, False])
def test_a_program_ends_though_a_server_never_answers(store, s3, direct):
    program = """
import sys
from fastloader.errors import NotFoundError, StoreError
from fastloader.stores import open_store
options = dict(zip(sys.argv[3::2], sys.argv[4::2])) | {"direct": sys.argv[2] == "True"}
store, _ = open_store(sys.argv[1], options | {"attempt_timeout": 250.0, "deadline": 500.0})
for i in range(8):
    store.begin_read(f"{i}", 0, 1000, None, lambda data, error: print("told", error))
input()
print("the end")
"""
    with fault_proxy(s3.endpoint) as proxy:
        proxy.fault, proxy.every, proxy.silence = "silence", 1, 500.0
        options = [str(part) for pair in s3.storage_options(proxy.url).items() for part in pair]
        words = [sys.executable, "-c", program, store.url, str(direct), *options]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            while proxy.spoilt < 8:
                assert process.poll() is None
                time.sleep(0.01)
            said, errors = process.communicate("\n", timeout=100)  # rather than wait for the answers
    assert (process.returncode, said) == (0, "the end\n"), errors
