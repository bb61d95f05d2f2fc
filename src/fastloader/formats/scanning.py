"""Where the lines of a text file are, told from its bytes, many of them at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastloader.errors import FormatError
from fastloader.formats.indexes import Ranges
from fastloader.formats.objects import Object

BOM = b"\xef\xbb\xbf"
QUOTE = ord('"')
SCANNED = 4 << 20
"""Bytes that are read at once."""


def begin_of(source: Object) -> int:
    """Where the first line is: behind the mark of UTF-8, which some write."""
    return len(BOM) if source.read(0, min(len(BOM), source.size)) == BOM else 0


class Quotes:
    """Which quotes open and close values, as ``csv`` has it: one opens a value only where that begins.

    Pieces are looked at one after the other. Where each quote that would open a value can, which is nearly always, all
    count and nothing is looked at one by one.
    """

    def __init__(self, delimiters: str) -> None:
        self._begins = np.zeros(256, np.bool_)
        self._begins[list(f"{delimiters}\r\n".encode())] = True
        self._may_open = self._begins.copy()
        self._may_open[QUOTE] = True  # behind one that closed a value: both stand for a quote within it
        self._last = ord("\n")
        self.open = False

    def outside(self, piece: Any, places: Any) -> Any:
        """Those of some places in the next piece that lie outside of quotes."""
        quotes = np.flatnonzero(piece == QUOTE)
        if not self._may_open[self._before(piece, quotes[int(self.open) :: 2])].all():
            quotes = quotes[self._one_by_one(quotes, self._begins[self._before(piece, quotes)])]
        places = places[(np.searchsorted(quotes, places) + self.open) % 2 == 0]
        self.open = bool((len(quotes) + self.open) % 2)
        closed = len(quotes) and quotes[-1] == len(piece) - 1 and not self.open
        self._last = 0 if piece[-1] == QUOTE and not closed else int(piece[-1])
        return places

    def _before(self, piece: Any, quotes: Any) -> Any:
        """The byte before each; 0 for a quote of the last piece that closed nothing."""
        found = piece[quotes - 1]
        if len(quotes) and not quotes[0]:
            found[0] = self._last
        return found

    def _one_by_one(self, quotes: Any, begins: Any) -> list[bool]:
        """Of each quote, whether it opens or closes a value, rather than being a part of one."""
        found, is_open, closed = [], self.open, -1 if self._last == QUOTE else -2
        for at, may_open in zip(quotes.tolist(), begins.tolist(), strict=True):
            counts = is_open or may_open or closed == at - 1
            if is_open:
                closed = at
            is_open ^= counts
            found.append(counts)
        return found


def scan(source: Object, begin: int, delimiters: str | None = None, size: int | None = None) -> Iterator[Ranges]:
    """Where records are, blank lines left out; with ``delimiters``, a line goes on where quotes are open.

    ``size`` bytes are read at once.
    """
    start, size = begin, size or SCANNED
    quotes = None if delimiters is None else Quotes(delimiters)
    for offset in range(begin, source.size, size):
        piece = np.frombuffer(source.read(offset, min(size, source.size - offset)), np.uint8)
        ends = np.flatnonzero(piece == ord("\n"))
        if quotes is not None:
            ends = quotes.outside(piece, ends)
        if len(ends):
            starts = np.concatenate([[start], ends[:-1] + 1 + offset])
            start = int(ends[-1]) + 1 + offset
            yield _filled(source, np.stack([starts, ends + offset - starts], 1), piece, offset)
    if start < source.size:
        if quotes is not None and quotes.open:
            raise FormatError(f"at offset {start}: quotes are opened and never closed", path=source.path)
        yield _filled(source, np.array([[start, source.size - start]]), b"", source.size)


def _filled(source: Object, ranges: Ranges, piece: Any, offset: int) -> Ranges:
    """Without blank lines; only short ones need a look."""
    blank = ranges[:, 1] == 0
    for at in np.flatnonzero(ranges[:, 1] == 1).tolist():
        where = int(ranges[at, 0]) - offset
        blank[at] = (piece[where] if where >= 0 else source.read(offset + where, 1)[0]) == ord("\r")
    return np.ascontiguousarray(ranges[~blank])
