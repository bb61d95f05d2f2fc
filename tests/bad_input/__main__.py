"""Runs the mutation test: ``python -m tests.bad_input --mutants 20000 --seed 1``.

Mutants are worked through in chunks, a process each, so that a crash, a hang or a memory limit is one mutant's.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from .overlay import use_overlay

MISDEEDS = {
    "crash": os.abort,
    "hang": lambda: all(iter(lambda: True, False)),
    "hog": lambda: bytearray(1 << 30),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bad_input", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=2000, help="how many")
    parser.add_argument("--only", type=int, help="one mutant alone, with its faults in full")
    parser.add_argument("--keep", type=Path, help="with --only: leave the mutant here")
    parser.add_argument("--chunk", type=int, default=500, help="mutants a process")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--spare-mb", type=int, default=64, help="memory a mutant may take; 0 for no limit")
    parser.add_argument("--heap", action="store_true", help="put files in heap blocks of their size, not in mappings")
    parser.add_argument("--native", type=int, default=0, help="instead: this many wild calls of the native functions")
    parser.add_argument("--report", type=Path, help="write the summary here, as JSON")
    parser.add_argument("--seconds", type=int, default=30, help="a mutant that takes longer hangs")
    parser.add_argument("--misbehave", choices=MISDEEDS, help="do so at the fifth mutant, to see that it is seen")
    parser.add_argument("--worker", nargs=3, metavar=("BEGIN", "END", "FOLDER"), help=argparse.SUPPRESS)
    return parser.parse_args()


def put_files_on_the_heap() -> None:
    """A mapping is padded to its page; a block of the file's own size lets a sanitizer see one byte too many."""
    import numpy as np

    from fastloader.formats.fld import file

    class HeapFile(file.MappedFile):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            mapped, self.bytes = self.bytes, np.empty(self.size, np.uint8)
            self.bytes[:] = mapped
            self.bytes.setflags(write=False)

    file.MappedFile = HeapFile


def limit_memory(spare_mb: int) -> None:
    """From now on at most this much address space besides what is in use."""
    if spare_mb:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + (spare_mb << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def work(arguments: argparse.Namespace, begin: int, end: int, folder: Path) -> None:
    """One process's share: the current number, each fault and the tally go to files in ``folder``."""
    from . import wild_calls
    from .datasets import make_bases
    from .exercise import Exercise
    from .mutants import Mutant, Mutants

    if arguments.heap:
        put_files_on_the_heap()
    data = folder / "data"
    data.mkdir(exist_ok=True)
    bases = make_bases(data)
    mutants = Mutants(bases, arguments.seed)
    for base in bases.values():  # what is loaded or started once is then in use before the limit
        path = data / f"original-{base.name}"
        base.write(path)
        exercise = Exercise(Mutant(1, "original", base, base.files, False, (base,)), path, Random(0))
        exercise.run()
        assert not exercise.faults, exercise.faults
    limit_memory(arguments.spare_mb)
    tally: Counter[str] = Counter()
    with (folder / "current").open("wb", 0) as current, (folder / "faults").open("a") as faults:
        for number in range(begin, end):
            os.pwrite(current.fileno(), b"%12d" % number, 0)
            faulthandler.dump_traceback_later(arguments.seconds, exit=True)
            if arguments.misbehave and number == 5:
                MISDEEDS[arguments.misbehave]()
            if arguments.native:
                found, what = wild_calls.call(bases, arguments.seed, number), "wild call"
            else:
                mutant = mutants[number]
                path = data / f"mutant-{number}.fld"
                mutant.base.write(path, mutant.files)
                exercise = Exercise(mutant, path, Random(f"exercise {arguments.seed} {number}"))
                exercise.run()
                found, what = exercise.faults, mutant.what
                outcome = "refused" if not exercise.opened else "read in part" if exercise.refusals else "read in full"
                tally[f"{'resealed' if mutant.sealed else 'raw'}, {outcome}"] += 1
                if not arguments.keep:
                    for file in [*path.iterdir()] if path.is_dir() else [path]:
                        file.unlink()
            faulthandler.cancel_dump_traceback_later()
            if found:
                faults.write(json.dumps({"number": number, "what": what, "faults": found}) + "\n")
                faults.flush()
    (folder / "tally").write_text(json.dumps(tally))


def run_chunk(arguments: argparse.Namespace, begin: int, end: int, folder: Path) -> tuple[list[Any], Counter[str]]:
    """Run a chunk in processes of its own; after a crash, another goes on behind the mutant that caused it."""
    faults: list[Any] = []
    tally: Counter[str] = Counter()
    while begin < end:
        place = Path(tempfile.mkdtemp(dir=folder))
        command = [sys.executable, "-m", "tests.bad_input", "--seed", str(arguments.seed)]
        command += ["--spare-mb", str(arguments.spare_mb), "--native", str(arguments.native)]
        command += ["--seconds", str(arguments.seconds)]
        command += ["--heap"] if arguments.heap else []
        command += ["--misbehave", arguments.misbehave] if arguments.misbehave else []
        command += ["--worker", str(begin), str(end), str(place)]
        environment = {**os.environ, "MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
        with (place / "output").open("w") as output:
            status = subprocess.run(command, stdout=output, stderr=output, env=environment, check=False).returncode
        if (place / "faults").exists():
            faults += map(json.loads, (place / "faults").read_text().splitlines())
        if status == 0:
            tally += Counter(json.loads((place / "tally").read_text()))
            break
        said = (place / "output").read_text()
        why = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        current = (place / "current").read_text() if (place / "current").exists() else ""
        if not current:
            raise SystemExit(f"the test could not start: {why}\n{said[-6000:]}")
        number = int(current)
        faults.append({"number": number, "what": "crash", "faults": [f"{why}\n{said[-6000:]}"]})
        begin = number + 1
    return faults, tally


def main() -> int:
    """Run, print a summary, and say how to see each fault again."""
    use_overlay()
    arguments = parse()
    if arguments.worker:
        begin, end, folder = arguments.worker
        work(arguments, int(begin), int(end), Path(folder))
        return 0
    begin, end = 0, arguments.native or arguments.mutants
    if arguments.only is not None:
        begin, end = arguments.only, arguments.only + 1
    started = time.monotonic()
    shared = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        chunks = [(first, min(first + arguments.chunk, end)) for first in range(begin, end, arguments.chunk)]
        results = list(pool.map(lambda chunk: run_chunk(arguments, *chunk, Path(folder)), chunks))
    faults = sorted((fault for found, _ in results for fault in found), key=lambda fault: fault["number"])
    tally = sum((counts for _, counts in results), Counter())
    in_full = arguments.only is not None
    for fault in faults[: None if in_full else 20]:
        print(f"--- {fault['number']}: {fault['what']}")
        for line in fault["faults"][: None if in_full else 2]:
            print(line)
        heap = " --heap" if arguments.heap else ""
        native = f" --native {arguments.native}" if arguments.native else ""
        print(f"see it again: python -m tests.bad_input --seed {arguments.seed}{heap}{native} --only {fault['number']}")
    kind = "wild calls" if arguments.native else "mutants"
    print(f"{end - begin} {kind}, {len(faults)} with faults, {time.monotonic() - started:.0f} s")
    for outcome, count in sorted(tally.items()):
        print(f"  {outcome}: {count}")
    if arguments.report:
        arguments.report.write_text(json.dumps({"faults": faults, "tally": tally, "count": end - begin}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
