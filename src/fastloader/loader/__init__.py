"""Batches for training."""

from fastloader.loader.loader import DataLoader
from fastloader.loader.options import LoaderOptions

__all__ = ["DataLoader", "LoaderOptions"]
