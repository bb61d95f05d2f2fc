"""Which bytes of a file are worth reading at once: those of the payloads that begin on the same pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.formats.fld.file import FldFile
from fastloader.formats.fld.layout import EXTENT, Kind


def payload_spans(file: FldFile, fields: Sequence[int], unit: int) -> NDArray[np.uint64]:
    """Where the payloads of samples that begin within the same ``unit`` of bytes (so many pages) begin and end, and how
    many they are if none is missing: rows of three numbers, in order.

    Where the first and last samples of pages have no payload, or their rows are damaged, there is no span.
    """
    found = page_spans(file, fields)
    if found is None:
        return np.zeros((0, 3), np.uint64)
    begin, end = found
    samples = file.pages()["num_samples"]
    held = np.flatnonzero(samples)
    starts = np.flatnonzero(np.diff(held * file.header.page_size // unit, prepend=-1))
    payloads = np.add.reduceat(samples[held].astype(np.uint64) * np.uint64(len(fields)), starts)
    spans = np.stack([np.minimum.reduceat(begin, starts), np.maximum.reduceat(end, starts), payloads], 1)
    return spans[np.logical_and.reduceat(begin < end, starts)]


def page_spans(file: FldFile, fields: Sequence[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
    """Where the payloads of samples that begin on a page begin and end, for each page that has such samples.

    Records follow one another, so the first and the last sample of a page tell. A page whose first and last samples
    have no payload ends before it begins; where there are no pages, or rows are damaged, it is ``None``.
    """
    pages = file.pages()
    held = np.flatnonzero(pages["num_samples"])
    first = pages["first_sample"][held].astype(np.int64)
    last = first + pages["num_samples"][held].astype(np.int64) - 1
    if not len(held) or min(first.min(), last.min()) < 0 or max(first.max(), last.max()) >= file.num_samples:
        return None
    begin, end = np.full(len(held), np.iinfo(np.uint64).max, np.uint64), np.zeros(len(held), np.uint64)
    for field in fields:
        try:
            firsts, lasts = _extents(file, field, first), _extents(file, field, last)
        except kernels.Failure:  # told by who reads the samples
            return None
        begin = np.where(firsts["size"] > 0, np.minimum(begin, firsts["pointer"]), begin)
        end = np.where(lasts["size"] > 0, np.maximum(end, lasts["pointer"] + lasts["size"]), end)
    return begin, end


def _extents(file: FldFile, field: int, rows: NDArray[np.int64]) -> NDArray[np.void]:
    found = np.zeros(len(rows), EXTENT)
    table = file.table(Kind.EXTENTS, field, rows)
    if table is not None:
        kernels.take([table], None, rows, found.view(np.uint8))
    return found
