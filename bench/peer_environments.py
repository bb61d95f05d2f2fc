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

    def names(self) -> list[str]:
        """All that have an environment of their own."""
        return sorted(path.stem for path in (self.folder / "requirements").glob("*.txt"))

    def chosen(self) -> list[str]:
        """Peers that --peers names, whose environments are made; otherwise those that have one."""
        asked = os.environ.get("FASTLOADER_BENCH_PEERS", "")
        if not asked:
            return [peer for peer in self.names() if self._is_made(peer)]
        names = self.names() if asked == "all" else asked.split(",")
        unknown = set(names) - set(self.names())
        if unknown:
            raise SystemExit(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(self.names())}")
        for peer in names:
            self.make(peer)
        return names

    def python(self, peer: str) -> str:
        """The interpreter to run one with: ours, where it needs nothing that we lack."""
        return str(self.home / peer / "bin" / "python") if self._pins(peer) else sys.executable

    def _pins(self, peer: str) -> str:
        path = self.folder / "requirements" / f"{peer}.txt"
        return path.read_text() if path.exists() else ""

    def _is_made(self, peer: str) -> bool:
        mark = self.home / peer / "made"
        return mark.exists() and mark.read_text() == self._pins(peer)

    def make(self, peer: str) -> None:
        """Create the environment where it is not there yet, or not of these versions."""
        if self._is_made(peer):
            return
        place = self.home / peer
        print(f"Making the environment of {peer} in {place}", flush=True)
        venv.create(place, with_pip=True, symlinks=True)
        command = [self.python(peer), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r"]
        subprocess.run([*command, str(self.folder / "requirements" / f"{peer}.txt")], check=True)
        (place / "made").write_text(self._pins(peer))
