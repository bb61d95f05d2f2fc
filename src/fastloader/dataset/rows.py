"""Samples of readers reached by arithmetic alone, so that whole batches of them can be read natively."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastloader.dataset.base import MapNode, Node, Run
from fastloader.dataset.indexing import Positions, groups, leaves
from fastloader.dataset.settings import Settings
from fastloader.dataset.sources import FromReader
from fastloader.errors import FastLoaderError
from fastloader.formats.fld import Dataset
from fastloader.formats.fld.target import concatenated
from fastloader.reader import DatasetReader
from fastloader.stores import ObjectPath


class Joined(DatasetReader):
    """Several readers with the same fields as one, without copying anything."""

    def __init__(self, readers: Sequence[DatasetReader]) -> None:
        datasets = [reader.dataset for reader in readers]
        self._dataset = Dataset(readers[0].path, concatenated(datasets, lambda dataset, path: str(dataset.path / path)))
        self._columns = {}


@dataclass(frozen=True, eq=False)
class Rows:
    """One or several readers as one; ``starts`` says where each begins."""

    reader: DatasetReader
    fields: tuple[str, ...] | None
    settings: Settings
    readers: tuple[DatasetReader, ...]
    starts: tuple[int, ...]

    def of(self, node: MapNode, run: Run, epoch: int, positions: Positions) -> Positions:
        """The samples at these positions of a step that only chooses among them."""
        out = np.empty(len(positions), np.int64)
        for group in groups(node, run, epoch, positions):
            assert isinstance(group.node, FromReader)
            out[group.asked] = group.positions + self.starts[self.readers.index(group.node.reader)]
        return out

    def localise(self, error: FastLoaderError) -> FastLoaderError:
        """Count the sample that an error names within its own dataset."""
        if error.sample is not None and len(self.starts) > 1:
            error.sample -= self.starts[int(np.searchsorted(self.starts, error.sample, "right")) - 1]
        return error


def rows_of(steps: Sequence[tuple[Node, Run]]) -> Rows | None:
    """The readers that all elements of these steps come from, unchanged; ``None`` where that is not so.

    With several readers they must have the same fields, and nothing may be set for one that is not for the others.
    """
    found = [leaf for step in steps for leaf in leaves(*step)]
    sources = [node for node, _ in found if isinstance(node, FromReader)]
    settings = {replace(run.settings, ahead=None) for _, run in found}  # how far ahead is a matter of batches
    if not found or len(sources) < len(found) or len(settings) > 1:
        return None
    if len({(source.fields, *_schema(source.reader)) for source in sources}) > 1:
        return None
    readers = tuple(dict.fromkeys(source.reader for source in sources))
    if len(readers) > 1 and not all(isinstance(reader.dataset, Dataset) for reader in readers):
        return None
    if len({reader.dataset.manifest.columns for reader in readers if len(readers) > 1}) > 1:
        return None  # what is called the same is stored under different names
    if len({_place(reader) for reader in readers}) > 1:  # one dataset has one store
        return None
    starts = np.cumsum([0, *(len(reader) for reader in readers[:-1])]).tolist()
    joined = readers[0] if len(readers) == 1 else Joined(readers)
    return Rows(joined, sources[0].fields, settings.pop(), readers, tuple(starts))


def _place(reader: DatasetReader) -> bytes | None:
    """The store that a reader's objects are in, with all its options; ``None`` for local files."""
    return pickle.dumps(reader.path.store) if isinstance(reader.path, ObjectPath) else None


def _schema(reader: DatasetReader) -> tuple[Any, ...]:
    fields = ((d.name, d.type_id, d.flags, d.metadata_size, d.arguments) for d in reader.dataset.descriptors)
    return (reader.has_keys, *fields)
