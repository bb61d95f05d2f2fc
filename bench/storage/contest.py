"""Contestants run in turns, each in a process of its own; what they and the server needed."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import Result
from data import PEERS, told

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("FASTLOADER_BENCH_ROUNDS", "5"))
FRESH = "FRESH"
"""Stands for a folder that is empty every time."""

Way = Sequence[str]
"""A contestant's file, and what it is told besides the task."""


@dataclass(slots=True)
class Seen:
    """All rounds of one contestant."""

    rounds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def samples(self) -> int:
        """In a pass."""
        return int(self.rounds[0]["samples"])

    @property
    def seconds(self) -> float:
        """Of the best round: what others on the machine take away only ever slows a pass."""
        return float(min(one["seconds"] for one in self.rounds))

    def per_1000(self, what: str) -> float:
        """CPU seconds per 1,000 samples, of the best round."""
        return float(min(one[what] for one in self.rounds)) / self.samples * 1000

    def median(self, what: str) -> float:
        """Over the rounds."""
        return statistics.median(one[what] for one in self.rounds)

    def text(self) -> str:
        """Speed and CPU."""
        speed = f"{self.samples / self.seconds:.0f} samples/s"
        return f"{speed}, CPU {self.per_1000('cpu'):.3f} + server {self.per_1000('server'):.3f} s"


def compete(ways: Mapping[str, Way], task: dict[str, Any], server: int) -> dict[str, Seen]:
    """Interleaved rounds; the first warms up."""
    seen = {name: Seen() for name in ways}
    for number in range(ROUNDS + 1):
        for name, way in ways.items():
            with tempfile.TemporaryDirectory() as fresh:
                one = _run([fresh if part == FRESH else part for part in way], task, server)
            if number:
                seen[name].rounds.append(one)
        if number:
            print(f"round {number}: " + "; ".join(f"{n} {s.rounds[-1]['seconds']:.2f} s" for n, s in seen.items()))
    return seen


def _run(way: Way, task: dict[str, Any], server: int) -> dict[str, Any]:
    peer, *more = way
    # Compiled modules are kept, as installed ones are: loaders import much of what they need on first use.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(PEERS.home / "pycache" / peer)
    before = _cpu_of(server)
    with told(task) as path:
        command = [PEERS.python(peer), str(HERE / "peers" / f"{peer}.py"), path, *more]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["server"] = _cpu_of(server) - before
    if (found["samples"], found["bytes"]) != (task["samples"], task["samples"] * task["sample"]):
        raise RuntimeError(f"{peer} gave {found['samples']} samples of {found['bytes']} bytes")
    return found


def _cpu_of(process: int) -> float:
    numbers = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def row(what: str, against: str, seen: Mapping[str, Seen], goal: str, more: str = "") -> Result:
    """One pass in the time of another."""
    ours, theirs = seen[what], seen[against]
    details = f"{ours.text()}; against {theirs.text()}{more}"
    return Result(what, against, ours.seconds / theirs.seconds, goal, details)
