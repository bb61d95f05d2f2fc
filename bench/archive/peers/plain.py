"""Plain files; to make them an archive is what tar does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from task import Read, run


def create(folder: Path, place: Path) -> None:
    """GNU tar."""
    subprocess.run(["tar", "-C", str(folder.parent), "-cf", str(place), folder.name], check=True)


def opened(folder: Path, place: Path) -> Read:
    """The files themselves."""

    def read(path: str) -> bytes:
        with open(os.path.join(folder, path), "rb") as file:
            return file.read()

    return read


run(create, opened)
