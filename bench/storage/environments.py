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


def peers() -> list[str]:
    """All there are."""
    return sorted(path.stem for path in (HERE / "requirements").glob("*.txt"))


def chosen() -> list[str]:
    """Peers asked for, whose environments are made; otherwise those that have one."""
    asked = os.environ.get("FASTLOADER_BENCH_PEERS", "")
    if not asked:
        return [peer for peer in peers() if _is_made(peer)]
    names = peers() if asked == "all" else asked.split(",")
    unknown = set(names) - set(peers())
    if unknown:
        raise SystemExit(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(peers())}")
    for peer in names:
        make(peer)
    return names


def python(peer: str) -> str:
    """The interpreter to run it with: ours, where it needs nothing that we lack."""
    return str(HOME / peer / "bin" / "python") if _pins(peer) else sys.executable


def _pins(peer: str) -> str:
    path = HERE / "requirements" / f"{peer}.txt"
    return path.read_text() if path.exists() else ""


def _is_made(peer: str) -> bool:
    mark = HOME / peer / "made"
    return mark.exists() and mark.read_text() == _pins(peer)


def make(peer: str) -> None:
    """Create the environment where it is not there yet, or not of these versions."""
    if _is_made(peer):
        return
    place = HOME / peer
    print(f"Making the environment of {peer} in {place}", flush=True)
    venv.create(place, with_pip=True, symlinks=True)
    command = [python(peer), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r"]
    subprocess.run([*command, str(HERE / "requirements" / f"{peer}.txt")], check=True)
    (place / "made").write_text(_pins(peer))
