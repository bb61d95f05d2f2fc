"""Files by path at random, and folders made archives, against plain files, zipfile, tar, LMDB and Barecat.

"In memory" reads files a second time. "From disk" begins when a contestant has opened its archive and the
kernel has then forgotten all of its pages: the index is read from disk too, except what was loaded on opening,
as zipfile loads all of it. The index of plain files are folders and inodes. Where root runs this, the kernel forgets
those too, with all it keeps of disks, once before each measurement and for every contestant alike. Else they stay in
memory, and the row says so. Ours, Barecat and zipfile check checksums; LMDB and plain files have none.

"64 at a time" is ``read_many``, which is how a loader reads: against LMDB's ``getmulti``, and against the others one by
one, for they have no such call. One by one, nobody can do with less than a copy of the bytes, or a read of the disk,
each. That is what ``bare`` does, from places that it knows, without a look at the rest and without checksums: its share
of somebody's time is the least there can be, and where that is more than half, it is the goal's measure.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from common import Result
from peer_environments import Peers

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "peers"))

import task  # noqa: E402

FOLDERS, FILES = 100, 1000
SIZES = (1_000, 15_000)
ROUNDS = 5
MANY = ("fastloader", "lmdb")
"""Who has a call for several paths."""

PEERS = Peers(HERE)
Told = dict[str, float]


def fill(folder: Path) -> int:
    """100,000 files of 8 KB on average, in 100 folders; the bytes of all."""
    rng = np.random.default_rng(1)
    total = 0
    for number in range(FOLDERS):
        inner = folder / f"{number:03d}"
        inner.mkdir(parents=True)
        for name, size in enumerate(rng.integers(*SIZES, FILES).tolist()):
            (inner / f"{name:05d}.bin").write_bytes(rng.bytes(size))
            total += size
    return total


def ask(peer: str, mode: str, folder: Path, place: Path, *more: str) -> Told:
    """One measurement, in a process of its own."""
    command = [PEERS.python(peer), str(HERE / "peers" / f"{peer}.py"), mode, str(folder), str(place), *more]
    # Compiled modules are kept, as installed ones are.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(PEERS.home / "pycache" / peer)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=900, env=environment)
    found: Told = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> list[Result]:
    """Interleaved rounds; what was read must be the same bytes for all."""
    peers = ["plain", "zipped", *PEERS.chosen()]
    made: dict[tuple[str, str], list[Told]] = defaultdict(list)
    with tempfile.TemporaryDirectory(dir=os.environ.get("FASTLOADER_BENCH_DATA")) as top:
        folder = Path(top) / "files"
        fill(folder)
        (Path(top) / "paths.json").write_text(json.dumps(task.paths_of(folder)))
        places = {peer: Path(top) / f"archive.{peer}" for peer in ("fastloader", *peers)}
        for number in range(ROUNDS + 1):
            for peer, place in places.items():
                _clear(place)
                found = ask(peer, task.CREATE, folder, place)
                if number:
                    made[peer, task.CREATE].append(found)
        places["plain"].unlink()  # its files are read, not the tar
        for number in range(ROUNDS + 1):
            for mode in (task.HOT, task.COLD, task.THREADS):
                _round(mode, made if number else defaultdict(list), folder, places, str(Path(top) / "paths.json"))
    return compare(made, peers)


def _round(
    mode: str, made: dict[tuple[str, str], list[Told]], folder: Path, places: dict[str, Path], paths: str
) -> None:
    sizes = set()
    for peer, place in (places if mode == task.THREADS else {**places, "bare": places["fastloader"]}).items():
        found = ask(peer, mode, folder, place, paths)
        made[peer, mode].append(found)
        sizes.add(found["bytes"])
    for peer in MANY if mode != task.THREADS else ():
        if peer in places:
            found = ask(peer, mode, folder, places[peer], paths, "many")
            made[peer, f"{mode} many"].append(found)
            sizes.add(found["bytes"])
    if len(sizes) != 1:
        raise RuntimeError(f"the contestants read different bytes: {sizes}")


def _clear(place: Path) -> None:
    for left in place.parent.glob(place.name + "*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def compare(made: dict[tuple[str, str], list[Told]], peers: list[str]) -> list[Result]:
    """Times of ours in those of others, by the medians of rounds."""

    def row(what: str, ours: str, peer: str, theirs: str, count: int, goal: str) -> Result:
        mine, other = made["fastloader", ours], made[peer, theirs]
        seconds = [statistics.median(one["seconds"] for one in told) for told in (mine, other)]
        cpu = [statistics.median(one["cpu"] for one in told) for told in (mine, other)]
        said = (
            f"{seconds[0] / count * 1e6:.1f} against {seconds[1] / count * 1e6:.1f} us a file; "
            f"CPU {cpu[0] / count * 1e6:.1f} against {cpu[1] / count * 1e6:.1f}"
        )
        if peer == "plain" and theirs in (task.COLD, task.THREADS) and not all(one["forgotten"] for one in other):
            said += "; their folders and inodes were in memory"
        return Result(what, peer, seconds[0] / seconds[1], goal, said)

    names = {"plain": "tar", "zipped": "zipped"}
    rows = [
        row(f"create, {FOLDERS * FILES:,} files", task.CREATE, peer, task.CREATE, FOLDERS * FILES, "<= 1")
        for peer in peers
    ]
    rows = [Result(r.what, names.get(r.against, r.against), r.ratio, r.goal, r.details) for r in rows]

    def one_by_one(peer: str, mode: str) -> str:
        bare, other = (statistics.median(one["seconds"] for one in made[name, mode]) for name in ("bare", peer))
        return f"< 0.5; {bare / other:.2f} is the least"

    rows.append(row("read by path, in memory", task.HOT, "bare", task.HOT, task.READ, ""))
    rows.append(row("read by path, from disk", task.COLD, "bare", task.COLD, task.READ_COLD, ""))
    for peer in peers:
        rows.append(row("read by path, in memory", task.HOT, peer, task.HOT, task.READ, one_by_one(peer, task.HOT)))
        hot, cold = (f"{mode} many" if peer in MANY else mode for mode in (task.HOT, task.COLD))
        rows.append(row("read by path, 64 at a time, in memory", "hot many", peer, hot, task.READ, "< 0.5"))
        rows.append(
            row("read by path, from disk", task.COLD, peer, task.COLD, task.READ_COLD, one_by_one(peer, task.COLD))
        )
        rows.append(row("read by path, 64 at a time, from disk", "cold many", peer, cold, task.READ_COLD, "< 0.5"))
        rows.append(row("read by path, 16 threads, from disk", task.THREADS, peer, task.THREADS, task.READ_COLD, ""))
    return rows
