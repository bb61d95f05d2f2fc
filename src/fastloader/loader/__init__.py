"""Batches for training."""

from fastloader.loader.threaded import DataLoader

__all__ = ["DataLoader"]
