"""An environment for each peer, made when it is asked for by name. All lie in build/bench/image, or where
FASTLOADER_BENCH_HOME says; removing that folder removes everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
HOME = Path(os.environ.get("FASTLOADER_BENCH_HOME") or HERE.parent.parent / "build" / "bench" / "image").resolve()
OURS = "fastloader"
SHARED = {"torch_pil": "torch", "torchvision": "torch", "tfdata_antialias": "tfdata"}
"""Peers that live in an environment of another name."""
NEEDED = {
    "ffcv": "its build needs OpenCV and libjpeg-turbo: apt-get install libopencv-dev libturbojpeg0-dev pkg-config",
    "spdl": "it loads FFmpeg's libraries: apt-get install libavcodec59 libavdevice59 libavfilter8, or your system's",
}


def peers() -> list[str]:
    """All there are."""
    return sorted(path.stem for path in (HERE / "peers").glob("[a-z]*.py") if path.stem != OURS)


def folder(peer: str) -> Path:
    """Where a peer's environment is or would be."""
    return HOME / "envs" / SHARED.get(peer, peer)


def python(peer: str) -> str:
    """The interpreter to run it with."""
    return sys.executable if peer == OURS else str(folder(peer) / "bin" / "python")


def pins(peer: str) -> str:
    """What its environment is made of."""
    name = SHARED.get(peer, peer)
    return "".join((HERE / "requirements" / f"{file}.txt").read_text() for file in (name, "common"))


def made(peer: str) -> bool:
    """Whether it is there, whole, and of these versions."""
    mark = folder(peer) / "made"
    return peer == OURS or (mark.exists() and mark.read_text() == pins(peer))


def make(peer: str) -> None:
    """Create the environment, or bring it to these versions. Minutes, and up to 2 GB."""
    place, name = folder(peer), SHARED.get(peer, peer)
    log = place.with_suffix(".log")
    print(f"Making the environment of {name}, log in {log}", flush=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    venv.create(place, with_pip=True, symlinks=True)
    requirements = HERE / "requirements"
    command = [python(peer), "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check",
               "-r", str(requirements / f"{name}.txt"), "-c", str(requirements / "common.txt")]  # fmt: skip
    with log.open("w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError(f"the environment of {name} could not be made, see {log}; {NEEDED.get(name, '')}")
    (place / "made").write_text(pins(peer))
