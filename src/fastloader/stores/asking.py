"""Ranges whose first attempt is made elsewhere than on the event loop: by connections of our own, or by threads.

Small ranges that go through obstore are asked for by threads, each of which waits for one answer. Such a thread takes
the processor two thirds of the time that an event loop takes for the same, and that time is most of what a small range
costs. A first attempt that failed is repeated by the event loop, and one that takes longer than others is made there a
second time: the first good answer counts.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from queue import SimpleQueue
from typing import Any

from fastloader.stores import client
from fastloader.stores.retrying import Pace, RetryPolicy

MOST = 128
"""Threads at most."""
PERIOD = 0.05
_PATIENCE = 1.0
"""Seconds that the end of the program waits for answers which are still on their way."""

Told = Callable[[Any, BaseException | None], None]


class Asked:
    """One range on its way. ``done`` is told once, by whichever attempt is the first to have it, or the last to fail.

    ``attempt`` waits for an answer; without one, ``came`` or ``failed`` is called by whoever has it, and ``call_off``
    is called where it is not needed any more, told whether it took too long. ``again`` makes a coroutine that asks
    until it has an answer, or it is no use: given why the attempt failed, unless it is still under way, and until when
    it may go on. What it raises is told.
    """

    def __init__(
        self,
        size: int,
        attempt: Callable[[], Any] | None,
        again: Callable[[BaseException | None, float], Coroutine[Any, Any, Any]],
        policy: RetryPolicy,
        pace: Pace,
        done: Told,
    ) -> None:
        self._size, self._policy, self._pace = size, policy, pace
        self._attempt, self._again, self._done = attempt, again, done
        self._lock = threading.Lock()
        self._under_way = 1
        self._first_is_over = self._told = self._hedged = False
        self.began = time.monotonic()
        self.call_off: Callable[[bool], None] | None = None

    def run(self) -> None:
        """The first attempt."""
        assert self._attempt is not None
        try:
            found = self._attempt()
        except BaseException as error:  # a panic of obstore is none of the others
            self.failed(error)
        else:
            self.came(found)

    def came(self, found: Any) -> None:
        """The first attempt brought it."""
        self.call_off = None
        self._pace.took(self._size, time.monotonic() - self.began)
        self._tell(found, None)

    def look(self, now: float) -> bool:
        """Whether it is still waited for; if for too long already, something is done about it."""
        age = now - self.began
        longest = min(self._policy.attempt_timeout, self._policy.deadline)
        patience = self._policy.hedge_after or self._pace.hedge_after(self._size)
        if age >= longest:
            self._drop(late=True)
            self.failed(TimeoutError(f"no answer within {longest:.3g} s"))
        elif patience is not None and age > patience and not self.is_over and not self._hedged and self._may_hedge():
            self._hedged = True
            with self._lock:
                self._under_way += 1
            self._repeat(None)
        return not self._told

    @property
    def is_over(self) -> bool:
        """Whether the first attempt is: what it asked for is repeated as often as is allowed."""
        return self._told or self._first_is_over

    def _may_hedge(self) -> bool:
        return not self._told and (self._policy.hedge_after is not None or self._pace.may_hedge())

    def _drop(self, *, late: bool) -> None:
        call_off, self.call_off = self.call_off, None
        if call_off is not None:
            call_off(late)

    def failed(self, error: BaseException) -> None:
        """The first attempt did not bring it."""
        with self._lock:
            if self._told or self._first_is_over:
                return
            self._first_is_over = True
            if self._under_way > 1:
                self._under_way -= 1
                return
        self._repeat(error)

    def _repeat(self, failure: BaseException | None) -> None:
        async def later() -> None:
            try:
                found = await self._again(failure, self.began + self._policy.deadline)
            except BaseException as error:
                with self._lock:
                    self._under_way -= 1
                    alone = not self._under_way
                if alone:
                    self._tell(None, error)
            else:
                self._tell(found, None)

        loop = client.event_loop()
        loop.call_soon_threadsafe(lambda: client.keep(loop.create_task(later())))

    def _tell(self, found: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._told:
                return
            self._told = True
        self._drop(late=False)
        self._done(found, error)


class Askers:
    """The threads, as many as there is work for, and a look now and then at what is on its way.

    They are started by another one: whoever starts a thread waits until it runs, which with many takes long.
    """

    def __init__(self) -> None:
        self._loop = client.event_loop()  # it ends behind the threads, which may want it
        self._queue: SimpleQueue[Asked | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._hirer: threading.Thread | None = None
        self._hired: SimpleQueue[threading.Thread | None] = SimpleQueue()
        self._idle = 0
        self._open: set[Asked] = set()
        self._looking = self._ending = False
        atexit.register(self._end, os.getpid())

    def ask(self, asked: Asked) -> None:
        """Have a thread ask."""
        hirer = None
        if not self.watch(asked):
            return  # and nobody waits for it any more
        with self._lock:
            self._idle -= 1
            if self._idle < 0 and len(self._threads) < MOST:
                self._threads.append(threading.Thread(target=self._run, name="fastloader-asker", daemon=True))
                self._hired.put(self._threads[-1])
                self._idle += 1
            if self._hirer is None:
                hirer = self._hirer = threading.Thread(target=self._hire, name="fastloader-hirer", daemon=True)
        if hirer is not None:
            hirer.start()
        self._queue.put(asked)

    def watch(self, asked: Asked) -> bool:
        """Look at it now and then for as long as it is under way; not at the end of the program."""
        with self._lock:
            if self._ending:
                return False
            self._open.add(asked)
            begin = not self._looking
            self._looking = True
        if begin:
            self._loop.call_soon_threadsafe(self._look)
        return True

    def _hire(self) -> None:
        while (thread := self._hired.get()) is not None:
            try:
                thread.start()
            except RuntimeError:  # no more are to be had: there is more for the others, or the event loop, to do
                with self._lock:
                    self._threads.remove(thread)
                    self._idle -= 1

    def _run(self) -> None:
        while (asked := self._queue.get()) is not None:
            try:
                asked.run()
            except BaseException:  # of whoever was told; others are waiting
                sys.excepthook(*sys.exc_info())
            with self._lock:
                self._open.discard(asked)
                self._idle += 1
            del asked

    def _look(self) -> None:
        with self._lock:
            open_ones = list(self._open)
        now = time.monotonic()
        over = [asked for asked in open_ones if not asked.look(now)]
        with self._lock:
            self._open.difference_update(over)
            self._looking = bool(self._open)
        if self._looking:
            self._loop.call_later(PERIOD, self._look)

    def _end(self, process: int) -> None:
        if process != os.getpid():
            return
        end = time.monotonic() + _PATIENCE
        with self._lock:
            self._ending = True
        self._hired.put(None)
        self._join([] if self._hirer is None else [self._hirer], end)
        for _ in self._threads:
            self._queue.put(None)
        self._join(self._threads, end)

    def _join(self, threads: Sequence[threading.Thread], end: float) -> None:
        for thread in threads:
            if thread.ident is not None:  # another thread may just be about to start it
                thread.join(max(0.0, end - time.monotonic()))


_askers: Askers | None = None
_making = threading.Lock()


def _after_fork() -> None:
    global _askers, _making
    _askers, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def askers() -> Askers:
    """Those of this process."""
    global _askers
    if _askers is None:
        with _making:
            if _askers is None:
                _askers = Askers()
    return _askers
