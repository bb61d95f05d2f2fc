"""What is kept of an epoch: made once, by one thread, and never waited for in a forked child."""

import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

from fastloader.samplers.cache import EpochCache


def test_it_is_made_once_and_kept_for_two_epochs():
    made = []
    cache = EpochCache()

    def make(epoch):
        made.append(epoch)
        return epoch * 10

    assert [cache.get(epoch, make) for epoch in (0, 0, 1, 0, 1, 2, 1, 2)] == [0, 0, 10, 0, 10, 20, 10, 20]
    assert made == [0, 1, 2]
    assert cache.get(0, make) == 0
    assert made == [0, 1, 2, 0]


def test_many_threads_make_it_once():
    barrier, made = Barrier(8), []
    cache = EpochCache()

    def make(epoch):
        made.append(epoch)
        return object()

    def ask(_):
        barrier.wait()
        return cache.get(7, make)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1
    assert made == [7]


def test_a_child_forked_while_it_is_being_made_makes_its_own():
    cache, started, finish = EpochCache(), Event(), Event()

    def slow(epoch):
        started.set()
        finish.wait()
        return "parent"

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.get, 0, slow)
        started.wait()
        try:
            child = os.fork()
            if child == 0:
                signal.alarm(120)  # if it waits after all, it ends
                os._exit(cache.get(0, lambda _: 42))
            _, status = os.waitpid(child, 0)
        finally:
            finish.set()
        assert os.waitstatus_to_exitcode(status) == 42
        assert waiting.result() == "parent"


def test_a_pickle_of_it_is_empty():
    cache = EpochCache()
    cache.get(0, lambda _: "here")
    assert pickle.loads(pickle.dumps(cache)).get(0, lambda _: "there") == "there"


def test_what_is_held_is_not_made_again():
    made = []
    cache = EpochCache()

    def make(epoch):
        made.append(epoch)
        return object()

    held = cache.hold(0, make)
    for epoch in range(1, 6):
        cache.get(epoch, make)
        assert cache.get(0, make) is held.made
    assert made == [0, 1, 2, 3, 4, 5]
    del held
    cache.get(0, make)
    assert made == [0, 1, 2, 3, 4, 5, 0]
