"""The one place that imports torch, and says so where it is missing."""

from __future__ import annotations

from fastloader.errors import MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError(
        "PyTorch is not installed", extra="torch", hint="pip install torch, as its own page says for your GPU"
    ) from error

__all__ = ["torch"]
