"""What is left in this process: threads and open files, but for those that stay by design.

Tests share a process with whichever others ran before. So a test looks for what is new, not for how much there is. And
it waits: a thread has no name at first, and the system lists it for a moment after it was joined.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

STAY = frozenset({"fastloader-asker", "fastloader-hirer", "fastloader-names", "fastloader-net", "fastloader-stores"})
"""Threads that talk to stores wait for the next request, and may still be on their way when a test is over."""
STAY_NATIVE = ("tokio-rt-worker", "fastloader-net")
"""The same, of the client."""
PATIENCE = 60.0
"""Seconds that a busy machine may take to end a thread."""


def python_threads(prefix: str = "") -> set[threading.Thread]:
    """Threads of Python whose names begin so."""
    return {thread for thread in threading.enumerate() if thread.name.startswith(prefix) and thread.name not in STAY}


def threads(name: str | None = None) -> set[str]:
    """All threads, Python's and others, by the system's numbers; or those that the system knows by this name."""
    staying = {str(thread.native_id) for thread in threading.enumerate() if thread.name in STAY}
    found = set()
    for path in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended just now
            known = (path / "comm").read_text().strip()
            if path.name not in staying and known not in STAY_NATIVE and name in (None, known):
                found.add(path.name)
    return found


def files() -> set[tuple[str, str]]:
    """Open files by their numbers, and what they lead to. Connections are the stores', which keep and close them."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of this very list
            leads_to = os.readlink(f"/proc/self/fd/{number}")
            if not leads_to.startswith("socket:"):
                found.add((number, leads_to))
    return found


def until(there: Callable[[], object]) -> None:
    """Wait for it; a test that waits in vain fails."""
    end = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < end, f"waited in vain for {PATIENCE:.0f} s"
        time.sleep(0.005)


def left(look: Callable[[], set[T]], before: set[T] | frozenset[T] = frozenset()) -> set[T]:
    """What is there now and was not before, once it is gone or time is up."""
    end = time.monotonic() + PATIENCE
    while (new := look() - before) and time.monotonic() < end:
        time.sleep(0.005)
    return new
