"""The least that reading a file costs: a bare io_uring loop (bare_uring.cc), compiled where it is measured."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent


def compiled(folder: Path) -> Path | None:
    """The bare loop, or nothing where this machine can't build it."""
    return built(HERE / "bare_uring.cc", folder / "bare_uring", "-luring")


def built(source: Path, program: Path, *options: str) -> Path | None:
    """A program or library of one file, or nothing where this machine can't build it."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        print("No C++ compiler (c++, or CXX): the rows against the bare loop are left out.")
        return None
    command = [compiler, "-O2", "-std=c++20", str(source), "-o", str(program), *options]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        print(f"{' '.join(command)} failed. Rows against the bare loop are left out.\n{ran.stderr}")
        return None
    return program


def bare(program: Path, path: Path, size: int, offsets: NDArray[np.int64], depth: int) -> float:
    """Seconds a piece."""
    given = np.asarray(offsets, np.uint64).tobytes()
    command = [str(program), str(path), str(size), str(depth)]
    return float(subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True).stdout) / len(offsets)
