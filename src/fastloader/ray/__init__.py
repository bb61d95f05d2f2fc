"""For Ray: datasets of Ray Data from and to ``.fld``, and archives and conversions made by a cluster."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fastloader.ray.library import ray as _ray  # noqa: F401  # who lacks it is told so before anything else

if TYPE_CHECKING:
    from fastloader.ray.sink import write_fld
    from fastloader.ray.source import read_fld

__all__ = ["read_fld", "write_fld"]

_MODULES = {"read_fld": "source", "write_fld": "sink"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: workers that make shards need nothing of Ray Data."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
