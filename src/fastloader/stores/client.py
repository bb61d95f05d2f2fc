"""The one door to obstore: its module, and a thread with an event loop, for this process.

obstore's own threads do not survive a fork, and neither they nor its global state can be made anew. So a forked child
loads the library a second time, from a copy in memory, and has one that was never used.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
import time
from typing import Any

from fastloader.errors import MissingExtraError

_NAME = "obstore._obstore"
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt
_FREE_MEMORY_KEPT, _FROM_THE_HEAP = 512 << 20, 32 << 20
_PATIENCE, _SETTLING = 5.0, 0.1

_module: Any = None
_loop: asyncio.AbstractEventLoop | None = None
_lock = threading.Lock()
_forked_after_use = False


def _after_fork() -> None:
    global _module, _loop, _lock, _forked_after_use
    _lock = threading.Lock()  # somebody may have held it
    _loop = None
    if _NAME in sys.modules:
        _module, _forked_after_use = None, True


os.register_at_fork(after_in_child=_after_fork)


def module() -> Any:
    """The compiled module of obstore, usable in this process."""
    global _module
    if _module is None:
        try:
            imported = importlib.import_module(_NAME)
        except ImportError as error:
            raise MissingExtraError("object stores need obstore, which is not installed", extra="cloud") from error
        with _lock:
            if _module is None:
                _module = _second_copy(imported.__file__) if _forked_after_use else imported
    return _module


def _second_copy(path: str | None) -> Any:
    """The library once more, from a file in memory: by another name, so the linker takes it for another one."""
    assert path is not None
    fd = os.memfd_create("obstore", os.MFD_CLOEXEC)
    with open(path, "rb") as source, os.fdopen(fd, "wb", closefd=False) as copy:
        copy.write(source.read())
    loader = importlib.machinery.ExtensionFileLoader(_NAME, f"/proc/self/fd/{fd}")
    spec = importlib.util.spec_from_loader(_NAME, loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    loader.exec_module(made)
    os.close(fd)
    return made


def _end(process: int, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Before the interpreter ends, all that still runs is called off.

    A thread of obstore that wants to tell Python something after that would end the process with an abort. There is no
    way to wait for these threads, but what they have left to do takes them no time once they are let.
    """
    if process != os.getpid():
        return

    async def call_off() -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    with contextlib.suppress(Exception):
        asyncio.run_coroutine_threadsafe(call_off(), loop).result(_PATIENCE)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_PATIENCE)
    time.sleep(_SETTLING)


def _keep_free_memory() -> None:
    """Have glibc hand out the memory of what was read to what is read next.

    It gives blocks of some megabytes back to the system as soon as they are free, and the system clears new ones: a
    tenth of the time that fetching takes. Whoever has chosen otherwise in the environment is left alone.
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    with contextlib.suppress(AttributeError, OSError):  # another libc
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, _FROM_THE_HEAP)
        libc.mallopt(_TRIM_THRESHOLD, _FREE_MEMORY_KEPT)


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, running in a thread of its own."""
    global _loop
    if _loop is None:
        with _lock:
            if _loop is None:
                _keep_free_memory()
                made = asyncio.new_event_loop()
                thread = threading.Thread(target=made.run_forever, name="fastloader-stores", daemon=True)
                thread.start()
                atexit.register(_end, os.getpid(), made, thread)
                _loop = made
    return _loop


_tasks: set[asyncio.Task[None]] = set()


def keep(task: asyncio.Task[None]) -> None:
    """The loop holds tasks weakly; somebody must hold them."""
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
