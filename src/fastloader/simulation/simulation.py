"""What each rank of a world would read in an epoch, by going through its schedule without reading a sample."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from fastloader.formats.fld import Dataset, Manifest
from fastloader.formats.fld.dataset import OPENED_AT_ONCE
from fastloader.loader.reading import REQUEST
from fastloader.reader import DatasetReader
from fastloader.samplers import DEFAULT_WINDOW, Order, QuasiRandom, Schedule, Sequential, Shuffled
from fastloader.samplers.checks import whole
from fastloader.simulation.layout import Layout, Numbers
from fastloader.simulation.mixing import Mixing, mixing
from fastloader.stores.cache import BLOCK, BlockCache
from fastloader.stores.remote import HEAD, TAIL

OrderName = Literal["sequential", "random", "quasi_random"]

GAP = 8 << 10
"""What the engine reads along between neighbours of a batch."""
LONGEST = 8 << 20
LONGEST_LOCAL = 1 << 20
"""How long what it reads at once may become."""
MOST_WALKED = 1 << 21
"""Samples of a rank that are gone through; of more, the first of the epoch stand for all."""
RANKS = 8
"""Ranks that stand for all."""


@dataclass(frozen=True, slots=True)
class Link:
    """A way to a store: seconds a request takes to begin, bytes a second, and requests at once."""

    latency: float = 0.03
    bandwidth: float = 1e9
    at_once: int = OPENED_AT_ONCE

    def seconds(self, requests: int, size: int) -> float:
        """The time for so many requests that do not wait for each other, and so many bytes."""
        return -(-requests // self.at_once) * self.latency + size / self.bandwidth


@dataclass(frozen=True, slots=True)
class RankFigures:
    """One rank's epoch: what it gets, and what it asks the store (or the disk) for.

    ``requests`` and ``bytes`` are for payloads; ``opening_requests`` and ``opening_bytes`` for headers and tables of
    the shards it needs, of a dataset in a store. ``walked`` is the share of its samples that was gone through; the rest
    is taken to be like it.
    """

    rank: int
    samples: int
    steps: int
    bytes: int
    requests: int
    shards: int
    opening_bytes: int
    opening_requests: int
    first_batch_bytes: int
    first_batch_requests: int
    first_batch_shards: int
    walked: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """What :func:`simulate` found. Figures "per rank" are those of the rank that has most of it, among ``ranks``.

    ``cache_bytes`` is the room a cache must have (``cache_size`` of ``fl.open``); ``planning_seconds`` is what it took
    here to know the first batch, ``planning_bytes`` the memory that took at its peak.
    """

    order: str
    num_samples: int
    num_shards: int
    num_bytes: int
    world_size: int
    batch_size: int
    ranks: tuple[RankFigures, ...]
    cache_bytes: int
    cache_limit: int | None
    mixing: Mixing
    planning_seconds: float
    planning_bytes: int

    def _most(self, name: str) -> int:
        return max((getattr(rank, name) for rank in self.ranks), default=0)

    @property
    def samples_per_rank(self) -> int:
        """Samples in an epoch."""
        return self._most("samples")

    @property
    def steps_per_rank(self) -> int:
        """Batches in an epoch."""
        return self._most("steps")

    @property
    def bytes_per_rank(self) -> int:
        """Bytes of payloads, and what is read along with them."""
        return self._most("bytes")

    @property
    def requests_per_rank(self) -> int:
        """Requests, or reads of local files, that it takes."""
        return self._most("requests")

    @property
    def first_batch_bytes(self) -> int:
        """Bytes that must come before the first batch can be made."""
        return self._most("first_batch_bytes")

    @property
    def cache_fits(self) -> bool | None:
        """Whether a cache of ``cache_limit`` would do; ``None`` without one."""
        return None if self.cache_limit is None else self.cache_bytes <= self.cache_limit

    def first_batch_seconds(self, link: Link | None = None) -> float:
        """About how long a rank waits for its first batch: planning, opening shards, and the batch's own bytes.

        An opening is two requests, one after the other. In quasi-random order all shards are opened, for their tables
        of pages, unless there are so many that the manifest must do.
        """
        link = link or Link()
        longest = 0.0
        for rank in self.ranks:
            each = rank.opening_bytes / max(1, rank.shards)
            opening = 0.0
            if rank.opening_requests:
                rounds = -(-rank.first_batch_shards // link.at_once)
                opening = 2 * rounds * link.latency + rank.first_batch_shards * each / link.bandwidth
            longest = max(longest, opening + link.seconds(rank.first_batch_requests, rank.first_batch_bytes))
        return self.planning_seconds + longest


def simulate(
    source: DatasetReader | Dataset | Manifest | Layout,
    *,
    world_size: int,
    batch_size: int,
    order: OrderName = "random",
    rank: int | None = None,
    seed: int = 0,
    window: int | None = None,
    epoch: int = 0,
    cache_limit: int | None = None,
) -> Simulation:
    """Predict what the ranks of a world read in an epoch, from tables alone.

    ``source`` is a reader (or its dataset), whose tables of pages are read, or a manifest, of which samples of a shard
    are taken to be equal. ``rank`` chooses one; otherwise eight of them stand for all. With ``cache_limit`` bytes go
    through a cache of blocks, as with ``fl.open(cache_dir=...)``.
    """
    if order not in get_args(OrderName):
        raise ValueError(f"order={order!r}: one of {', '.join(get_args(OrderName))}")
    if window is not None and order != "quasi_random":
        raise ValueError(f"window={window}: only order='quasi_random' has one; leave it out, or choose that order")
    window = DEFAULT_WINDOW if window is None else window
    world_size, batch_size = whole("world_size", world_size, 1), whole("batch_size", batch_size, 1)
    layout = _layout_of(source)
    began = time.perf_counter()
    planned = Schedule(_order(layout, order, seed, window, world_size, batch_size), batch_size, world_size=world_size)
    if planned.steps():
        planned.batch(epoch, 0)
    took = time.perf_counter() - began
    tracemalloc.start()
    again = _order(layout, order, seed, window, world_size, batch_size)
    again.samples(epoch, 0, min(batch_size, len(again)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del again
    chosen = [whole("rank", rank)] if rank is not None else np.unique(
        np.linspace(0, world_size - 1, RANKS).astype(np.int64)
    ).tolist()  # fmt: skip
    way = _Way.of(layout, planned, order, cached=cache_limit is not None)
    figures = tuple(_figures(layout, planned.order, way, one, batch_size, world_size, epoch) for one in chosen)
    mixed = mixing(planned.order, layout.pages(), batch_size, world_size, epoch)
    return Simulation(
        order, layout.num_samples, len(layout.sizes), layout.num_bytes, world_size, batch_size, figures,
        _cache_bytes(layout, way.window), cache_limit, mixed, took, peak,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Way:
    """How bytes are asked for: ``unit`` bytes at a time and each unit once, or (0) what a batch needs, merged.

    ``cached``: units are blocks of a cache. ``all_shards``: every shard must be opened to plan at all.
    """

    unit: int
    window: int
    cached: bool
    all_shards: bool

    @classmethod
    def of(cls, layout: Layout, plan: Schedule, order: str, *, cached: bool) -> _Way:
        window = plan.pages_at_once()
        unit = layout.page_size if window else 0
        if window and order == "sequential" and layout.is_remote:
            unit = max(unit, REQUEST)
        return cls(BLOCK if cached else unit, window, cached, order == "quasi_random" and not layout.is_vast)


def _layout_of(source: Any) -> Layout:
    if isinstance(source, Layout):
        return source
    if isinstance(source, Manifest):
        return Layout.of_manifest(source)
    return Layout.of(source.dataset if isinstance(source, DatasetReader) else source)


def _order(layout: Layout, name: str, seed: int, window: int, world_size: int, batch_size: int) -> Order:
    """As a loader makes it."""
    if name == "quasi_random":
        return QuasiRandom(layout.pages(), window, seed, world_size, batch_size)
    return Shuffled(layout.num_samples, seed) if name == "random" else Sequential(layout.num_samples)


def _figures(
    layout: Layout, order: Order, way: _Way, rank: int, batch_size: int, world_size: int, epoch: int
) -> RankFigures:
    plan = Schedule(order, batch_size, rank=rank, world_size=world_size)
    steps = plan.steps()
    walked = min(steps, max(1, MOST_WALKED // batch_size))
    asked = _Asked(layout, way)
    shards: list[Numbers] = [np.zeros(0, np.int64)]
    samples, first = 0, (0, 0, 0)
    for step in range(walked):
        batch = plan.batch(epoch, step)
        samples += len(batch)
        shards.append(np.unique(asked.batch(batch)))
        if step == 0:
            first = (*asked.total(), len(shards[-1]))
    total = _samples_of(plan, steps)
    share = samples / total if total else 1.0
    size, requests = asked.total()
    found = np.unique(np.concatenate(shards))
    touched = _grown(len(found), share, order, layout)
    opened = len(layout.sizes) if way.all_shards else round(touched)
    opening = (0, 0)
    if layout.is_remote:
        tables = layout.table_bytes()
        known = float(tables[found].mean()) * touched if len(found) else 0.0
        ends = int(np.minimum(tables, TAIL).sum()) if way.all_shards else 0
        opening = (opened * HEAD + max(round(known), ends), 2 * opened)
    return RankFigures(
        rank, total, steps, round(size / share), round(requests / share), opened, *opening,
        first[0], first[1], len(layout.sizes) if way.all_shards else first[2], share,
    )  # fmt: skip


def _samples_of(plan: Schedule, steps: int) -> int:
    if not steps:
        return 0
    return (steps - 1) * plan.batch_size + len(plan.batch(0, steps - 1))


def _grown(found: int, share: float, order: Order, layout: Layout) -> float:
    """Shards that all steps touch, where those gone through touched ``found``: in sequence, or by chance."""
    every = len(layout.sizes)
    if share >= 1 or not found or found >= every:
        return found
    if isinstance(order, Sequential):
        return min(every, found / share)
    return float(every * -np.expm1(np.log1p(-found / every) / share))


class _Asked:
    """Counts requests and their bytes, batch after batch."""

    def __init__(self, layout: Layout, way: _Way) -> None:
        self._layout, self._way = layout, way
        self._seen: list[Numbers] = [np.zeros(0, np.int64)]
        self._bytes = self._requests = 0
        units = -(-layout.sizes // way.unit) if way.unit else np.zeros(len(layout.sizes), np.int64)
        self._base = np.concatenate([np.zeros(1, np.int64), np.cumsum(units)])
        self._longest = LONGEST if layout.is_remote else LONGEST_LOCAL

    def batch(self, samples: Numbers) -> Numbers:
        """The shards of a batch, which is counted."""
        shard, begin, end = self._layout.extents(samples)
        there = end > begin  # numbers alone are in the tables
        self._count(shard[there], begin[there], end[there])
        return shard

    def _count(self, shard: Numbers, begin: Numbers, end: Numbers) -> None:
        if self._way.unit:
            self._units(shard, begin, end)
        else:
            self._merged(shard, begin, end)

    def _units(self, shard: Numbers, begin: Numbers, end: Numbers) -> None:
        unit = self._way.unit
        first, last = begin // unit, (end - 1) // unit
        if self._layout.is_remote and not self._way.cached:
            last = first  # the payloads that begin on a page are read with it, past its end too
        for more in range(int((last - first).max(initial=0)) + 1):
            there = first + more <= last
            self._seen.append(np.unique(self._base[shard[there]] + first[there] + more))

    def _merged(self, shard: Numbers, begin: Numbers, end: Numbers) -> None:
        order = np.lexsort((begin, shard))
        shard, begin, end = shard[order], begin[order], end[order]
        apart = (shard[1:] != shard[:-1]) | (begin[1:] > end[:-1] + GAP)
        starts = np.flatnonzero(np.concatenate([[True], apart])) if len(begin) else np.zeros(0, np.int64)
        ends = np.maximum.reduceat(end, starts) if len(starts) else end
        lengths = ends - begin[starts]
        self._bytes += int(lengths.sum())
        self._requests += int((-(-lengths // self._longest)).clip(1).sum())

    def total(self) -> tuple[int, int]:
        """Bytes and requests so far."""
        unit, layout = self._way.unit, self._layout
        if not unit:
            return self._bytes, self._requests
        seen = np.unique(np.concatenate(self._seen))
        self._seen = [seen]
        shard = np.searchsorted(self._base, seen, "right") - 1
        size = np.minimum(unit, layout.sizes[shard] - (seen - self._base[shard]) * unit)
        if layout.is_remote and not self._way.cached and layout.knows_pages:
            spans = layout.spans()  # of payloads: no padding comes along
            own = np.bincount(self._base[layout.shard] + layout.begin // unit, spans, int(self._base[-1]))
            size = own[seen]
        return int(size.sum()), len(seen)


def _cache_bytes(layout: Layout, window: int) -> int:
    """What a cache must hold, as the loader asks of it: what is read again soon."""
    needed = sum(map(BlockCache.room_for, layout.sizes.tolist()))
    if window:
        needed = min(needed, BlockCache.room_for((2 * window + 4) * max(layout.page_size, BLOCK)))
    return needed
