"""Whether a cache has room for the order of a pass: one that has not would be filled and emptied over and over."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

from fastloader.dataset.base import Node, Run
from fastloader.dataset.choosing import Shuffle
from fastloader.dataset.records import FromRecords
from fastloader.dataset.sources import FromReader
from fastloader.stores import ObjectPath
from fastloader.stores.cache import BLOCK, BlockCache

CURE = "give shuffle() a smaller buffer_size"


def check_room(node: Node, run: Run) -> None:
    """Refuse a pass that goes here and there through objects of which its cache can't hold what comes next.

    Passes of the native engine are left to it, and those from front to back need little.
    """
    for leaf, window in _shuffled(node, run, 0):
        found = _objects(leaf)
        if found is None:
            continue
        path, cache, sizes = found
        if window == inf:
            cache.check_room(path, sizes, None, "in random order all of it is", CURE)
        else:
            a_sample = sum(sizes) / max(1, leaf.length(run))
            cache.check_room(
                path, sizes, ceil(2 * window * a_sample) + 2 * BLOCK, f"{window:.0f} samples at a time are", CURE
            )


def _shuffled(node: Node, run: Run, window: float) -> Iterator[tuple[FromRecords | FromReader, float]]:
    """The samples that come in another order than they lie in, and among how many neighbours they are mixed."""
    if run.engine.is_native(node, run):
        return
    if isinstance(node, Shuffle):
        window = max(window, inf if node.window is None else node.window)
    if isinstance(node, FromRecords | FromReader) and window:
        yield node, window
    for part in node.parts():
        yield from _shuffled(part, run, window)


def _objects(leaf: FromRecords | FromReader) -> tuple[object, BlockCache, list[int]] | None:
    """What errors call them, the cache they are read through, and their sizes; nothing where there is no cache."""
    if isinstance(leaf, FromReader):
        dataset = leaf.reader.dataset
        if not isinstance(dataset.path, ObjectPath) or dataset.path.cache is None:
            return None
        return dataset.path, dataset.path.cache, [one.size for one in dataset.objects]
    cache = leaf.records.files.cache
    return None if cache is None else (leaf.records.paths[0], cache, leaf.records.shared_bytes())
