"""Files beside shards: a column for all rows of a shard, or new values for some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.formats.fld import Chunk, Dataset, FieldSpec, FldBuilder
from fastloader.formats.fld.changing import FolderOrBucket
from fastloader.formats.fld.manifest import Beside
from fastloader.formats.fld.runs import as_ranges
from fastloader.writer.encoding import bad_value, encode_column

AT_ONCE = 1024
Ints = NDArray[np.int64]


def live_rows(dataset: Dataset, shard: int) -> tuple[int, Ints]:
    """The number of a shard's first sample, and the rows that its samples are."""
    begin, end = dataset.runs.rank(dataset.row_starts[shard : shard + 2]).tolist()
    return begin, dataset.runs.places_of(np.arange(begin, end)) - int(dataset.row_starts[shard])


def write_beside(
    change: FolderOrBucket, dataset: Dataset, shard: int, number: int, specs: Sequence[FieldSpec], rows: Ints,
    values: Iterator[Sequence[Any]],
) -> Beside:  # fmt: skip
    """A file with these fields of a shard: ``values`` gives those of each of the ``rows``, which ascend.

    Where these are all its samples, the file is there for all rows; what is removed has no value in it.
    """
    name = change.name("beside", number)
    count = dataset.shards[shard].num_samples
    first, live = live_rows(dataset, shard)
    builder = FldBuilder(change.place(name), specs, dataset.page_size, keys=False)
    try:
        for begin in range(0, max(count, 1), AT_ONCE):
            end = min(begin + AT_ONCE, count)
            low, high = np.searchsorted(rows, [begin, end]).tolist()
            columns: list[list[Any]] = [[None] * (end - begin) for _ in specs]
            for row in rows[low:high].tolist():
                sample = first + int(np.searchsorted(live, row))
                for column, spec, value in zip(columns, specs, next(values), strict=True):
                    column[row - begin] = _taken(spec, value, sample)
            # Errors count samples, and a chunk counts rows; they agree where nothing is removed before.
            at = first + int(np.searchsorted(live, begin))
            builder.append(
                Chunk(
                    end - begin,
                    [encode_column(spec, column, at) for spec, column in zip(specs, columns, strict=True)],
                    None,
                )
            )
        size, identity = builder.finish()
    finally:
        builder.discard()
    change.made(name)
    held = None if len(rows) == len(live) else tuple(as_ranges(rows))
    return Beside(shard, name, size, identity, tuple(spec.name for spec in specs), held)


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
