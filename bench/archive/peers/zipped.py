"""Python's zipfile, without compression."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from task import Read, paths_of, run


def create(folder: Path, place: Path) -> None:
    """A file after the other."""
    with zipfile.ZipFile(place, "w") as archive:
        for path in paths_of(folder):
            archive.write(os.path.join(folder, path), path)


def opened(folder: Path, place: Path) -> Read:
    """Which checks the CRC32, too."""
    return zipfile.ZipFile(place).read


run(create, opened)
