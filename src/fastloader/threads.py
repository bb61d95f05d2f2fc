"""Threads for functions of the user's: the end of the program does not wait for one that is stuck."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

GRACE = 1.0
"""Seconds that calls under way have to return when the interpreter ends."""


class _Work:
    """What threads share with their pool. They do not know the pool, which may be dropped."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self.changed = threading.Condition()
        self.threads: list[threading.Thread] = []
        self.idle = 0
        self.closed = False

    def take(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """The next call to make, as soon as there is one; ``None`` when there will be no more."""
        with self.changed:
            self.idle += 1
            while not self.waiting and not self.closed:
                self.changed.wait()
            self.idle -= 1
            return self.waiting.popleft() if self.waiting else None

    def close(self, cancel: bool) -> None:
        """Threads end behind the last call, or with ``cancel`` behind the one each makes."""
        with self.changed:
            self.closed = True
            dropped = list(self.waiting) if cancel else []
            if cancel:
                self.waiting.clear()
            self.changed.notify_all()
        for future, _ in dropped:
            future.cancel()


def _serve(work: _Work) -> None:
    while (task := work.take()) is not None:
        future, call = task
        if future.set_running_or_notify_cancel():
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
        del task, future, call  # while the next one is waited for, nothing of this one is held


_known: weakref.WeakSet[_Work] = weakref.WeakSet()


class DaemonPool:
    """At most so many threads, begun when needed, that make calls in the order they are submitted.

    It is used as a ``ThreadPoolExecutor`` is. But that one's threads are joined when the interpreter ends, and a call
    that is stuck then keeps the process for good; these are given ``GRACE`` and left behind.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._most = threads
        self._name = name
        self._work = _Work()
        _known.add(self._work)

    def submit(self, call: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """Have a call made by the next thread that is free."""
        future: Future[T] = Future()
        work = self._work
        with work.changed:
            if work.closed:
                raise RuntimeError(f"{self._name}: no calls can be submitted after shutdown")
            work.waiting.append((future, lambda: call(*arguments)))
            if len(work.waiting) > work.idle and len(work.threads) < self._most:
                name = f"{self._name}_{len(work.threads)}"
                thread = threading.Thread(target=_serve, args=(work,), name=name, daemon=True)
                thread.start()
                work.threads.append(thread)
            work.changed.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with ``cancel_futures`` make none that was not begun. ``wait`` joins the threads."""
        work = self._work
        if work.process != os.getpid():  # the threads are the parent's
            return
        work.close(cancel_futures)
        for thread in work.threads if wait else ():
            if thread is not threading.current_thread():
                thread.join()

    def __enter__(self) -> DaemonPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __del__(self) -> None:
        # When the interpreter ends, modules may be gone before this is.
        try:  # noqa: SIM105
            self.shutdown(wait=False)
        except Exception:
            pass


@atexit.register
def end_calls() -> None:
    """Begin no more calls in any pool, and wait a moment for those under way.

    A thread should not run on while the interpreter is taken apart, if it can be helped.
    """
    mine = [work for work in list(_known) if work.process == os.getpid()]
    for work in mine:
        work.close(cancel=True)
    until = time.monotonic() + GRACE
    for work in mine:
        for thread in work.threads:
            thread.join(timeout=max(0.0, until - time.monotonic()))
