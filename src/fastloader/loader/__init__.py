"""Batches for training."""

from fastloader.loader.advice import advise
from fastloader.loader.loader import DataLoader
from fastloader.loader.options import LoaderOptions, ThreadingOptions
from fastloader.loader.padding import Pad
from fastloader.loader.wrapped import WrappedLoader

__all__ = ["DataLoader", "LoaderOptions", "Pad", "ThreadingOptions", "WrappedLoader", "advise"]
