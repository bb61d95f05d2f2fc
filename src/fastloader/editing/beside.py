"""Files beside shards: a column for all rows of a shard, or new values for some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import SampleError
from fastloader.formats.fld import Chunk, Column, Dataset, FieldSpec, FldBuilder
from fastloader.formats.fld.changing import FolderOrBucket
from fastloader.formats.fld.manifest import Beside
from fastloader.formats.fld.runs import as_ranges
from fastloader.writer.encoding import Dictionary, bad_value, encode_column
from fastloader.writer.intake import size_of
from fastloader.writer.training import Training

AT_ONCE = 1024
Ints = NDArray[np.int64]


def live_rows(dataset: Dataset, shard: int) -> tuple[int, Ints]:
    """The number of a shard's first sample, and the rows that its samples are."""
    begin, end = dataset.runs.rank(dataset.row_starts[shard : shard + 2]).tolist()
    return begin, dataset.runs.places_of(np.arange(begin, end)) - int(dataset.row_starts[shard])


@dataclass(frozen=True)
class NewColumn:
    """A field as it is stored beside shards, and the dictionary its payloads are compressed with, if there is one."""

    spec: FieldSpec
    dictionary: Dictionary | None = None


def learned(spec: FieldSpec, values: Iterator[Sequence[Any]]) -> tuple[NewColumn, Iterator[Sequence[Any]]]:
    """The column with a dictionary made of the first values, where its field asks for one; and all values again."""
    training = Training([spec], {})
    if not training.wanted:
        return NewColumn(spec), values
    looked: list[Sequence[Any]] = []
    for value in values:
        looked.append(value)
        if training.look(value, size_of(value[0])) or not training.held:
            break
    return NewColumn(spec, training.finish().get(0)), chain(looked, values)


def write_beside(
    change: FolderOrBucket, dataset: Dataset, shard: int, number: int, columns: Sequence[NewColumn], rows: Ints,
    values: Iterator[Sequence[Any]],
) -> Beside:  # fmt: skip
    """A file with these columns of a shard: ``values`` gives those of each of the ``rows``, which ascend.

    Where these are all its samples, the file is there for all rows; what is removed has no value in it.
    """
    name = change.name("beside", number)
    count = dataset.shards[shard].num_samples
    first, live = live_rows(dataset, shard)
    specs = [column.spec for column in columns]
    builder = FldBuilder(change.place(name), specs, dataset.page_size, keys=False)
    try:
        for begin in range(0, max(count, 1), AT_ONCE):
            end = min(begin + AT_ONCE, count)
            low, high = np.searchsorted(rows, [begin, end]).tolist()
            taken: list[list[Any]] = [[None] * (end - begin) for _ in columns]
            for row in rows[low:high].tolist():
                sample = first + int(np.searchsorted(live, row))
                for part, spec, value in zip(taken, specs, next(values), strict=True):
                    part[row - begin] = _taken(spec, value, sample)
            encoded = [_encoded(column, part, begin, first, live) for column, part in zip(columns, taken, strict=True)]
            builder.append(Chunk(end - begin, encoded, None))
        size, identity = builder.finish()
    finally:
        builder.discard()
    change.made(name)
    held = None if len(rows) == len(live) else tuple(as_ranges(rows))
    return Beside(shard, name, size, identity, tuple(spec.name for spec in specs), held)


def _encoded(column: NewColumn, values: Sequence[Any], begin: int, first: int, live: Ints) -> Column:
    """Rows from ``begin`` on, encoded. What can't be is told by the number of its sample, not that of its row."""
    try:
        return encode_column(column.spec, values, begin, column.dictionary)
    except SampleError as error:
        if error.sample is not None:
            error.sample = first + int(np.searchsorted(live, error.sample))
        raise


def _taken(spec: FieldSpec, value: Any, sample: int) -> Any:
    try:
        return None if value is None else spec.field.prepare(value)
    except Exception as error:
        raise bad_value(error, sample, spec.name) from error


def by_fields(updates: Mapping[int, Mapping[str, Any]]) -> dict[tuple[str, ...], list[int]]:
    """Rows grouped by the fields they get new values of."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for row in sorted(updates):
        groups.setdefault(tuple(sorted(updates[row])), []).append(row)
    return groups
