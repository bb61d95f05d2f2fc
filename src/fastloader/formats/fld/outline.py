"""All paths of an archive, whatever its shards, for checks of the whole."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastloader.formats.extractable import Link
from fastloader.formats.fld.dataset import Dataset
from fastloader.formats.fld.file import FldFile
from fastloader.formats.fld.layout import Kind
from fastloader.formats.fld.nodes import nodes_of
from fastloader.formats.fld.tree import Node

_ROWS = 1 << 16


def outline(dataset: Dataset) -> tuple[Iterator[bytes], dict[bytes, Link]]:
    """Paths in ascending order, those of folders with a slash behind, and the links among them."""
    links: dict[bytes, Link] = {}
    streams: list[Iterator[bytes]] = []
    for number in range(len(dataset.shards)):
        file = dataset.file(number)
        gone = [
            np.concatenate([np.zeros(0, np.int64), *(
                np.arange(one.first, one.first + one.count)
                for one in dataset.removed if one.shard == number and one.is_node == is_node
            )])
            for is_node in (False, True)
        ]  # fmt: skip
        for node in _nodes(file, gone[True]):
            if not node.path.endswith(b"/"):
                links[node.path] = node.kind, node.target
        streams += [_files(file, gone[False]), (node.path for node in _nodes(file, gone[True]))]
    return heapq.merge(*streams), links


def _nodes(file: FldFile, gone: NDArray[np.int64]) -> Iterator[Node]:
    removed = set(gone.tolist())
    return (node for row, node in enumerate(nodes_of(file)) if row not in removed)


def _files(file: FldFile, gone: NDArray[np.int64]) -> Iterator[bytes]:
    keys, order = file.keys(), file.table(Kind.KEY_ORDER)
    if keys is None:  # a shard that is no archive's, which its own checks tell
        return
    for first in range(0, file.num_samples, _ROWS):
        count = min(_ROWS, file.num_samples - first)
        rows = np.arange(first, first + count)
        if order is not None and order.rows:
            rows = np.frombuffer(order.row(first, count), "<u8").astype(np.int64)
        yield from map(keys.key, rows[~np.isin(rows, gone)].tolist() if len(gone) else rows.tolist())
