"""``fastloader --import``: the modules that register a user's own field types."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from fastloader.cli.status import ImportFailedError
from fastloader.modules import run_file, search


def import_module(name: str) -> ModuleType:
    """A module by its name, also from the current folder, or by the path of its ``.py`` file."""
    try:
        if name.endswith(".py"):
            return run_file(Path(name))
        search(Path.cwd())
        return importlib.import_module(name)
    except Exception as error:  # whatever a module does when it is imported
        raise ImportFailedError(f"can't import {name}: {type(error).__name__}: {error}") from error
