"""Import fastloader with another build of its native module: a folder of links to the sources and that module."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

VARIABLE = "FASTLOADER_OVERLAY"


def lay(folder: Path, native: Path, sources: Path) -> None:
    """Make ``folder`` hold a package ``fastloader`` of the sources with ``native`` as its native module."""
    package = folder / "fastloader"
    package.mkdir(parents=True, exist_ok=True)
    for old in package.iterdir():
        old.unlink()
    for source in sources.iterdir():
        if source.name != "__pycache__" and source.suffix != ".so":
            (package / source.name).symlink_to(source)
    (package / native.name).symlink_to(native)


def use_overlay() -> None:
    """Take fastloader from the folder the environment names, if it names one; an editable install would go first."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
    sys.path.insert(0, folder)
    native = importlib.import_module("fastloader._native")
    if not str(native.__file__).startswith(folder):
        raise SystemExit(f"fastloader._native comes from {native.__file__}, not from {folder}")
