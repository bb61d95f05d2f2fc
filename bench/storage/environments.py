"""An environment for each peer, made when it is asked for by name, in build/bench/storage or where
FASTLOADER_BENCH_HOME says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
HOME = Path(os.environ.get("FASTLOADER_BENCH_HOME") or HERE.parent.parent / "build" / "bench" / "storage").resolve()


def python(peer: str) -> str:
    """The interpreter to run it with: ours, where it needs nothing that we lack."""
    return str(HOME / peer / "bin" / "python") if _pins(peer) else sys.executable


def _pins(peer: str) -> str:
    path = HERE / "requirements" / f"{peer}.txt"
    return path.read_text() if path.exists() else ""


def make(peer: str) -> None:
    """Create the environment where it is not there yet, or not of these versions."""
    place, pins = HOME / peer, _pins(peer)
    mark = place / "made"
    if not pins or (mark.exists() and mark.read_text() == pins):
        return
    print(f"Making the environment of {peer} in {place}", flush=True)
    venv.create(place, with_pip=True, symlinks=True)
    command = [python(peer), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r"]
    subprocess.run([*command, str(HERE / "requirements" / f"{peer}.txt")], check=True)
    mark.write_text(pins)
