"""Libraries that not everybody needs: imported when first used, and when missing, named with the cure."""

from __future__ import annotations

import importlib
from typing import Any

from fastloader.errors import MissingExtraError


def required(module: str, what: str, path: str) -> Any:
    """A module of the extra ``formats``."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} is read and written by {module.partition('.')[0]}, which is not installed",
            extra="formats", path=path or None,
        ) from error  # fmt: skip
