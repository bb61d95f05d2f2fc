"""Samples of readers reached by arithmetic alone, so that whole batches of them can be read natively."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from fastloader.dataset.base import MapNode, Node, Run
from fastloader.dataset.indexing import IndexNode, Positions, SameNode, groups, leaves
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


class Chosen(NamedTuple):
    """Samples of one reader, and which of their fields; ``None``: all, as they are."""

    reader: DatasetReader
    indices: Positions | None
    fields: tuple[str, ...] | None


def chosen_samples(node: Node, run: Run) -> Chosen:
    """What a dataset chooses, where it does nothing else: the step that stands in the way is named by an error."""
    step, endless = node, isinstance(node, MapNode) and node.endless()
    while not isinstance(step, FromReader):
        if isinstance(step, SameNode):
            _refuse(step, "is a setting of a pass over a dataset, and a loader has its own; leave it out")
        if not step.parts():
            _refuse(step, "has none; write it as .fld first, or use .shuffle().batch() of it")
        if not isinstance(step, MapNode):
            _refuse(step, "takes elements as they come; let it be known ahead, or iterate over it")
        if not isinstance(step, IndexNode):
            _refuse(step, "does more than choose samples; leave it to pipelines= or transforms=, or iterate over it")
        if len(step.parts()) != 1:
            _refuse(step, "brings several datasets together; write them as one, or iterate over it")
        (beneath,) = step.parts()
        assert isinstance(beneath, MapNode)
        if step.epochal() and not beneath.epochal():
            _refuse(step, "chooses anew in each pass, as the loader does by itself; leave it out")
        if endless and not beneath.endless():
            _refuse(step, "has no end, and each pass of a loader has one; leave it out")
        step = beneath
    if node is step:
        return Chosen(step.reader, None, step.fields)
    assert isinstance(node, MapNode)
    length = node.length(run)
    assert length is not None
    indices = np.empty(length, np.int64)
    for group in groups(node, run, 0, np.arange(length, dtype=np.int64)):
        indices[group.asked] = group.positions
    return Chosen(step.reader, indices, step.fields)


def _refuse(step: Node, why: str) -> NoReturn:
    raise TypeError(f"a loader takes a dataset that only chooses samples of a reader, and {step.label()} {why}")


def _place(reader: DatasetReader) -> bytes | None:
    """The store that a reader's objects are in, with all its options; ``None`` for local files."""
    return pickle.dumps(reader.path.store) if isinstance(reader.path, ObjectPath) else None


def _schema(reader: DatasetReader) -> tuple[Any, ...]:
    fields = ((d.name, d.type_id, d.flags, d.metadata_size, d.arguments) for d in reader.dataset.descriptors)
    return (reader.has_keys, *fields)
