"""Pools of threads that the end of a program does not wait for."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import CancelledError

import pytest
from left_behind import left, python_threads

from fastloader.threads import DaemonPool


def test_calls_are_made_and_their_threads_joined():
    with DaemonPool(3, "pool-a") as pool:
        futures = [pool.submit(pow, i, 2) for i in range(100)]
        assert [future.result() for future in futures] == [i * i for i in range(100)]
        assert 1 <= len(python_threads("pool-a")) <= 3
        assert all(thread.daemon for thread in python_threads("pool-a"))
    assert not python_threads("pool-a")
    with pytest.raises(RuntimeError, match=r"pool-a: .* after shutdown"):
        pool.submit(pow, 1, 1)


def test_as_many_calls_run_at_once_as_there_are_threads():
    barrier = threading.Barrier(4, timeout=60)
    with DaemonPool(4, "pool-b") as pool:
        for _ in range(3):
            assert sorted(future.result() for future in [pool.submit(barrier.wait) for _ in range(4)]) == [0, 1, 2, 3]


def test_a_pool_that_nobody_uses_has_no_threads():
    DaemonPool(3, "pool-c").shutdown()
    assert not python_threads("pool-c")


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_what_a_call_raises_comes_with_its_result(error):
    def fail():
        raise error

    with DaemonPool(1, "pool-d") as pool:
        failed, after = pool.submit(fail), pool.submit(int)
        with pytest.raises(type(error)):
            failed.result()
        assert after.result() == 0


def test_what_was_not_begun_is_cancelled():
    begun, go_on, made = threading.Event(), threading.Event(), []

    def stuck():
        begun.set()
        go_on.wait(60)

    pool = DaemonPool(1, "pool-e")
    first, second = pool.submit(stuck), pool.submit(made.append, 1)
    begun.wait(60)
    pool.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        second.result(60)
    go_on.set()
    first.result(60)
    assert not left(lambda: python_threads("pool-e"))
    assert not made


def test_without_cancelling_all_are_made():
    with DaemonPool(1, "pool-f") as pool:
        futures = [pool.submit(int) for _ in range(50)]
    assert all(future.done() and not future.cancelled() for future in futures)


def test_the_threads_of_a_dropped_pool_end():
    pool = DaemonPool(2, "pool-g")
    pool.submit(int).result()
    del pool
    gc.collect()
    assert not left(lambda: python_threads("pool-g"))


def test_idle_threads_hold_nothing():
    class Thing:
        def call(self):
            return Thing()

    with DaemonPool(1, "pool-h") as pool:
        thing = Thing()
        gone = [weakref.ref(thing), weakref.ref(pool.submit(thing.call).result())]
        del thing
        assert not left(lambda: {one for one in gone if one() is not None})


def test_a_forked_child_leaves_the_threads_to_its_parent():
    with DaemonPool(1, "pool-i") as pool:
        pool.submit(int).result()
        child = os.fork()
        if not child:
            pool.shutdown()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert pool.submit(int).result() == 0


def test_the_end_of_the_program_does_not_wait_for_a_stuck_call():
    code = (
        "import threading, time\nfrom fastloader.threads import DaemonPool\n"
        "pool, begun = DaemonPool(1, 'pool'), threading.Event()\n"
        "pool.submit(lambda: (begun.set(), time.sleep(600)))\n"
        "pool.submit(print, 'begun at the end')\n"
        "begun.wait()\nprint('over')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "over\n", "")
