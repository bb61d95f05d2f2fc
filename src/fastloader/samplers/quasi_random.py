"""A shuffle that reads whole pages: page order at random, samples mixed within a window of pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.samplers.cache import EpochCache
from fastloader.samplers.checks import checksum, frozen, integers, positions, seed_of, whole
from fastloader.samplers.hashing import Stream, fold
from fastloader.samplers.order import Description, Shuffled

MAX_RUNS = 2**20
"""With more pages than this, neighbours are taken together, so that an order stays under about 50 MB."""
MANY_SHARDS = 4096
"""With more shards than this, pages are told from the manifest: opening all shards would take minutes, on each rank."""
LEAST_RUN = 16


class PagedFile(Protocol):
    """A file whose samples lie on pages."""

    def pages(self) -> NDArray[Any]:
        """A row a page, with ``first_sample`` and ``num_samples``."""


class RankedRows(Protocol):
    """Which rows are samples."""

    def rank(self, places: NDArray[np.int64], /) -> NDArray[np.int64]:
        """How many samples come before these rows, counted through all files."""


class PagedDataset(Protocol):
    """Files with pages, one behind the other, of whose rows some may be no samples."""

    row_starts: NDArray[np.int64]

    @property
    def runs(self) -> RankedRows:
        """Which rows are samples."""

    def file(self, number: int) -> PagedFile:
        """A file by its number; its rows begin at ``row_starts[number]``."""

    @property
    def shards(self) -> Sequence[Any]:
        """The same files as a manifest has them, with ``size`` in bytes."""

    @property
    def page_size(self) -> int:
        """Bytes of a page."""


def _samples_of(
    dataset: PagedDataset, begin: NDArray[np.int64], count: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The samples among runs of rows. Those that are left keep their order, so those of a page follow one another."""
    samples = dataset.runs.rank(begin)
    return samples, dataset.runs.rank(begin + count) - samples


