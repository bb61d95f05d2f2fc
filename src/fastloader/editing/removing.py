"""Rows taken out, as few ranges."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastloader.formats.fld import Dataset, Removed
from fastloader.formats.fld.runs import as_ranges


def with_removed(dataset: Dataset, places: NDArray[np.int64]) -> Iterator[Removed]:
    """What is removed, with more rows, as few ranges."""
    before = np.array(dataset.removed, np.int64).reshape(-1, 4)[:, [0, 2, 3]]
    fresh = np.array(as_ranges(places), np.int64).reshape(-1, 2)
    ranges = np.concatenate([np.stack([dataset.row_starts[before[:, 0]] + before[:, 1], before[:, 2]], 1), fresh])
    ranges = ranges[np.argsort(ranges[:, 0])]
    ends = ranges[:, 0] + ranges[:, 1]
    apart = np.concatenate([[True], ranges[1:, 0] != ends[:-1]])
    firsts, behind = ranges[apart, 0], ends[np.append(apart[1:], True)]
    # A range that goes on from one shard into the next is one in each.
    edges = dataset.row_starts[1:-1]
    inner = edges[_strictly_inside(edges, firsts, behind)]
    firsts, behind = np.sort(np.concatenate([firsts, inner])), np.sort(np.concatenate([behind, inner]))
    shards = np.searchsorted(dataset.row_starts, firsts, "right") - 1
    for shard, first, count in zip(
        shards.tolist(), (firsts - dataset.row_starts[shards]).tolist(), (behind - firsts).tolist(), strict=True
    ):
        if count:
            yield Removed(shard, False, first, count)


def _strictly_inside(
    edges: NDArray[np.int64], firsts: NDArray[np.int64], behind: NDArray[np.int64]
) -> NDArray[np.bool_]:
    at = np.searchsorted(firsts, edges, "left") - 1
    return np.asarray((at >= 0) & (edges < behind[np.maximum(at, 0)]))
