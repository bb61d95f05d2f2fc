"""Python files of the user's, run as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def run_file(path: Path) -> ModuleType:
    """The module that a ``.py`` file is, run once. It may import what lies beside it."""
    path = path.absolute()
    search(path.parent)
    name = path.stem
    while name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(path):
            return sys.modules[name]
        name = f"_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no .py file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def search(folder: Path) -> None:
    """Find modules in a folder too, behind the installed packages, which a file of the same name should not hide."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
