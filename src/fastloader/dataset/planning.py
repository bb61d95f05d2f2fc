"""Which samples go into which shard, known before they are read: so shards can be written apart, and elsewhere.

What a sample will take is told by its source: extents in tables, sizes of files, or the mean over a file of many. How
values compare with that is told from the samples that fields are told from. So shards are of about the size asked for,
and where each ends costs no reading but that of tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.dataset.base import MapNode, Run
from fastloader.dataset.indexing import groups
from fastloader.dataset.records import FromRecords
from fastloader.dataset.sources import FromReader
from fastloader.formats.files import EachFile
from fastloader.formats.objects import status_of
from fastloader.formats.records import Records
from fastloader.kernels import crc32c
from fastloader.reader import DatasetReader
from fastloader.stores.urls import is_url
from fastloader.types import distinct
from fastloader.writer.intake import size_of

AT_ONCE = 1 << 16
"""Samples whose sizes are in memory at a time."""

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """Shard ``k`` holds the samples from ``edges[k]`` up to ``edges[k + 1]``."""

    edges: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.edges) - 1

    def run(self, number: int) -> tuple[int, int]:
        """First sample of a shard, and how many there are."""
        first, end = self.edges[number : number + 2]
        return first, end - first

    def digest(self) -> str:
        """Another one for another plan."""
        return f"{len(self)}-{crc32c(np.array(self.edges, '<i8').tobytes()):08x}"


def plan_shards(
    node: MapNode, run: Run, size: int, looked: Sequence[tuple[int, Mapping[str, Any]]], mean: int = 1
) -> Plan:
    """Shards of about ``size`` bytes: each ends with the sample that makes it that large.

    ``looked`` are samples that were read, with their places; where there are none, sources tell what is stored as it
    is. ``mean`` is for samples of which nothing is known.
    """
    held = [size_of(sample) for _, sample in looked]
    told = weights(node, run, np.array([place for place, _ in looked], np.int64))
    known = ~np.isnan(told)
    mean = max(1, sum(held) // len(held)) if held else max(1, mean)
    factor = float(np.sum(held, where=known)) / max(1.0, float(np.sum(told, where=known))) if known.any() else 1.0
    edges = [0]
    room = size
    total = node.length(run) or 0
    for first in range(0, total, AT_ONCE):
        places = np.arange(first, min(first + AT_ONCE, total), dtype=np.int64)
        found = weights(node, run, places) * factor
        sums = np.cumsum(np.maximum(1, np.rint(np.where(np.isnan(found), mean, found)).astype(np.int64)))
        at = before = 0
        while True:
            at = int(np.searchsorted(sums, before + room, "left"))  # the sample that fills it
            if at >= len(sums):
                room -= int(sums[-1]) - before
                break
            edges.append(first + at + 1)
            before, room = int(sums[at]), size
    if edges[-1] != total or total == 0:
        edges.append(total)
    return Plan(tuple(edges))


def weights(node: MapNode, run: Run, places: NDArray[np.int64]) -> Weights:
    """What sources say that samples take, in bytes; NaN where nothing does."""
    found = np.full(len(places), np.nan)
    for group in groups(node, run, 0, places) if len(places) else ():
        if isinstance(group.node, FromReader):
            found[group.asked] = _of_reader(group.node.reader, group.node.fields, group.positions)
        elif isinstance(group.node, FromRecords):
            found[group.asked] = _of_records(group.node.records, group.positions)
    return found


def _of_reader(reader: DatasetReader, names: Sequence[str] | None, samples: NDArray[np.int64]) -> Weights:
    dataset = reader.dataset
    found = np.zeros(len(samples))
    sources, rows = dataset.runs.locate(samples)
    fields = [i for i, name in enumerate(dataset.names) if names is None or name in names]
    for source in distinct(sources).tolist():
        mine = sources == source
        file: Any = dataset.file(source)
        if not hasattr(file, "payload_sizes"):
            return np.full(len(samples), np.nan)
        found[mine] = sum(
            file.payload_sizes(field, rows[mine]) + file.descriptors[field].metadata_size for field in fields
        )
    return found


def _of_records(records: Records, samples: NDArray[np.int64]) -> Weights:
    if isinstance(records, EachFile):
        if any(is_url(path) for path in records.paths[:1]):  # each would be a request
            return np.full(len(samples), np.nan)
        return np.array([status_of(records.paths[number]).st_size for number in samples.tolist()], np.float64)
    starts = records.starts
    numbers = np.searchsorted(starts, samples, "right") - 1
    means = {number: records.source(number).size / (starts[number + 1] - starts[number])
             for number in distinct(numbers).tolist()}  # fmt: skip
    return np.array([means[number] for number in numbers.tolist()], np.float64)
