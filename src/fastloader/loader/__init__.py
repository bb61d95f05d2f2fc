"""Batches for training."""

from fastloader.loader.advice import advise
from fastloader.loader.loader import DataLoader
from fastloader.loader.options import LoaderOptions, ThreadingOptions

__all__ = ["DataLoader", "LoaderOptions", "ThreadingOptions", "advise"]
