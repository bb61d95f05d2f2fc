"""Batches for training."""

from fastloader.loader.loader import DataLoader
from fastloader.loader.options import LoaderOptions
from fastloader.loader.padding import Pad

__all__ = ["DataLoader", "LoaderOptions", "Pad"]
