"""Datasets as expressions: frozen descriptions of sources and steps, which one engine runs."""

from fastloader.dataset.dataset import Dataset, IterDataset, MapDataset
from fastloader.dataset.iterator import DatasetIterator
from fastloader.dataset.opening import ReaderDataset, open_dataset

__all__ = ["Dataset", "DatasetIterator", "IterDataset", "MapDataset", "ReaderDataset", "open_dataset"]
