"""``fastloader --import``: the modules that register a user's own field types."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from fastloader.cli.status import ImportFailedError


def import_module(name: str) -> None:
    """Import a module by its name, also from the current folder, or by the path of its ``.py`` file."""
    is_file = name.endswith(".py")
    folder = str(Path(name).absolute().parent if is_file else Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # behind the installed packages, which a file of the same name should not hide
    try:
        if is_file:
            _run_file(Path(name).absolute())
        else:
            importlib.import_module(name)
    except Exception as error:  # whatever a module does when it is imported
        raise ImportFailedError(f"can't import {name}: {type(error).__name__}: {error}") from error


def _run_file(path: Path) -> None:
    name = path.stem
    while name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(path):
            return
        name = f"_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
