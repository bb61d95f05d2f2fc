"""What a contestant is told, how it is timed, and what it tells: one JSON object, the last line it prints."""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

Read = Callable[[str], bytes]

CREATE, HOT, COLD, THREADS = "create", "hot", "cold", "threads"
READ, READ_COLD, BATCH = 20_000, 2_000, 64


def paths_of(folder: Path) -> list[str]:
    """The files below a folder, relative to it, in order."""
    return sorted(
        os.path.relpath(os.path.join(top, name), folder) for top, _, names in os.walk(folder) for name in names
    )


def picked(paths: list[str], count: int) -> list[str]:
    """The paths to read, the same for all contestants."""
    return random.Random(5).choices(paths, k=count)


def drop(places: Iterable[Path]) -> None:
    """Take files out of the page cache. What is not on disk yet would stay: that goes there before, all at once."""
    os.sync()
    for place in places:
        for path in place.rglob("*") if place.is_dir() else [place]:
            if path.is_file():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def forget_names(switch: Path = Path("/proc/sys/vm/drop_caches")) -> bool:
    """Have the kernel forget folders and inodes, with the blocks of the disk they are made from; only root may.

    They are forgotten for everybody on this machine, and so is all else it keeps of disks. Tells whether it did.
    """
    os.sync()
    try:
        switch.write_text("3")
    except OSError:
        return False
    return True


def run(create: Callable[[Path, Path], None] | None, opened: Callable[[Path, Path], Read],
        many: Callable[[list[str]], int] | None = None) -> None:  # fmt: skip
    """Do what is asked for: make an archive, or read from one at random."""
    mode, folder, place = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if mode == CREATE:
        assert create is not None
        told(lambda: (create(folder, place), 0)[1])
        return
    paths = json.loads(Path(sys.argv[4]).read_text())
    read = opened(folder, place)
    picks = picked(paths, READ if mode == HOT else READ_COLD)
    forgotten = False
    if mode == HOT:
        sum(len(read(path)) for path in picks)
    else:
        drop(list(place.parent.glob(place.name + "*")) or [folder])
        forgotten = forget_names()  # behind the drop, which looks at every name
    if mode == THREADS:
        with ThreadPoolExecutor(16) as pool:
            told(lambda: sum(map(len, pool.map(read, picks))), forgotten)
    elif many is not None and len(sys.argv) > 5:
        told(lambda: sum(many(picks[first : first + BATCH]) for first in range(0, len(picks), BATCH)), forgotten)
    else:
        told(lambda: sum(len(read(path)) for path in picks), forgotten)


def told(action: Callable[[], int], forgotten: bool = False) -> None:
    """Time it and tell, also whether the kernel had forgotten folders and inodes."""
    before = _cpu()
    began = time.perf_counter()
    size = action()
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "cpu": _cpu() - before, "bytes": size, "forgotten": forgotten}))


def _cpu() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
