"""In which order samples come: arithmetic from an epoch and a position to a sample, and from a step to a batch."""

from fastloader.samplers.buckets import BatchOrder, LengthBuckets
from fastloader.samplers.digest import EpochDigest, Verdict
from fastloader.samplers.given import OrderError
from fastloader.samplers.iterable import FromBatches, FromIterable, deals, gives_batches
from fastloader.samplers.order import Description, Order, Sequential, Shuffled, describe, pages_at_once
from fastloader.samplers.position import Position, StateError
from fastloader.samplers.quasi_random import DEFAULT_WINDOW, PagedDataset, Pages, QuasiRandom, is_vast
from fastloader.samplers.schedule import BatchSchedule, Plan, Remainder, Schedule
from fastloader.samplers.subset import DENSE, Subset, as_indices
from fastloader.samplers.weighted import Weighted
from fastloader.samplers.world import World, world_from_environment

__all__ = [
    "DEFAULT_WINDOW", "DENSE", "BatchOrder", "BatchSchedule", "Description", "EpochDigest", "FromBatches",
    "FromIterable", "LengthBuckets", "Order", "OrderError", "PagedDataset", "Pages", "Plan", "Position",
    "QuasiRandom", "Remainder", "Schedule", "Sequential", "Shuffled", "StateError", "Subset", "Verdict", "Weighted",
    "World", "as_indices", "deals", "describe", "gives_batches", "is_vast", "pages_at_once", "world_from_environment",
]  # fmt: skip
