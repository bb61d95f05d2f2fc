"""Shards made by the workers of a Ray cluster: handed out, watched, and handed out again when a worker dies."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import exceptions

from fastloader.dataset.shards import shard_at
from fastloader.errors import FastLoaderError, NotFoundError, StoreError
from fastloader.formats.fld import Shard
from fastloader.progress import Advance
from fastloader.ray.library import ray
from fastloader.ray.places import Place
from fastloader.stores.local import AtomicFile

TRIES = 5
"""How often a shard is begun whose worker dies each time."""
PATIENCE = 10.0
"""Seconds for tasks that are cancelled to clean up."""
WAIT = 0.5
"""Seconds between two words of a worker about how far it is."""
OBJECT_STORE = 256 << 20
"""Memory for objects of a cluster that is started here: all that travels are plans, and pieces of shards."""

LOST = (
    exceptions.WorkerCrashedError, exceptions.NodeDiedError, exceptions.ObjectLostError, exceptions.OutOfMemoryError,
    exceptions.LocalRayletDiedError, exceptions.RaySystemError, exceptions.TaskUnschedulableError,
)  # fmt: skip
"""What is raised when it is the worker that is gone, and not the work that is wrong."""


@dataclass(frozen=True)
class Made:
    """A shard that is where it should be, or has come in pieces; ``facts`` are what its maker says of it."""

    shard: Shard
    facts: Any


@dataclass(frozen=True)
class Failed:
    """What was raised by the work."""

    error: Exception


Event = int | bytes | Made | Failed
"""What a worker tells: how many more are done, a piece of the shard, or its end."""
Make = Callable[[Path, Advance], Any]


@contextlib.contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """A cluster: the one there is in this process; that at ``address`` or RAY_ADDRESS; else one on this machine."""
    if ray.is_initialized():
        yield
        return
    where = address or os.environ.get("RAY_ADDRESS", "")
    if where.startswith("ray://"):
        raise ValueError(f"{where}: is for Ray Client; run this on a machine of the cluster, and give host:port")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not where:
        options |= {"address": "local", "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    else:
        options["address"] = where
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise StoreError(
            f"there is no Ray cluster: {error}", path=address, hint='start one with "ray start --head"'
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def delivered(place: Place, name: str, make: Make) -> Iterator[Event]:
    """Have a shard made and brought to its place: runs on a worker."""
    try:
        with place.workshop() as folder:
            path = folder / name
            facts = yield from _watched(make, path)
            shard = shard_at(path, name)
            yield from place.bring(path)
        yield Made(shard, facts)
    except Exception as error:
        if isinstance(error, NotFoundError) or getattr(error, "errno", None) == 2:
            where = f"it was looked for on {socket.gethostname()}: what is read must be on a disk that all share"
            error = StoreError(str(error), hint=f"{where}, or in a store")
        yield Failed(error)


def _watched(make: Make, path: Path) -> Generator[int, None, Any]:
    """Run ``make`` and yield, now and then, how many more it has done; what it gives is returned."""
    told: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    ending = threading.Event()
    made: list[Any] = []
    failed: list[BaseException] = []

    def advance(count: int) -> None:
        if ending.is_set():
            raise _Unwanted
        told.put(count)

    def run() -> None:
        try:
            made.append(make(path, advance))
        except BaseException as error:
            failed.append(error)
        told.put(None)

    thread = threading.Thread(target=run, name="fastloader-shard")
    thread.start()
    try:
        waiting, last = 0, time.monotonic()
        while True:
            count: int | None = 0
            with contextlib.suppress(queue.Empty):
                count = told.get(timeout=WAIT)
            if count is None:
                break
            waiting += count
            if waiting and time.monotonic() - last >= WAIT:
                yield waiting
                waiting, last = 0, time.monotonic()
        if waiting:
            yield waiting
    finally:
        ending.set()
        thread.join()
    if failed:
        raise failed[0]
    return made[0]


class _Unwanted(Exception):
    """Nobody waits for this shard any more."""


@dataclass
class _Running:
    """A shard on a worker: how often it was begun, and what has come of it."""

    number: int
    name: str
    arguments: tuple[Any, ...]
    tries: int = 0
    counted: int = 0
    file: AtomicFile | None = None
    size: int = 0
    stream: Any = field(default=None, repr=False)

    def forget(self) -> int:
        """Drop what has come of it; how much was counted."""
        if self.file is not None:
            self.file.discard()
        counted, self.counted, self.file, self.size = self.counted, 0, None, 0
        return counted


Job = tuple[int, str, tuple[Any, ...]]
"""Number and file name of a shard, and what its task is called with besides its place and that name."""


def carried_out(
    task: Callable[..., Iterator[Event]],
    jobs: Iterable[Job],
    place: Place,
    advance: Advance,
    at_once: int | None = None,
) -> Iterator[tuple[int, Made]]:
    """Have shards made, ``at_once`` of them at a time; they come by number, in the order in which they are done.

    ``task`` is called on a worker with the place, the name and the arguments of a job, and yields what ``delivered``
    does. A shard whose worker dies is given to another, from its beginning.
    """
    remote = ray.remote(task).options(
        num_returns="streaming", max_retries=0, num_cpus=1, scheduling_strategy="SPREAD",
        _generator_backpressure_num_objects=8,
    )  # fmt: skip
    coming = iter(jobs)
    running: dict[Any, _Running] = {}
    most = at_once or int(ray.cluster_resources().get("CPU", 1)) + 1  # one waits, so that nobody does

    def begin(one: _Running) -> None:
        one.tries += 1
        one.stream = remote.remote(place, one.name, *one.arguments)
        running[one.stream] = one

    try:
        while True:
            while len(running) < most and (job := next(coming, None)) is not None:
                begin(_Running(*job))
            if not running:
                return
            ready, _ = ray.wait(list(running), num_returns=1, fetch_local=False)
            one = running[ready[0]]
            try:
                event: Event = ray.get(next(one.stream))
            except (*LOST, StopIteration) as error:
                del running[ready[0]]
                advance(-one.forget())
                if one.tries == TRIES:
                    raise StoreError(
                        f"shard {one.number} was begun {TRIES} times, and each time its worker was lost: {error}",
                        hint="look into the logs of Ray; workers may lack memory",
                    ) from error
                begin(one)
                continue
            except exceptions.RayError as error:
                raise StoreError(f"shard {one.number} failed on its worker: {error}") from error
            if isinstance(event, Made):
                del running[ready[0]]
                _arrived(one, place, event.shard)
                yield one.number, event
            else:
                _heard(one, place, event, advance)
    finally:
        _end(running)


def _end(running: dict[Any, _Running]) -> None:
    """Have tasks that nobody waits for any more end, and what they were making be gone."""
    for stream, one in running.items():
        with contextlib.suppress(exceptions.RayError):
            ray.cancel(stream)
        one.forget()
    until = time.monotonic() + PATIENCE
    for stream in running:
        with contextlib.suppress(exceptions.RayError, StopIteration):
            while ray.wait([stream], timeout=max(0.0, until - time.monotonic()), fetch_local=False)[0]:
                ray.get(next(stream))


def _heard(one: _Running, place: Place, event: Event, advance: Advance) -> None:
    if isinstance(event, Failed):
        raise event.error
    if isinstance(event, int):
        one.counted += event
        advance(event)
    elif isinstance(event, bytes):
        assert isinstance(place.folder, Path)
        one.file = one.file or AtomicFile(place.folder / one.name)
        one.file.write_at(one.size, event)
        one.size += len(event)


def _arrived(one: _Running, place: Place, shard: Shard) -> None:
    """Have a shard that came in pieces where it should be."""
    if one.file is None:
        return
    assert isinstance(place.folder, Path)
    one.file.publish(one.size)
    one.file = None
    if shard_at(place.folder / one.name, one.name) != shard:
        raise FastLoaderError(
            f"shard {one.number} came otherwise than its worker sent it", path=place.folder / one.name
        )
