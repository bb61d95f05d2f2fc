"""Objects copied from one store to another, many at a time."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from fastloader.errors import NotFoundError
from fastloader.stores.base import Stat, Store, full_url

PIECE = 8 << 20

Advance = Callable[[int], None]


def copy_object(source: Store, found: Stat, target: Store, key: str, advance: Advance = lambda size: None) -> None:
    """Copy an object, in pieces, checked to be one and the same all along. It appears when all of it is there."""
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
    for found in store.list(folder):
        name = posixpath.relpath(found.key, folder) if folder else found.key
        if name != ".":
            yield found, name


def copy_folder(
    source: Store, folder: str, target: Store, to: str, jobs: int, advance: Advance = lambda size: None,
    found: Sequence[tuple[Stat, str]] | None = None,
) -> int:  # fmt: skip
    """Copy all objects of a folder, ``jobs`` at a time; returns how many. The first failure ends it."""
    objects = list(below(source, folder)) if found is None else found
    if not objects:
        raise NotFoundError("there is no such folder, or nothing in it", path=full_url(source.url, folder))
    with ThreadPoolExecutor(jobs, "fastloader-copy") as pool:
        copies = [
            pool.submit(copy_object, source, one, target, posixpath.join(to, name), advance) for one, name in objects
        ]
        done, waiting = wait(copies, return_when=FIRST_EXCEPTION)
        for copy in waiting:
            copy.cancel()
        for copy in done:
            copy.result()
    return len(objects)
