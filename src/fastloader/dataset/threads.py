"""Threads of a pass: calls made in several of them and taken back in order, and a pass run ahead in one."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal

from fastloader.dataset.base import Cursor, Over, Parallel, Place, Run, Skipped
from fastloader.threads import GRACE, DaemonPool, end_calls

AUTO_AHEAD = (2, 16)
"""Elements made ahead by "auto": at first, and at most."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


class Fixed:
    """As many calls at once as were asked for; 0: in the caller's thread."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.flying = 2 * calls

    def given(self, waited: float) -> None:
        """An element was given after this many seconds of waiting."""


class Tuned:
    """How many calls at once serve best: doubled while that makes elements come faster, taken back where it did not.

    It begins with none, in the caller's thread: cheap functions, and those that hold the GIL, are fastest there.
    """

    PROBE = 16
    REST = 64
    GAIN = 1.15

    def __init__(self, most: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.most = most
        self.calls = 0
        self._clock = clock
        self._best = (0.0, 0)
        self._resting = 0
        self._began = 0.0
        self._begin()

    @property
    def flying(self) -> int:
        """Elements being made at once."""
        return self.calls

    def _begin(self) -> None:
        self._count = 0
        self._waited = 0.0

    def given(self, waited: float) -> None:
        """An element was given after this many seconds of waiting."""
        if not self._count:
            self._began = self._clock() - waited  # what came before the first was asked for is no work of ours
        self._count += 1
        self._waited += waited
        if self._count < max(self.PROBE, 2 * self.calls):
            return
        elapsed = max(self._clock() - self._began, 1e-9)
        rate = self._count / elapsed
        if self._resting:
            self._resting -= 1
            if not self._resting:
                self._best = (rate, self.calls)
                self._more()
        elif self._waited < elapsed / 20:  # the consumer hardly waits: more would not be noticed
            self._resting = self.REST
        elif rate > self._best[0] * self.GAIN:
            self._best = (rate, self.calls)
            self._more()
        else:
            self.calls = self._best[1]
            self._resting = self.REST
        self._begin()

    def _more(self) -> None:
        self.calls = min(max(2, 2 * self.calls), self.most)
        if self.calls == self._best[1]:
            self._resting = self.REST


def width_of(calls: Parallel, threads: int | None) -> Fixed | Tuned:
    """How many calls run at once; ``threads`` bounds "auto"."""
    if calls == "auto":
        return Tuned(threads or cores())
    return Fixed(calls or 0)


class InOrder:
    """Calls of one function in threads, their results in the order of the arguments.

    ``pull`` gives the next argument and the place behind its element; it runs in the consumer's thread.
    """

    def __init__(self, pull: Callable[[], tuple[Any, Place]], call: Callable[[Any], Any], width: Fixed | Tuned) -> None:
        self._pull = pull
        self._call = call
        self._width = width
        self._flying: deque[tuple[Future[Any], Place]] = deque()
        self._pool: DaemonPool | None = None
        self._end: Exception | None = None
        self._process = os.getpid()

    def next(self) -> tuple[Any, Place]:
        """The next result and its place."""
        began = time.perf_counter()
        if not self._width.calls and not self._flying:
            if self._end is not None:
                raise self._end
            argument, place = self._pull()
            result = self._call(argument)
        else:
            self._fill()
            if not self._flying:
                assert self._end is not None
                raise self._end
            future, place = self._flying.popleft()
            result = future.result()
        self._width.given(time.perf_counter() - began)
        return result, place

    def next_good(self, run: Run) -> tuple[Any, Place]:
        """The next that is not left out; those that are get counted."""
        while True:
            try:
                return self.next()
            except Skipped as skipped:
                run.stats.skip(skipped.error)

    def _fill(self) -> None:
        """Keep the threads busy. What went wrong on the way comes behind the elements before it."""
        if self._pool is None:
            most = self._width.most if isinstance(self._width, Tuned) else self._width.calls
            self._pool = DaemonPool(most, "fastloader-dataset")
        while self._end is None and len(self._flying) < self._width.flying:
            try:
                argument, place = self._pull()
            except Exception as error:
                self._end = StopIteration() if isinstance(error, StopIteration) else error
            else:
                self._flying.append((self._pool.submit(self._call, argument), place))

    def close(self, wait: bool = True) -> None:
        """End the threads; what is under way is finished but not waited for unless ``wait``."""
        pool, self._pool = self._pool, None
        self._end = self._end or StopIteration()
        if pool is not None and self._process == os.getpid():
            self._flying.clear()
            pool.shutdown(wait=wait, cancel_futures=True)


class _Box:
    """What a thread that works ahead shares with its consumer. It does not know the consumer, which may be dropped."""

    def __init__(self, depth: int, most: int) -> None:
        self.depth = depth
        self.most = most
        self.items: deque[tuple[Any, Place, BaseException | None]] = deque()
        self.changed = threading.Condition()
        self.stopped = False


def _produce(up: Cursor, box: _Box) -> None:
    try:
        while True:
            with box.changed:
                while len(box.items) >= box.depth and not box.stopped:
                    box.changed.wait()
                if box.stopped:
                    return
            item: tuple[Any, Place, BaseException | None]
            try:
                item = (next(up), up.place, None)
            except BaseException as error:
                item = (None, None, error)
            with box.changed:
                box.items.append(item)
                box.changed.notify_all()
            if item[2] is not None:
                return
            del item  # while the next one is made, only the consumer decides how long this one lives
    finally:
        up.close()


_running: weakref.WeakSet[Ahead] = weakref.WeakSet()


class Ahead(Over):
    """A pass run ahead in a thread of its own, by ``depth`` elements at most."""

    def __init__(self, up: Cursor, depth: int | Literal["auto"]) -> None:
        super().__init__(up)
        self.place = up.place
        self._box = _Box(*(AUTO_AHEAD if depth == "auto" else (depth, depth)))
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def __next__(self) -> Any:
        box = self._box
        if self._thread is None:
            if box.stopped:
                raise StopIteration
            self._thread = threading.Thread(target=_produce, args=(self.up, box), name="fastloader-ahead", daemon=True)
            self._thread.start()
            _running.add(self)
        with box.changed:
            if not box.items and box.stopped:
                raise StopIteration
            if not box.items and self.place is not None and box.depth < box.most:
                box.depth *= 2
                box.changed.notify_all()
            while not box.items:
                box.changed.wait()
            value, place, error = box.items.popleft()
            box.changed.notify_all()
            if error is not None:
                box.stopped = True
        if error is not None:
            raise StopIteration if isinstance(error, StopIteration) else error
        self.place = place
        return value

    def close(self, wait: bool = True) -> None:
        """Ask the thread to end, which it does behind the element it is making."""
        if self._process != os.getpid():  # the thread is the parent's
            return
        if self._thread is None:
            self._box.stopped = True
            self.up.close(wait)
            return
        with self._box.changed:
            self._box.stopped = True
            self._box.items.clear()
            self._box.changed.notify_all()
        if wait and self._thread is not threading.current_thread():
            self._thread.join()


@atexit.register
def _end_all() -> None:
    """A thread must not run on while the interpreter is taken apart."""
    end_calls()  # one that a pass waits for would keep it
    ahead = list(_running)
    for one in ahead:
        one.close(wait=False)
    for one in ahead:
        if one._thread is not None:
            one._thread.join(timeout=GRACE)
