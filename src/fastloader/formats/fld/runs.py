"""Where samples lie once some are gone or changed: runs of rows, found by binary search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastloader.types import distinct

Ints = NDArray[np.int64]
Ranges = NDArray[np.int64]
"""Rows of (first, behind the last), ascending and apart."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Samples as runs of rows: those from ``starts[i]`` on are the rows from ``firsts[i]`` on of source ``sources[i]``.

    ``starts`` has one number more, the number of all samples. ``places`` says where each run begins among all rows of
    all shards, removed ones too; it ascends, so samples keep the order of their rows. No run is empty unless all are.
    """

    starts: Ints
    sources: Ints
    firsts: Ints
    places: Ints

    @classmethod
    def of(cls, counts: Ints) -> Runs:
        """All rows of shards, which have so many each."""
        starts = _sums(counts)
        return cls(starts, np.arange(len(counts)), np.zeros(len(counts), np.int64), starts[:-1])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def locate(self, samples: Ints) -> tuple[Ints, Ints]:
        """Source and row of each sample; all of them are there."""
        run = np.searchsorted(self.starts, samples, "right") - 1
        return self.sources[run], samples - self.starts[run] + self.firsts[run]

    def where(self, sample: int) -> tuple[int, int]:
        """Source and row of one sample."""
        run = int(np.searchsorted(self.starts, sample, "right")) - 1
        return int(self.sources[run]), sample - int(self.starts[run]) + int(self.firsts[run])

    def rank(self, places: Ints) -> Ints:
        """How many samples come before these places among all rows."""
        if not len(self.places):
            return np.zeros(len(places), np.int64)
        run = np.searchsorted(self.places, places, "right") - 1
        there = np.maximum(run, 0)
        within = np.minimum(places - self.places[there], self.starts[there + 1] - self.starts[there])
        return np.where(run < 0, 0, self.starts[there] + within)

    def sample_at(self, place: int) -> int | None:
        """The sample at a place among all rows; ``None`` where it is removed."""
        before, behind = self.rank(np.array([place, place + 1])).tolist()
        return before if behind > before else None

    def places_of(self, samples: Ints) -> Ints:
        """Where samples are among all rows."""
        run = np.searchsorted(self.starts, samples, "right") - 1
        return self.places[run] + samples - self.starts[run]


@dataclass(frozen=True, slots=True)
class Source:
    """A shard as some of its rows are read: with which of the files beside it."""

    shard: int
    beside: tuple[int, ...] = ()


def lay_runs(
    counts: Ints,
    removed: Ints,
    beside: Sequence[tuple[int, Sequence[tuple[int, int]] | None]],
) -> tuple[Runs, list[Source]]:
    """The runs of a dataset and the sources they are of.

    ``counts`` are the rows of its shards; ``removed`` are rows of (shard, first, count), which ascend; ``beside`` are
    the files beside shards, each with its shard and the ranges (first, count) of rows it holds, or ``None`` for all.
    The first sources are the shards with what is beside all their rows.
    """
    whole: dict[int, list[int]] = defaultdict(list)
    some: dict[int, list[int]] = defaultdict(list)
    for number, (shard, rows) in enumerate(beside):
        (whole if rows is None else some)[shard].append(number)
    sources = [Source(shard, tuple(whole.get(shard, ()))) for shard in range(len(counts))]
    gone = _by_shard(removed)
    touched = sorted({*gone, *some})
    if not touched:
        return Runs.of(counts), sources
    starts = _sums(counts)
    pieces: list[tuple[Ints, Ints, Ints]] = []
    before = 0
    for shard in [*touched, len(counts)]:
        plain = np.arange(before, shard)
        pieces.append((plain, np.zeros(len(plain), np.int64), counts[before:shard]))
        if shard < len(counts):
            held = [(number, np.asarray(beside[number][1], np.int64).reshape(-1, 2)) for number in some.get(shard, ())]
            pieces.append(_cut(shard, int(counts[shard]), gone.get(shard), held, sources))
        before = shard + 1
    which, firsts, sizes = (np.concatenate([piece[i] for piece in pieces]) for i in range(3))
    kept = sizes > 0
    if not kept.any():
        nothing = np.zeros(1, np.int64)  # a run of none, so that there is a file to tell what it would be of
        return Runs(np.zeros(2, np.int64), nothing, nothing, nothing), sources
    which, firsts, sizes = which[kept], firsts[kept], sizes[kept]
    shards = np.array([source.shard for source in sources], np.int64)
    return Runs(_sums(sizes), which, firsts, starts[shards[which]] + firsts), sources


def _cut(
    shard: int, count: int, gone: Ranges | None, held: Sequence[tuple[int, Ints]], sources: list[Source]
) -> tuple[Ints, Ints, Ints]:
    """What is left of a shard: for each run its source, first row and number of rows. New sources are added."""
    edges = [np.array([0, count])]
    ranges = [np.stack([rows[:, 0], rows[:, 0] + rows[:, 1]], 1) for _, rows in held]
    for one in [*ranges, *([] if gone is None else [gone])]:
        edges.append(one.reshape(-1))
    cuts = distinct(np.concatenate(edges))
    firsts, sizes = cuts[:-1], np.diff(cuts)
    kept = np.ones(len(firsts), np.bool_) if gone is None else ~_inside(firsts, gone)
    firsts, sizes = firsts[kept], sizes[kept]
    covered = np.stack([_inside(firsts, one) for one in ranges], 1) if ranges else np.zeros((len(firsts), 0), np.bool_)
    which = np.full(len(firsts), shard)
    if covered.any():
        kinds, of = np.unique(covered, axis=0, return_inverse=True)
        numbers = np.empty(len(kinds), np.int64)
        for i, kind in enumerate(kinds):
            if not kind.any():
                numbers[i] = shard
                continue
            numbers[i] = len(sources)
            extra = [number for (number, _), is_held in zip(held, kind, strict=True) if is_held]
            # In the order in which they were written: of two that hold a value, the later one counts.
            sources.append(Source(shard, tuple(sorted([*sources[shard].beside, *extra]))))
        which = numbers[of.reshape(-1)]
    # Neighbours of one source are one run.
    together = np.flatnonzero(
        np.concatenate([[True], (which[1:] != which[:-1]) | (firsts[1:] != (firsts + sizes)[:-1])])[: len(firsts)]
    )
    if not len(firsts):
        return which, firsts, sizes
    return which[together], firsts[together], np.add.reduceat(sizes, together)


def _inside(rows: Ints, ranges: Ranges) -> NDArray[np.bool_]:
    """Which rows lie in one of the ranges."""
    if not len(ranges):
        return np.zeros(len(rows), np.bool_)
    at = np.searchsorted(ranges[:, 0], rows, "right") - 1
    return np.asarray((at >= 0) & (rows < ranges[np.maximum(at, 0), 1]))


def _by_shard(rows: Ints) -> dict[int, Ranges]:
    if not len(rows):
        return {}
    shards, first = np.unique(rows[:, 0], return_index=True)
    parts = np.split(np.stack([rows[:, 1], rows[:, 1] + rows[:, 2]], 1), first[1:])
    return dict(zip(shards.tolist(), parts, strict=True))


def _sums(counts: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def as_ranges(rows: Ints) -> list[tuple[int, int]]:
    """Rows, which ascend, as few ranges (first, count)."""
    if not len(rows):
        return []
    first = np.flatnonzero(np.concatenate([[True], np.diff(rows) != 1]))
    sizes = np.diff(np.append(first, len(rows)))
    return list(zip(rows[first].tolist(), sizes.tolist(), strict=True))
