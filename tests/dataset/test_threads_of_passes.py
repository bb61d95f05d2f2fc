"""Parallel calls and work ahead: the order, errors, bounds, and that no thread stays behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading

import pytest
from expression_model import plain
from forking import forked
from left_behind import python_threads, until

import fastloader as fl
from fastloader.dataset import threads
from fastloader.dataset.threads import Tuned

NUMBERS = fl.Dataset.range(40)
STREAM = fl.Dataset.from_iterable(range(40))
BOTH = pytest.mark.parametrize("source", [NUMBERS, STREAM], ids=["map-style", "iterable"])
OTHERS = set()
"""Threads that were there before a test, whichever made them."""
LONG = 60
"""Seconds after which a test that waits is given up."""


def our_threads():
    return list(python_threads("fastloader-") - OTHERS)


def gone(threads):
    for thread in threads:
        thread.join(LONG)
    return not any(thread.is_alive() for thread in threads)


@pytest.fixture(autouse=True)
def nothing_left():
    OTHERS.clear()
    OTHERS.update(python_threads("fastloader-"))
    yield
    gc.collect()
    assert gone(our_threads())


def double(number):
    return 2 * number


@BOTH
@pytest.mark.parametrize("calls", [None, 1, 2, 7, "auto"])
def test_the_number_of_calls_at_once_changes_nothing(calls, source):
    chain = source.shuffle(7, seed=1).map(double, calls).map(str, calls).batch(3).prefetch(2)
    wanted = plain(list(source.shuffle(7, seed=1).map(double).map(str).batch(3)))
    assert plain(list(chain)) == wanted
    assert wanted != plain(list(source.map(double).map(str).batch(3)))


@BOTH
def test_as_many_calls_run_at_once_as_were_asked_for(source):
    meeting = threading.Barrier(3, timeout=LONG)

    def meet(number):
        meeting.wait()
        return number

    assert list(source.take(30).map(meet, 3)) == list(range(30))


@BOTH
def test_calls_run_ahead_of_the_consumer_but_not_far(source):
    begun = []
    iterator = iter(source.map(lambda number: begun.append(number) or number, 2))
    for given in range(10):
        assert next(iterator) == given
        assert len(begun) <= given + 1 + 2 * 2
    iterator.close()


@BOTH
def test_a_prefetch_is_bounded(source):
    begun, third = [], threading.Event()

    def note(number):
        begun.append(number)
        if len(begun) == 4:
            third.set()
        return number

    iterator = iter(source.map(note).prefetch(3))
    next(iterator)
    assert third.wait(LONG)  # one was given, three are ahead
    assert len(begun) <= 5
    iterator.close()
    assert len(begun) <= 5


@BOTH
def test_prefetch_runs_what_is_before_it_in_another_thread(source):
    here = threading.get_ident()
    assert here not in set(source.map(lambda _: threading.get_ident()).prefetch(1))
    assert set(source.map(lambda _: threading.get_ident())) == {here}


def fails_at(bad, error):
    def fail(number):
        if number == bad:
            raise error
        return number

    return fail


@BOTH
@pytest.mark.parametrize("calls", [None, 1, 4])
@pytest.mark.parametrize("error", [ValueError("no"), StopIteration(), KeyError("x")], ids=repr)
def test_an_error_comes_at_its_place_and_says_where(calls, error, source):
    for chain in (source.map(fails_at(7, error), calls), source.map(fails_at(7, error), calls).prefetch(3)):
        iterator = iter(chain)
        assert [next(iterator) for _ in range(7)] == list(range(7))
        with pytest.raises(fl.ElementError, match=r"map\(fail\), element 7: " + type(error).__name__) as info:
            next(iterator)
        assert (info.value.step, info.value.element, info.value.__cause__) == ("map(fail)", 7, error)
        assert isinstance(info.value, RuntimeError)
        with pytest.raises(fl.ElementError):
            next(iterator)  # it is not over: it can't go on


@BOTH
def test_an_error_names_the_element_after_resuming_too(source):
    chain = source.skip(3).map(fails_at(20, ValueError("no")), 2)
    iterator = iter(chain)
    for _ in range(11):
        next(iterator)
    with pytest.raises(fl.ElementError, match="element 17"):
        list(chain.iterate(state=iterator.state_dict()))
    iterator.close()


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (lambda d, f: d.filter(f, ahead=False), r"filter\(fail\), element 5"),
        (lambda d, f: d.filter(f), r"filter\(fail\), element 5"),
        (lambda d, f: d.flat_map(f), r"flat_map\(fail\), element 5"),
        (lambda d, f: d.interleave(f), r"interleave\(fail\), element 5"),
        (lambda d, f: d.batch(5, collate_fn=lambda e: f(e[0])), "batch, element 1"),
    ],
)
@BOTH
def test_every_step_with_a_function_says_where_it_failed(step, name, source):
    def fail(number):
        if number == 5:
            raise OSError("disk")
        return [number]

    with pytest.raises(fl.ElementError, match=name + ": OSError: disk"):
        list(step(source, fail))


def test_a_source_that_fails_says_where():
    def broken():
        yield from range(3)
        raise OSError("gone")

    chain = fl.Dataset.from_generator(broken).options(on_error="skip").map(double, 2).prefetch(2)
    iterator = iter(chain)
    assert [next(iterator) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(fl.ElementError, match="from_generator, element 3: OSError: gone"):
        next(iterator)
    with pytest.raises(fl.ElementError, match="from_sequence, element 1: ZeroDivisionError"):
        list(fl.Dataset.from_sequence(Failing()).batch(2))


class Failing:
    """A sequence whose second element can't be had."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return 1 // (index - 1)


