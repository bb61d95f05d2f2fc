"""Work in a forked child."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable


def forked(work: Callable[[], bool]) -> bool:
    """Whether a forked child's work gives true. One that fails, or waits for ever, does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads in the parent
        child = os.fork()
    if child == 0:
        signal.alarm(200)
        status = 1
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
