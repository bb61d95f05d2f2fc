"""Barecat, made by its command and read by path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from task import Read, run

sys.path.pop(0)  # this file has the library's name
import barecat


def create(folder: Path, place: Path) -> None:
    """As its documentation does it."""
    command = str(Path(sys.executable).with_name("barecat"))
    subprocess.run([command, "create", "--force", str(place), str(folder)], check=True, stdout=subprocess.DEVNULL)


def opened(folder: Path, place: Path) -> Read:
    """By path; some versions of the command keep the folder's name in front."""
    archive = barecat.Barecat(str(place), threadsafe=True)  # type: ignore[attr-defined]
    top = f"{folder.name}/" if folder.name in archive.listdir("") else ""
    return lambda path: archive[top + path]


run(create, opened)