@BOTH
@pytest.mark.parametrize("calls", [None, 3])
def test_bad_elements_can_be_skipped_and_are_counted(calls, source):
    def fail(number):
        if number % 10 == 3:
            raise ValueError(f"bad {number}")
        return number

    chain = source.map(fail, calls).options(on_error="skip")
    wanted = [n for n in range(40) if n % 10 != 3]
    iterator = iter(chain)
    found = []
    for count in range(len(wanted)):
        found.append(next(iterator))
        assert list(chain.iterate(state=iterator.state_dict())) == wanted[count + 1 :]
    assert found == wanted
    assert next(iterator, None) is None
    stats = iterator.stats()
    assert (stats["elements"], stats["skipped"]) == (36, 4)
    assert stats["bad"] == [f"map(fail), element {n}: ValueError: bad {n}" for n in (3, 13, 23, 33)]


def test_skipping_holds_for_what_stands_before_it_alone():
    chain = NUMBERS.map(fails_at(3, ValueError())).options(on_error="skip").map(fails_at(5, ValueError()))
    with pytest.raises(fl.ElementError, match="element 5"):
        list(chain)
    inner = NUMBERS.map(fails_at(3, ValueError())).options(on_error="raise").options(on_error="skip")
    with pytest.raises(fl.ElementError, match="element 3"):
        list(inner)


def test_skipped_elements_leave_a_zip_aligned():
    left = NUMBERS.map(fails_at(3, ValueError()))
    chain = left.zip(NUMBERS.map(double)).options(on_error="skip")
    assert list(chain) == [(n, 2 * n) for n in range(40) if n != 3]


def test_skipped_elements_at_the_end_of_a_stretch():
    chain = NUMBERS.map(fails_at(9, ValueError())).prefetch(2).take(10).repeat(2).options(on_error="skip")
    assert list(chain) == [*range(9), *range(9)]


def test_an_element_that_would_be_skipped_is_an_error_when_asked_for():
    with pytest.raises(fl.ElementError, match="element 3"):
        NUMBERS.map(fails_at(3, ValueError())).options(on_error="skip")[3]


@BOTH
def test_threads_end_when_an_iterator_is_dropped(source):
    iterators = [iter(source.map(double, 3).prefetch(2).map(double, 2)) for _ in range(5)]
    for iterator in iterators:
        next(iterator)
    threads = our_threads()
    assert len(threads) >= 5
    gc.disable()  # it must not need the collector
    try:
        del iterator, iterators
        assert gone(threads)
    finally:
        gc.enable()


@BOTH
def test_threads_end_with_the_pass_and_with_close(source):
    chain = source.map(double, 3).prefetch(2)
    list(chain)
    assert our_threads() == []
    with iter(chain) as iterator:
        next(iterator)
        assert our_threads()
    assert our_threads() == []
    assert list(iterator) == []
    nested = source.take(6).interleave(lambda n: source.take(3).prefetch(1), cycle_length=2).batch(2)
    with iter(nested) as iterator:
        next(iterator)
    assert our_threads() == []


@pytest.mark.parametrize("ahead", [False, True])
@BOTH
def test_ctrl_c_while_a_function_is_stuck(ahead, source):
    release, first = threading.Event(), []

    def stuck(number):
        if number == 5 and not first:
            first.append(number)
            # Between two elements the signal would be the consumer's own, and the threads would wait for the next one.
            until(lambda: sys._current_frames()[main].f_code is threading.Condition.wait.__code__)
            os.kill(os.getpid(), signal.SIGINT)
            release.wait(LONG)
        return number

    main = threading.get_ident()
    chain = source.map(stuck, 2)
    iterator = iter(chain.prefetch(2) if ahead else chain)
    found = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(iterator)
    state = iterator.state_dict()
    threads = our_threads()
    assert not release.is_set()
    release.set()
    assert gone(threads)
    assert found == list(range(len(found)))
    assert list(chain.iterate(state=state)) == list(range(len(found), 40))
    assert list(iterator) == list(range(len(found), 40))


