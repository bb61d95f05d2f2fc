"""Libraries that not everybody needs: imported when first used, and when missing, named with the cure."""

from __future__ import annotations

import importlib
from typing import Any

from fastloader.errors import MissingLibraryError


def required(module: str, what: str, path: str) -> Any:
    """A module of the extra ``formats``."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingLibraryError(
            f"{what} is read and written by {module.partition('.')[0]}, which is not installed", path=path,
            hint='pip install "fastloader[formats]"',
        ) from error  # fmt: skip
