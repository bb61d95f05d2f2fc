"""Archives of 10^4 and of 10^7 small entries: made in bounded memory, looked up by the same number of steps.

Memory to make one grows until two million hashes are sorted at a time, to some 300 MiB, and no further.

What the machine itself charges for a larger index, by misses of its caches, is shown by a dictionary of the same paths
in memory, asked for as many of them.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import Result

SMALL, LARGE = 10**4, 10**7
IN_FOLDER = 1000
LOOKUPS = 20_000
ROUNDS = 5


def path_of(number: int) -> str:
    """A thousand folders of a thousand folders, as far as there are entries."""
    return f"{number // IN_FOLDER // 1000:03d}/{number // IN_FOLDER % 1000:03d}/{number % IN_FOLDER:03d}.txt"


def make(path: str, count: int) -> None:
    """Entries of some bytes each, in a process of its own; tells its largest memory."""
    from fastloader.archive import ArchiveWriter
    from fastloader.formats.entries import Entry

    began = time.perf_counter()
    with ArchiveWriter(path) as writer:
        for number in range(count):
            writer.add(Entry.of(path_of(number).encode(), b"entry %d" % number))
    made = time.perf_counter() - began
    print(json.dumps({"seconds": made, "memory": _memory("VmHWM")}))


def look(path: str, count: int) -> None:
    """Open, read at random, list folders; tells the times and the memory above that of a bare interpreter."""
    from fastloader.archive import Archive

    bare = _memory("RssAnon")
    began = time.perf_counter()
    archive = Archive(path)
    archive[path_of(0)]
    first = time.perf_counter() - began
    picks = _picks(count)
    sum(len(archive[one]) for one in picks)  # brings tables into memory
    times = [_timed(lambda: sum(len(archive[one]) for one in picks)) for _ in range(ROUNDS)]
    folders = [one.rpartition("/")[0] for one in picks[:200]]
    lists = [_timed(lambda: sum(len(archive.listdir(one)) for one in folders)) for _ in range(ROUNDS)]
    tables = sum(shard.size for shard in archive.dataset.shards)
    print(json.dumps({
        "open": first, "lookup": statistics.median(times) / len(picks), "listdir": statistics.median(lists) / 200,
        "memory": _memory("RssAnon") - bare, "size": tables,
    }))  # fmt: skip


def known(path: str, count: int) -> None:
    """Look the same paths up in a dictionary; tells the time."""
    numbers = {path_of(number): number for number in range(count)}
    picks = _picks(count)
    sum(numbers[one] for one in picks)
    times = [_timed(lambda: sum(numbers[one] for one in picks)) for _ in range(ROUNDS)]
    print(json.dumps({"lookup": statistics.median(times) / len(picks)}))


def _picks(count: int) -> list[str]:
    drawn = random.Random(3)
    return [path_of(drawn.randrange(count)) for _ in range(LOOKUPS)]


def _timed(action: Callable[[], object]) -> float:
    """CPU time: all is in memory, and the CPUs may have others to serve."""
    began = time.process_time()
    action()
    return time.process_time() - began


def _memory(kind: str) -> int:
    """What the process holds: ``RssAnon`` now, besides mapped files; ``VmHWM`` at most.

    What ``getrusage`` tells of the most may be that of the process which started this one.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{kind}:")[1].split()[0]) * 1024


def _ask(*arguments: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> list[Result]:
    """The large against the small."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("FASTLOADER_BENCH_DATA")) as top:
        places = {count: str(Path(top) / f"{count}.fld") for count in (SMALL, LARGE)}
        made = {count: _ask("make", place, str(count)) for count, place in places.items()}
        told = {count: _ask("look", place, str(count)) for count, place in places.items()}
        control = {count: _ask("known", place, str(count))["lookup"] for count, place in places.items()}
    small, large = told[SMALL], told[LARGE]

    def row(what: str, key: str, unit: float, name: str, goal: str) -> Result:
        said = f"{large[key] * unit:.2f} against {small[key] * unit:.2f} {name}"
        return Result(f"{what}, 10^7 entries", "10^4 entries", large[key] / small[key], goal, said)

    return [
        Result("no archive: a dictionary of the paths, 10^7 entries", "10^4 entries", control[LARGE] / control[SMALL],
               "", f"{control[LARGE] * 1e6:.2f} against {control[SMALL] * 1e6:.2f} us"),
        row("a lookup by path", "lookup", 1e6, "us", "as of the dictionary"),
        row("a folder of 1,000 listed", "listdir", 1e3, "ms", "< 2"),
        row("opened, and a first file", "open", 1e3, "ms", ""),
        Result("memory to make it, 10^7 entries", "10^4 entries", made[LARGE]["memory"] / made[SMALL]["memory"],
               "bounded", f"{made[LARGE]['memory'] / 2**20:.0f} against {made[SMALL]['memory'] / 2**20:.0f} MiB; "
               f"{made[LARGE]['seconds']:.0f} s, {large['size'] / 2**30:.2f} GiB"),
        Result("memory of a reader, 10^7 entries", "10^4 entries", large["memory"] / max(small["memory"], 1), "",
               f"{large['memory'] / 2**20:.1f} against {small['memory'] / 2**20:.1f} MiB"),
    ]  # fmt: skip


if __name__ == "__main__":
    {"make": make, "look": look, "known": known}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
