"""What the disk gives of these very files, past the page cache, to a bare loop of reads."""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fastloader.doctor.pace import Pace, measured
from fastloader.formats.fld import Dataset
from fastloader.stores import DIRECT_ALIGNMENT, forget, resident_bytes

PIECE = 1 << 20
"""Bytes of a read of the sequential loop."""
AT_ONCE = {"sequential": (1, 8), "pages": (8,), "random": (1, 8, 32)}
STILL_RESIDENT = 0.05
"""With more than this share of files in memory, they are not read from disk."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Bare loops over the files: one behind the other, whole pages and samples at random places.

    ``direct``: the page cache was gone around. Where it was not, ``resident`` is the share of files that stayed in it
    although it was asked to let go.
    """

    sequential: tuple[Pace, ...]
    pages: tuple[Pace, ...]
    random: tuple[Pace, ...]
    sample_bytes: int
    page_bytes: int
    direct: bool
    resident: float

    def best(self, pattern: str) -> Pace:
        """The most that any number of readers got."""
        paces: tuple[Pace, ...] = getattr(self, pattern)
        return max(paces, key=lambda pace: pace.bytes_per_second)

    @property
    def is_cold(self) -> bool:
        """Whether it was the disk that was measured."""
        return self.direct or self.resident <= STILL_RESIDENT


def cool_down(path: Path) -> tuple[list[Path], float]:
    """The files of a dataset, out of memory, and the share of them that stays there all the same.

    Call it before any of them is mapped: mapped pages that were used stay.
    """
    opened = Dataset(path)
    files = [opened.local / one.path for one in opened.objects]
    del opened
    for file in files:
        forget(file)
    return files, sum(map(resident_bytes, files)) / max(1, sum(os.path.getsize(file) for file in files))


def examine_disk(paths: Sequence[Path], sample_bytes: int, page_bytes: int, seconds: float) -> Disk:
    """Measure for about so many seconds."""
    for path in paths:
        forget(path)
    sizes = {"sequential": PIECE, "pages": page_bytes, "random": max(1, sample_bytes)}
    each = seconds / sum(map(len, AT_ONCE.values()))
    with ExitStack() as stack:
        files = _Files(paths, stack)
        found = {
            pattern: tuple(
                measured(files.reading(sizes[pattern], in_order=pattern == "sequential"), at_once, each)
                for at_once in AT_ONCE[pattern]
            )
            for pattern in AT_ONCE
        }
    resident = sum(map(resident_bytes, paths)) / max(1, files.size)
    return Disk(**found, sample_bytes=sample_bytes, page_bytes=page_bytes, direct=files.direct, resident=resident)


class _Files:
    """Open files, to be read at aligned places."""

    def __init__(self, paths: Sequence[Path], stack: ExitStack) -> None:
        self._sizes = [os.path.getsize(path) for path in paths]
        self.size = sum(self._sizes)
        self.direct = all(_direct(path) for path in paths)
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if self.direct else 0)
        self._fds = [os.open(path, flags) for path in paths]
        for fd in self._fds:
            stack.callback(os.close, fd)
            if not self.direct:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)

    def reading(self, size: int, *, in_order: bool) -> Callable[[int], Callable[[], int]]:
        """What makes loops: all go through the files together, or each hops about."""
        aligned = -(-size // DIRECT_ALIGNMENT) * DIRECT_ALIGNMENT
        turns = itertools.count()
        places = [(fd, at) for fd, end in zip(self._fds, self._sizes, strict=True) for at in range(0, end, aligned)]

        def make(number: int) -> Callable[[], int]:
            memory = mmap.mmap(-1, aligned)
            draw = random.Random(number)

            def in_turn() -> int:
                fd, at = places[next(turns) % len(places)]
                return os.preadv(fd, [memory], at)

            def anywhere() -> int:
                fd, end = draw.choices(list(zip(self._fds, self._sizes, strict=True)), self._sizes)[0]
                last = max(0, end - aligned) // DIRECT_ALIGNMENT
                return os.preadv(fd, [memory], draw.randint(0, last) * DIRECT_ALIGNMENT)

            return in_turn if in_order else anywhere

        return make


def _direct(path: Path) -> bool:
    """Whether a file can be read around the page cache; some file systems only say so when it is tried."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    try:
        with mmap.mmap(-1, DIRECT_ALIGNMENT) as memory:
            return os.preadv(fd, [memory], 0) >= 0
    except OSError:
        return False
    finally:
        os.close(fd)
