"""A .fld archive, made by the command and read by path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from task import Read, run

sys.path.pop(0)  # this file has the library's name
from fastloader.archive import Archive

archive: Archive


def create(folder: Path, place: Path) -> None:
    """As one would on a command line."""
    subprocess.run([sys.executable, "-m", "fastloader", "create", "-q", str(place), str(folder)], check=True)


def opened(folder: Path, place: Path) -> Read:
    """By path."""
    global archive
    archive = Archive(place)
    return archive.__getitem__


run(create, opened, lambda paths: sum(map(len, archive.read_many(paths))))