@pytest.mark.parametrize(
    "steps", ["map(stuck, 2)", "map(stuck, 2).prefetch(2)", "map(stuck, 2).prefetch(1).map(str, 2).prefetch(2)",
              "map(stuck).prefetch(2)", "map(stuck, 2).filter(bool)"],
)  # fmt: skip
def test_after_ctrl_c_no_call_is_begun_and_the_program_ends(steps):
    """Though one is stuck for longer than the test would wait."""
    code = (
        "import os, signal, threading, time\nimport fastloader as fl\n"
        "interrupted, begun = threading.Event(), threading.Event()\n"
        "def stuck(number):\n"
        "    if interrupted.is_set():\n        os.write(1, b'begun afterwards')\n"
        "    begun.set()\n"
        "    interrupted.wait()\n"
        "    time.sleep(600 if number == 0 else 0)\n"
        "    return number\n"
        # Again if the interpreter lost it, as it does in a finalizer, and tells so.
        "def interrupt():\n    begun.wait()\n    while not interrupted.is_set():\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n        interrupted.wait(20)\n"
        "threading.Thread(target=interrupt).start()\n"
        f"iterator = iter(fl.Dataset.range(10).{steps})\n"
        "try:\n    next(iterator)\n"
        "except KeyboardInterrupt:\n    interrupted.set()\n    time.sleep(0.2)\n    print('interrupted')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=2 * LONG)
    assert (ran.returncode, ran.stdout) == (0, "interrupted\n")
    assert not ran.stderr or ran.stderr.startswith("Exception ignored in")


@BOTH
def test_a_forked_child_goes_on_where_the_parent_was(source):
    chain = source.shuffle(8, seed=2).map(double, 3).prefetch(2)
    wanted = list(chain)
    iterator = iter(chain)
    taken = [next(iterator) for _ in range(9)]
    assert forked(lambda: taken + list(iterator) == wanted)
    assert taken + list(iterator) == wanted


def test_auto_grows_while_that_helps_and_rests_then():
    now = [0.0]
    tuned = Tuned(8, clock=lambda: now[0])
    seen = []
    for _ in range(400):
        speed = min(max(tuned.calls, 1), 4)  # four calls at once are as good as it gets
        now[0] += 1 / speed
        tuned.given(1 / speed)
        seen.append(tuned.calls)
    assert seen[0] == 0
    assert max(seen) == 8
    assert seen[-1] == 4


def test_auto_stays_in_the_callers_thread_where_threads_do_not_help():
    now = [0.0]
    tuned = Tuned(8, clock=lambda: now[0])
    for _ in range(100):
        now[0] += 1.0
        tuned.given(1.0)
    assert tuned.calls == 0


def test_auto_leaves_a_busy_consumer_alone():
    now = [0.0]
    tuned = Tuned(8, clock=lambda: now[0])
    for _ in range(100):
        now[0] += 1.0
        tuned.given(0.001)
        assert tuned.calls == 0


def test_auto_tries_again_after_a_while_and_stays_within_its_bound():
    now, tuned = [0.0], None
    tuned = Tuned(3, clock=lambda: now[0])
    seen = set()
    for step in range(4000):
        speed = 1 if step < 500 else max(tuned.calls, 1)
        now[0] += 1 / speed
        tuned.given(1 / speed)
        seen.add(tuned.calls)
    assert seen == {0, 2, 3}
    assert tuned.calls == 3


def test_auto_does_not_count_the_time_before_the_first_element():
    now = [0.0]
    tuned = Tuned(8, clock=lambda: now[0])
    now[0] += 1000
    for _ in range(Tuned.PROBE):
        now[0] += 1.0
        tuned.given(1.0)
    assert tuned.calls == 2


@BOTH
def test_auto_tries_threads_and_options_bound_them(source, monkeypatch):
    idents = set()

    class Counted(Tuned):
        """With an element a second, on any machine."""

        def __init__(self, most):
            self._now = 0.0
            super().__init__(most, clock=lambda: self._now)

        def given(self, waited):
            self._now += 1.0
            super().given(1.0)

    monkeypatch.setattr(threads, "Tuned", Counted)

    def work(number):
        idents.add(threading.get_ident())
        return sum(range(5000)) * 0 + number

    chain = source.repeat(5).map(work, "auto").options(threads=2)
    assert list(chain) == list(range(40)) * 5
    assert 2 <= len(idents) <= 3  # at most two besides the caller's
