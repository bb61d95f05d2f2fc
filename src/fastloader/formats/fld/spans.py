"""Which bytes of a file are worth reading at once: those of the payloads that begin on the same pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.formats.fld.file import FldFile
from fastloader.formats.fld.layout import EXTENT, Kind

NONE = (1, 0)
"""A span that ends before it begins: it can't be told, or there is nothing."""


def payload_spans(file: FldFile, fields: Sequence[int], unit: int) -> NDArray[np.uint64]:
    """For each ``unit`` of bytes (so many pages), where the payloads of samples that begin there begin and end.

    Records follow one another, so the first and the last sample of a page tell. What they say is not to be relied on:
    a damaged table is told by who reads the samples.
    """
    pages = file.pages()
    held = np.flatnonzero(pages["num_samples"])
    first = pages["first_sample"][held].astype(np.int64)
    last = first + pages["num_samples"][held].astype(np.int64) - 1
    each = unit // file.header.page_size
    spans = np.full((-(-len(pages) // each), 2), NONE, np.uint64)
    if not len(held) or min(first.min(), last.min()) < 0 or max(first.max(), last.max()) >= file.num_samples:
        return spans
    begin, end = np.full(len(held), np.iinfo(np.uint64).max, np.uint64), np.zeros(len(held), np.uint64)
    for field in fields:
        try:
            firsts, lasts = _extents(file, field, first), _extents(file, field, last)
        except kernels.Failure:
            return spans
        begin = np.where(firsts["size"] > 0, np.minimum(begin, firsts["pointer"]), begin)
        end = np.where(lasts["size"] > 0, np.maximum(end, lasts["pointer"] + lasts["size"]), end)
    known, where = begin < end, held // each
    np.minimum.at(lowest := np.full(len(spans), np.iinfo(np.uint64).max, np.uint64), where, begin)
    np.maximum.at(highest := np.zeros(len(spans), np.uint64), where, end)
    good = lowest < highest
    good[where[~known]] = False
    spans[good] = np.stack([lowest, highest], 1)[good]
    return spans


def _extents(file: FldFile, field: int, rows: NDArray[np.int64]) -> NDArray[np.void]:
    found = np.zeros(len(rows), EXTENT)
    table = file.table(Kind.EXTENTS, field, rows)
    if table is not None:
        kernels.take([table], None, rows, found.view(np.uint8))
    return found
