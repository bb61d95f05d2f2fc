"""Where each record of a file begins, found once and kept in a cache folder, so that the next opening need not look.

The folder is ``$FASTLOADER_CACHE``, or ``fastloader`` in the user's cache folder. An index belongs to one identity of
its file: when that changes, it is made anew. Losing it costs time alone.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import StoreError
from fastloader.formats.objects import Object
from fastloader.kernels import crc32c, xxh64
from fastloader.stores import write_atomically

MAGIC = b"FLDINDX1"
_HEAD = struct.Struct("<8sQI4x")
WORTH_KEEPING = 1 << 20
"""Bytes of a file from which on its index is kept: a smaller one is gone through in no time."""

Ranges = NDArray[np.int64]
"""Rows of (offset, size), one a record."""


def cache_folder() -> Path:
    """Where indexes are kept."""
    given = os.environ.get("FASTLOADER_CACHE")
    if given:
        return Path(given) / "indexes"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastloader" / "indexes"


def index_of(source: Object, kind: str, build: Callable[[], Iterator[Ranges]]) -> Ranges:
    """The index of a file: the one that is kept, or what ``build`` finds."""
    found = kept_index(source, kind, lambda: _gathered(build()).tobytes(), lambda data: len(data) % 16 == 0)
    return np.frombuffer(found, np.int64).reshape(-1, 2)


def kept_index(
    source: Object, kind: str, build: Callable[[], bytes], fits: Callable[[memoryview], bool] = lambda data: True
) -> memoryview:
    """The bytes of an index that is kept of a file, or that ``build`` makes now; one that does not fit is made anew."""
    if source.size < WORTH_KEEPING:
        return memoryview(build())
    place = os.path.abspath(source.path) if "://" not in source.path else source.path
    owner = xxh64(f"{kind}\0{place}\0{source.identity}".encode())
    path = cache_folder() / f"{xxh64(f'{kind}{place}'.encode()):016x}.index"
    found = _load(path, owner)
    if found is None or not fits(found):
        data = build()
        found = memoryview(data)
        with contextlib.suppress(StoreError, OSError):  # a folder that can't be written costs the next one time
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, _HEAD.pack(MAGIC, owner, crc32c(data)) + data)
    return found


def _gathered(parts: Iterator[Ranges]) -> Ranges:
    return np.concatenate([np.zeros((0, 2), np.int64), *parts])


def _load(path: Path, owner: int) -> memoryview | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < _HEAD.size:
        return None
    magic, whose, stored = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if (magic, whose) != (MAGIC, owner) or crc32c(body) != stored:
        return None
    return body


MERGED = 64 << 10
"""Bytes between two ranges that are read rather than left out."""
MOST_AT_ONCE = 16 << 20


def read_ranges(source: Object, ranges: Ranges) -> list[memoryview]:
    """The bytes of each range, neighbours read together."""
    places: list[tuple[int, int]] = list(map(tuple, ranges.tolist()))
    order = sorted(range(len(places)), key=places.__getitem__)
    found: list[memoryview] = [memoryview(b"")] * len(places)
    first = 0
    while first < len(order):
        begin, size = places[order[first]]
        end, last = begin + size, first + 1
        while last < len(order):
            offset, size = places[order[last]]
            if offset - end > MERGED or offset + size - begin > MOST_AT_ONCE:
                break
            end, last = max(end, offset + size), last + 1
        data = memoryview(source.read(begin, end - begin))
        for at in order[first:last]:
            offset, size = places[at]
            found[at] = data[offset - begin : offset - begin + size]
        first = last
    return found
