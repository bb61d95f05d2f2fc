"""How a loader's bytes come into memory: by which means, how far ahead, and within how much memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fastloader.formats.fld import Dataset
from fastloader.loader import resources
from fastloader.loader.fetching import IN_FLIGHT
from fastloader.stores import BlockCache, ObjectPath
from fastloader.stores.cache import BLOCK

Io = Literal["auto", "mmap", "uring", "pread"]

Mode = Literal["mmap", "uring", "pread", "automatic", "populate", "remote"]
_MODES: dict[Mode, int] = {"mmap": 0, "uring": 1, "pread": 2, "automatic": 3, "populate": 4, "remote": 5}
"""The engine's numbers of the ways to read."""

DEFAULT_MEMORY = 128 << 20
LEAST_MEMORY = 4 << 20
READS_AHEAD = 256
"""Payloads on their way besides those of the batches being made: twice what the disk is asked for at once."""
MOST_AHEAD = 512
BATCHES_HELD = 4
SMALL = 64 << 20
"""Bytes of a dataset that come soon enough by touching them."""
REQUEST = 4 << 20
"""Bytes of an object that are asked for at once where what follows is needed too: servers give smaller ranges at twice
the cost, and larger ones no cheaper."""
REQUESTS_AHEAD = 24
"""Such requests whose batches are planned: those in flight, and some that wait for their turn."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the engine is told. ``memory`` is for bytes read but not yet decoded; ``unit`` is what is read at once.

    ``ahead`` counts batches whose bytes are fetched before it is their turn to be made. ``apart`` is for units that
    are each a read of its own, as a cache keeps them. ``window`` is that of the order's habit.
    """

    mode: Mode = "mmap"
    memory: int = 0
    unit: int = 0
    ahead: int = 0
    apart: bool = False
    window: int = 0

    def engine_options(self) -> tuple[int, int, int, bool]:
        """The same as the engine takes it."""
        return _MODES[self.mode], self.memory, self.unit, self.apart


@dataclass(frozen=True, slots=True)
class Habit:
    """How an order goes through the files: ``window`` pages at a time and all of each page, or (0) here and there.

    ``in_order``: one page after the other.
    """

    window: int = 0
    in_order: bool = False


def check_io(io: str) -> None:
    """Raise unless ``io`` is a way to read."""
    if io not in get_args(Io):
        raise ValueError(f"io={io!r}: one of {', '.join(get_args(Io))}")


def plan_reading(
    io: Io, dataset: Dataset, habit: Habit, batch_size: int, depth: int, payload_fields: int, memory_limit: int | None
) -> Reading:
    """The reading that suits a dataset, an order and a limit; half of the limit is left to the batches.

    ``depth`` batches are in the making at a time.
    """
    if dataset.is_remote and io != "auto":
        raise ValueError(f"io={io!r} is for local files; {dataset.path} is fetched from its store")
    if io == "mmap" or not payload_fields:
        return Reading()
    size = sum(one.size for one in dataset.objects)
    if io == "auto" and not dataset.is_remote and size <= resources.memory().available // 2:
        # It will stay in the page cache, hot for the next epoch: bring it there in large pieces.
        if size < SMALL:
            return Reading()
        return Reading("populate", ahead=-(-READS_AHEAD // max(1, batch_size * payload_fields)))
    a_batch = dataset.sample_bytes * batch_size
    if not habit.window:
        a_batch = getattr(dataset, "lone_bytes", dataset.sample_bytes) * batch_size
        ahead = -(-READS_AHEAD // max(1, batch_size * payload_fields))
        # Bytes are let go as soon as their batch is made: besides those under way, a few batches' are held.
        memory = min(DEFAULT_MEMORY, max(LEAST_MEMORY, (ahead + min(depth, BATCHES_HELD)) * a_batch * 5 // 4))
    else:
        # The pages of a window are kept while it lasts, and those of the next are fetched meanwhile.
        pages = max(1, size // dataset.page_size)
        memory = max(LEAST_MEMORY, (5 * min(habit.window, pages) // 2 + 4) * dataset.page_size)
        ahead = -(-(dataset.num_samples * habit.window // pages) // batch_size)
        # Batches may be larger than pages: then those in the making count.
        memory = max(memory, min(DEFAULT_MEMORY, (ahead + min(depth, BATCHES_HELD)) * a_batch * 5 // 4))
    unit = dataset.page_size
    if dataset.is_remote and habit.window:
        if habit.in_order:
            unit = max(unit, REQUEST)
            reach = REQUESTS_AHEAD * unit
            memory = max(memory, 2 * min(reach, size))
        else:
            # A batch takes from every page of its window, so windows are asked for as a whole: one is waited for, or
            # made into batches, and the next is on its way. More memory than that would be new to the process.
            a_window = min(habit.window, pages) * dataset.page_size
            reach = a_window + max(a_window, IN_FLIGHT * max(unit, REQUEST))
            batches = min(DEFAULT_MEMORY, min(depth, BATCHES_HELD) * a_batch)
            memory = max(min(reach, size) + 4 * unit, 8 * unit, batches)
        ahead = max(ahead, -(-reach // max(1, a_batch)))
    if memory_limit is not None:
        memory = min(memory, memory_limit // 2)
    holds_all = dataset.is_remote and memory >= 2 * size
    while unit > dataset.page_size and memory < 8 * unit and not holds_all:
        unit //= 2
    if not habit.window or (memory < 8 * unit and not holds_all):
        unit = 0
    ahead = min(ahead, MOST_AHEAD)
    if isinstance(dataset.path, ObjectPath):
        if dataset.path.cache is None:
            return Reading("remote", memory, unit, ahead)
        _check_cache(dataset, dataset.path.cache, habit)
        return Reading("remote", memory, BLOCK, ahead, apart=True)
    return Reading("automatic" if io == "auto" else io, memory, unit, ahead)


def _check_cache(dataset: Dataset, cache: BlockCache, habit: Habit) -> None:
    """In random order everything is read again soon; else the pages of a window, and those of the next."""
    cache.check_room(
        dataset.path, (one.size for one in dataset.objects),
        (2 * habit.window + 4) * max(dataset.page_size, BLOCK) if habit.window else None,
        f"{habit.window} pages at a time are" if habit.window else "in random order all of it is",
        "use order='quasi_random' with a smaller window",
    )  # fmt: skip


def batches_within(memory_limit: int, reading: Reading, batch_bytes: int, wanted: int) -> int:
    """How many batches may be made ahead of the consumer, who has one and is about to get the next; at least one."""
    room = memory_limit - reading.memory
    return min(wanted, max(1, room // max(1, batch_bytes) - 2))
