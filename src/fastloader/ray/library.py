"""The one place that imports Ray, and says so where it is missing."""

from __future__ import annotations

from fastloader.errors import MissingExtraError

try:
    import ray
except ImportError as error:
    raise MissingExtraError("Ray is not installed", extra="ray") from error

__all__ = ["ray"]