DEFAULT_WINDOW = 64
"""Pages that are mixed, unless told otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """Which samples lie together: for each page its first sample and how many there are; pages of none are left out.

    They ascend and do not overlap. ``merged`` says how many neighbouring pages of the file each one here stands for.
    """

    first: NDArray[np.int64]
    count: NDArray[np.int64]
    merged: int = 1

    def __post_init__(self) -> None:
        first, count = integers("first", self.first), integers("count", self.count)
        if len(first) != len(count):
            raise ValueError(f"there are {len(first)} first samples and {len(count)} counts")
        first, count = first[count > 0], count[count > 0]
        wrong = np.flatnonzero(first[1:] < first[:-1] + count[:-1])
        if len(wrong):
            at = int(wrong[0])
            raise ValueError(
                f"a page begins with sample {first[at + 1]}, but the one before has samples {first[at]} to "
                f"{first[at] + count[at] - 1}"
            )
        object.__setattr__(self, "first", frozen(first))
        object.__setattr__(self, "count", frozen(count))
        object.__setattr__(self, "merged", whole("merged", self.merged, 1))

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def of(cls, dataset: PagedDataset, at_most: int = MAX_RUNS) -> Pages:
        """The pages of a dataset's files (``reader.dataset``), neighbours merged where there are too many."""
        if is_vast(dataset.shards, dataset.page_size):
            sizes = np.array([shard.size for shard in dataset.shards], np.int64)
            rough = cls.of_shards(dataset.row_starts, sizes, dataset.page_size, at_most)
            return cls(*_samples_of(dataset, rough.first, rough.count), rough.merged)
        tables = [dataset.file(number).pages() for number in range(len(dataset.row_starts) - 1)]
        starts = dataset.row_starts[:-1].tolist()
        first = [table["first_sample"].astype(np.int64) + at for table, at in zip(tables, starts, strict=True)]
        counts = [table["num_samples"].astype(np.int64) for table in tables]
        none = [np.zeros(0, np.int64)]
        begin, count = np.concatenate(first + none), np.concatenate(counts + none)
        return cls(*_samples_of(dataset, begin, count)).in_runs(at_most)

    @classmethod
    def of_shards(
        cls, starts: NDArray[np.int64], sizes: NDArray[np.int64], page_size: int, at_most: int = MAX_RUNS
    ) -> Pages:
        """Runs of about as many pages, told from a manifest: each shard's samples are taken to be of equal size.

        Runs do not begin where pages do, so the page between two is read for both: so they have 16 pages or more.
        """
        pages = np.maximum(1, -(-sizes // page_size))
        merged = max(LEAST_RUN, -(-int(pages.sum()) // whole("at_most", at_most, 1)))
        samples = np.diff(starts)
        parts = np.minimum(-(-pages // merged), samples)
        shard = np.repeat(np.arange(len(parts)), parts)
        number = np.arange(len(shard)) - np.repeat(np.cumsum(parts) - parts, parts)
        first = starts[:-1][shard] + number * samples[shard] // parts[shard]
        return cls(first, np.diff(first, append=starts[-1]), merged)

    def in_runs(self, at_most: int) -> Pages:
        """Neighbours taken together, as many as it takes to have ``at_most``."""
        each = -(-len(self) // whole("at_most", at_most, 1))
        if each <= 1:
            return self
        if int(self.first[-1] + self.count[-1] - self.first[0]) != int(self.count.sum()):
            raise ValueError("pages with samples left out between them can't be merged")
        starts = np.arange(0, len(self), each)
        return Pages(self.first[starts], np.add.reduceat(self.count, starts), self.merged * each)

    def within(self, indices: NDArray[np.int64]) -> Pages:
        """The same pages as places in ``indices``, which ascend: for a ``Subset`` in quasi-random order."""
        if np.any(indices[1:] < indices[:-1]):
            raise ValueError("the indices must ascend; sort them")
        first = np.searchsorted(indices, self.first)
        return Pages(first, np.searchsorted(indices, self.first + self.count) - first, self.merged)


def is_vast(shards: Sequence[Any], page_size: int) -> bool:
    """Whether there is too much of a dataset for its shards to be opened only to know its pages."""
    return len(shards) > MANY_SHARDS or sum(shard.size for shard in shards) // page_size > MAX_RUNS


class _Layout(NamedTuple):
    """One epoch: pages in the order they are read, where each begins, and where each window begins."""

    pages: NDArray[np.int64]
    edges: NDArray[np.int64]
    windows: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class QuasiRandom:
    """Each sample once an epoch, from ``window`` pages at a time.

    Pages come in a shuffled order. That sequence is cut into windows of ``window`` pages, and the samples of a window
    are shuffled among themselves. So a reader needs the pages of one window at a time, and each page once.

    ``lanes`` keeps ranks from reading each other's pages: the sequence of pages is first cut into that many equal
    parts with windows of their own, and the order takes ``run`` samples from each part in turn. With as many lanes as
    ranks and runs of a batch, each rank has a lane to itself. Lanes belong to the order, not to the world: with another
    number of ranks the order stays what it was.

    Memory is 16 bytes a page, and as much again for each of the last two epochs.
    """

    pages: Pages
    window: int = DEFAULT_WINDOW
    seed: int = 0
    lanes: int = 1
    run: int = 1
    _length: int = field(init=False, repr=False)
    _checksum: str = field(init=False, repr=False)
    _layouts: EpochCache[_Layout] = field(default_factory=EpochCache, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, value in (
            ("window", whole("window", self.window, 1)),
            ("seed", seed_of(self.seed)),
            ("lanes", whole("lanes", self.lanes, 1, 2**20)),
            ("run", whole("run", self.run, 1, 2**32)),
            ("_length", int(self.pages.count.sum())),
            ("_checksum", checksum(self.pages.first, self.pages.count)),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return self._length

    def samples(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """The samples at these positions."""
        layout = self._layouts.get(epoch, self._lay)
        places = self._dealt(positions(self._length, first, count))
        window = np.searchsorted(layout.windows, places, "right") - 1
        # Lanes jump between windows: bring the places of each window together, to permute them in one go.
        together = np.argsort(window, kind="stable") if self.lanes > 1 else slice(None)
        sought, window = places[together], window[together]
        changes = (np.flatnonzero(window[1:] != window[:-1]) + 1).tolist()
        for start, end in pairwise([0, *changes, count] if count else []):
            number = int(window[start])
            low, high = layout.windows[number : number + 2].tolist()
            part = sought[start:end] - low
            kernels.permute(high - low, fold(self.seed, Stream.WINDOW, number), epoch, part, part)
            sought[start:end] = part + low
        places[together] = sought
        slot = np.searchsorted(layout.edges, places, "right") - 1
        samples: NDArray[np.int64] = self.pages.first[layout.pages[slot]] + (places - layout.edges[slot])
        return samples

    def hold(self, epoch: int) -> object:
        """The epoch's layout."""
        return self._layouts.hold(epoch, self._lay)

    def _dealt(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of the order as places in the sequence of pages: turns of ``run`` samples from each lane."""
        if self.lanes == 1:
            return places
        turn, within = np.divmod(places, self.lanes * self.run)
        lane, offset = np.divmod(within, self.run)
        dealt: NDArray[np.int64] = self._lane_starts()[lane] + turn * self.run + offset
        return dealt

    def _lane_starts(self) -> NDArray[np.int64]:
        """Where each lane begins in the sequence of pages, and the end: lanes are as long as their turns add up to."""
        turns, rest = divmod(self._length, self.lanes * self.run)
        last = np.clip(rest - np.arange(self.lanes) * self.run, 0, self.run)
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(turns * self.run + last)])

    def _lay(self, epoch: int) -> _Layout:
        pages = Shuffled(len(self.pages), self.seed).samples(epoch, 0, len(self.pages))
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.pages.count[pages])])
        each = max(1, self.window // self.pages.merged)
        starts = self._lane_starts()
        windows = []
        for low, high in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            if low < high:
                # A lane may begin within a page: its part counts as a page of the first window.
                inner = np.searchsorted(edges, low, "right")
                beyond = np.searchsorted(edges, high, "left")
                windows += [np.array([low]), edges[inner + each - 1 : beyond : each]]
        windows.append(np.array([self._length]))
        return _Layout(frozen(pages), frozen(edges), frozen(np.concatenate(windows)))

    def pages_at_once(self, ranks: int) -> int:
        """The pages of a window."""
        return self.window

    def describe(self, epoch: int | None = None) -> Description:
        """All options; the pages by their checksum."""
        end = int(self.pages.first[-1] + self.pages.count[-1]) if len(self.pages) else 0
        return {
            "kind": "quasi_random", "dataset": end, "seed": self.seed, "window": self.window, "lanes": self.lanes,
            "run": self.run, "pages": self._checksum,
        }  # fmt: skip
