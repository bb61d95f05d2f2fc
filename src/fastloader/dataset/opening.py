"""Readers that are datasets too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, overload

from fastloader.dataset.base import Node
from fastloader.dataset.dataset import MapDataset, Steps
from fastloader.dataset.iterator import DatasetIterator
from fastloader.dataset.sources import FromReader
from fastloader.reader import DatasetReader
from fastloader.types import Key, Sample


class ReaderDataset(DatasetReader, Steps[MapDataset]):
    """A reader with the steps of a dataset: ``fl.open(path).shuffle(seed=1).batch(32)``."""

    @property
    def node(self) -> Node:
        """Its samples."""
        return FromReader(self)

    def __iter__(self) -> DatasetIterator:
        return self.iterate()

    @overload  # type: ignore[override]  # a dataset has all that is asked of a slice
    def __getitem__(self, index: int | Key) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> MapDataset: ...
    def __getitem__(self, index: int | Key | slice) -> Any:
        return MapDataset(self.node)[index] if isinstance(index, slice) else self.read_sample(index)


def open_dataset(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
) -> ReaderDataset:
    """Open a dataset for reading, whatever it is stored as: a ``.fld`` file or a folder of shards, local or by URL.

    The result is a reader, which gives samples by number and key and goes into a ``DataLoader``, and a dataset, with
    ``map``, ``shuffle``, ``batch`` and the other steps.

    ``storage_options``, ``cache_dir`` and ``cache_size`` are for URLs; ``DatasetReader`` describes them.
    """
    return ReaderDataset(path, storage_options, cache_dir=cache_dir, cache_size=cache_size)
