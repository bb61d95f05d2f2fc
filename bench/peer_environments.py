"""Environments for the peers of a benchmark, one each, made when they are asked for by name."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Peers:
    """Those of a topic's folder: ``requirements/NAME.txt`` says what each needs.

    The environments are in build/bench/TOPIC, or in a folder of the topic where FASTLOADER_BENCH_HOME says.
    """

    folder: Path

    @property
    def home(self) -> Path:
        """Where the environments are."""
        chosen = os.environ.get("FASTLOADER_BENCH_HOME")
        return (Path(chosen) if chosen else self.folder.parents[1] / "build" / "bench").resolve() / self.folder.name

    def wanted(self) -> list[str]:
        """The peers that --peers names."""
        return [name for name in os.environ.get("FASTLOADER_BENCH_PEERS", "").split(",") if name]

    def python(self, peer: str) -> str:
        """The interpreter to run one with: ours, where it needs nothing that we lack."""
        return str(self.home / peer / "bin" / "python") if self._pins(peer) else sys.executable

    def _pins(self, peer: str) -> str:
        path = self.folder / "requirements" / f"{peer}.txt"
        return path.read_text() if path.exists() else ""

    def make(self, peer: str) -> None:
        """Create the environment where it is not there yet, or not of these versions."""
        place, pins = self.home / peer, self._pins(peer)
        mark = place / "made"
        if not pins or (mark.exists() and mark.read_text() == pins):
            return
        print(f"Making the environment of {peer} in {place}", flush=True)
        venv.create(place, with_pip=True, symlinks=True)
        command = [self.python(peer), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r"]
        subprocess.run([*command, str(self.folder / "requirements" / f"{peer}.txt")], check=True)
        mark.write_text(pins)
