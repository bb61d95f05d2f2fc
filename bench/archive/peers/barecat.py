"""Barecat, made by its command and read by path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from task import Read, run

sys.path.pop(0)  # this file has the library's name
import barecat


def create(folder: Path, place: Path) -> None:
    """As its documentation does it; paths are kept as they are given."""
    command = [str(Path(sys.executable).with_name("barecat")), "create", "--force", str(place), folder.name]
    subprocess.run(command, cwd=folder.parent, check=True, stdout=subprocess.DEVNULL)


def opened(folder: Path, place: Path) -> Read:
    """By path, with the folder's name in front."""
    archive = barecat.Barecat(str(place), threadsafe=True)  # type: ignore[attr-defined]
    return lambda path: archive[f"{folder.name}/{path}"]


run(create, opened)
