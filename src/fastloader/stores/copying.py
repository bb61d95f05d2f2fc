"""Objects copied from one store to another, many at a time."""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from fastloader.errors import NotFoundError
from fastloader.stores.base import Stat, Store, full_url
from fastloader.stores.plain import LocalStore

PIECE = 8 << 20

Advance = Callable[[int], None]


def copy_object(source: Store, found: Stat, target: Store, key: str, advance: Advance = lambda size: None) -> None:
    """Copy an object, in pieces, checked to be one and the same all along. It appears when all of it is there.

    ``advance`` is told of each piece, and ends the copy by raising.
    """
    upload = target.upload(key)
    try:
        for begin in range(0, found.size, PIECE):
            size = min(PIECE, found.size - begin)
            upload.write(source.read(found.key, begin, size, version=found.version))
            advance(size)
        upload.finish()
    except BaseException:
        upload.abort()
        raise


def below(store: Store, folder: str) -> Iterator[tuple[Stat, str]]:
    """The objects in a folder, each with its name there."""
    return _named(store.list(folder), folder)


def to_copy(store: Store, folder: str) -> list[tuple[Stat, str]]:
    """The same for who copies them: of local files, also those that links lead to."""
    return list(_named(store.followed(folder) if isinstance(store, LocalStore) else store.list(folder), folder))


def _named(objects: Iterator[Stat], folder: str) -> Iterator[tuple[Stat, str]]:
    for found in objects:
        name = posixpath.relpath(found.key, folder) if folder else found.key
        if name != ".":
            yield found, name


class _StoppedError(Exception):
    """Another copy failed, or the user has enough."""


def copy_folder(
    source: Store, folder: str, target: Store, to: str, jobs: int, advance: Advance = lambda size: None,
    found: Sequence[tuple[Stat, str]] | None = None,
) -> int:  # fmt: skip
    """Copy all objects of a folder, ``jobs`` at a time; returns how many. The first failure, or Ctrl-C, ends it."""
    objects = to_copy(source, folder) if found is None else found
    if not objects:
        raise NotFoundError("there is no such folder, or nothing in it", path=full_url(source.url, folder))
    stopped = threading.Event()

    def step(size: int) -> None:
        if stopped.is_set():
            raise _StoppedError
        advance(size)

    with ThreadPoolExecutor(jobs, "fastloader-copy") as pool:
        try:
            copies = [
                pool.submit(copy_object, source, one, target, posixpath.join(to, name), step) for one, name in objects
            ]
            done, _ = wait(copies, return_when=FIRST_EXCEPTION)
            for copy in done:
                copy.result()
        except BaseException:
            stopped.set()  # those under way end with their next piece, and all others do not begin
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return len(objects)
