"""A ``.fld`` dataset as one of Ray Data: read in parallel by runs of pages, and only the fields that are asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from ray.data import read_datasource
from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.util.scheduling_strategies import In, NodeLabelSchedulingStrategy

from fastloader.errors import FastLoaderError, KeyNotFoundError
from fastloader.formats.fld import Dataset
from fastloader.ray.library import ray
from fastloader.ray.nodes import nodes_that_see
from fastloader.reader import DatasetReader
from fastloader.samplers import Pages

BLOCK_BYTES = 64 << 20
"""About what a block takes in memory: a read gives several, so that workers need no more."""
LOOKED_AT = 16


def read_fld(
    url: str,
    fields: Sequence[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A ``ray.data.Dataset`` of the samples of a ``.fld`` dataset, on a disk or in a store.

    A read is a run of pages; there are as many as Ray wants (``override_num_blocks``). Only ``fields`` are read, and of
    these only what later steps select. Files of a disk are read on the nodes that see them. ``options`` are those of
    ``ray.data.read_datasource``.

    Numbers and arrays of one shape are columns of their own kind; arrays of several shapes, text and bytes too. Images
    are decoded, to arrays of (height, width, channels).
    """
    reader = DatasetReader(url, storage_options)
    names = reader.field_names if fields is None else list(fields)
    unknown = [name for name in names if name not in reader.field_names]
    if unknown or not names:
        raise KeyNotFoundError(
            f"fields: unknown {', '.join(map(repr, unknown)) or 'none'}; there are {', '.join(reader.field_names)}",
            path=url,
        )
    if not reader.dataset.is_remote and ray.is_initialized():  # else Ray starts on this machine alone
        seen = nodes_that_see([reader.dataset.local / reader.dataset.shards[0].path])
        if seen is not None:
            remote = dict(options.pop("ray_remote_args", None) or {})
            remote.setdefault("scheduling_strategy", NodeLabelSchedulingStrategy(hard={"ray.io/node-id": In(*seen)}))
            options["ray_remote_args"] = remote
    return read_datasource(FldDatasource(reader.dataset, names), **options)


class FldDatasource(Datasource):
    """The samples of a snapshot: what is appended later is not read."""

    def __init__(self, dataset: Dataset, names: Sequence[str]) -> None:
        super().__init__()
        self._dataset = dataset
        self._names = list(names)
        self._row_bytes = _row_bytes(dataset, self._names)

    def get_name(self) -> str:
        """What Ray calls the reads."""
        return "ReadFld"

    def supports_projection_pushdown(self) -> bool:
        """Columns that nobody selects are not read."""
        return True

    def get_projection_map(self) -> dict[str, str]:
        """The fields, which keep their names."""
        return {name: name for name in self._names}

    def apply_projection(self, projection_map: Mapping[str, str] | None) -> FldDatasource:
        """The same with fewer fields."""
        if projection_map is None:
            return self
        fewer = copy.copy(self)
        fewer._names = [name for name in self._names if name in projection_map]
        return fewer

    def estimate_inmemory_data_size(self) -> int:
        """What all samples would take in memory, told from some."""
        return self._row_bytes * self._dataset.num_samples

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Runs of whole pages, about equal in samples."""
        tasks = []
        for first, end in runs_of_pages(self._dataset, parallelism):
            files = _files(self._dataset, first, end)
            metadata = BlockMetadata(
                num_rows=end - first, size_bytes=(end - first) * self._row_bytes, exec_stats=None, input_files=files
            )
            read = _read(self._dataset, tuple(self._names), first, end, self._row_bytes)
            tasks.append(ReadTask(read, metadata, per_task_row_limit=per_task_row_limit))
        return tasks


def runs_of_pages(dataset: Dataset, count: int) -> list[tuple[int, int]]:
    """The samples in at most ``count`` runs, which end where pages do: so no page is read by two."""
    total = dataset.num_samples
    if total == 0:
        return []
    firsts = Pages.of(dataset).first  # of numbers alone, a shard is a page
    wanted = np.arange(1, count) * total // count
    near = np.searchsorted(firsts, wanted)
    edges = np.unique([0, *firsts[near[near < len(firsts)]].tolist(), total]).tolist()
    return list(pairwise(edges))


def _files(dataset: Dataset, first: int, end: int) -> tuple[str, ...]:
    low, high = dataset.where(first)[0], dataset.where(end - 1)[0]
    return tuple(str(dataset.path / shard.path) for shard in dataset.shards[low : high + 1])


def _read(
    dataset: Dataset, names: tuple[str, ...], first: int, end: int, row_bytes: int
) -> Callable[[], Iterator[Any]]:
    rows = max(1, BLOCK_BYTES // max(1, row_bytes))

    def read() -> Iterator[Any]:
        reader = DatasetReader.of(dataset)
        for begin in range(first, end, rows):
            yield block_of(reader, names, np.arange(begin, min(begin + rows, end)))

    return read


def block_of(reader: DatasetReader, names: Sequence[str], samples: Any) -> Any:
    """Samples as a block of Ray Data."""
    if not names:  # who counts asks for no column at all
        rows = pa.array([{}] * len(samples), pa.struct([]))
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)])
    batch = reader.read_batch(samples, names)
    return BlockAccessor.batch_to_block({name: column_of(batch[name], len(samples)) for name in names})


def column_of(values: Any, count: int) -> Any:
    """A batch's values as a column: an array as it is, anything else value by value; what is missing is ``None``."""
    if isinstance(values, np.ma.MaskedArray):
        kept = np.ma.getmaskarray(values).reshape(count, -1)[:, :1].ravel()
        return _objects([None if gone else value for value, gone in zip(np.asarray(values), kept, strict=True)])
    if isinstance(values, np.ndarray):
        return values
    return _objects([_plain(value) for value in values])


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def _objects(values: list[Any]) -> Any:
    column = np.empty(len(values), object)
    for i, value in enumerate(values):  # numpy would make one array of arrays of equal shape
        column[i] = value
    return column


def _row_bytes(dataset: Dataset, names: Sequence[str]) -> int:
    """What a sample takes in memory, told from a few."""
    if dataset.num_samples == 0:
        return 1
    samples = np.unique(np.linspace(0, dataset.num_samples - 1, LOOKED_AT).astype(np.int64))
    try:
        block = block_of(DatasetReader.of(dataset), names, samples)
    except FastLoaderError:  # who reads the sample is told; the others may be asked for
        return max(1, dataset.sample_bytes)
    return max(1, int(BlockAccessor.for_block(block).size_bytes()) // len(samples))
