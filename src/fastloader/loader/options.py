"""What a loader can be told, checked once, and the plan that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from fastloader.loader.policy import POLICIES
from fastloader.reader import DatasetReader
from fastloader.samplers import (
    BatchOrder,
    BatchSchedule,
    FromBatches,
    FromIterable,
    Order,
    Pages,
    Plan,
    QuasiRandom,
    Remainder,
    Schedule,
    Sequential,
    Shuffled,
    Subset,
    as_indices,
    deals,
    gives_batches,
    world_from_environment,
)
from fastloader.types import Batch

OrderName = Literal["sequential", "random", "quasi_random"]
OnError = Literal["raise", "skip", "replace"]
Transform = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """The options of a ``DataLoader``; its documentation says what each does."""

    batch_size: int = 32
    shuffle: bool = True
    num_workers: int = 4
    drop_last: bool = False
    transforms: Mapping[str, Transform] = field(default_factory=dict)
    collate_fn: Callable[[Batch], Any] | None = None
    prefetch_factor: int = 2
    seed: int = 0
    order: OrderName | None = None
    window: int = 64
    indices: Sequence[int] | NDArray[Any] | None = None
    sampler: Order | BatchOrder | Iterable[int] | None = None
    fields: Sequence[str] | None = None
    on_error: OnError = "raise"
    rank: int | None = None
    world_size: int | None = None
    remainder: Remainder = "uneven"

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("num_workers", 0), ("prefetch_factor", 1), ("seed", 0), ("window", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: at least {least}")
        if self.seed >= 2**64:
            raise ValueError(f"seed={self.seed}: below 2**64")
        if self.order is not None and self.order not in get_args(OrderName):
            raise ValueError(f"order={self.order!r}: one of {', '.join(get_args(OrderName))}")
        if self.on_error not in POLICIES:
            raise ValueError(f"on_error={self.on_error!r}: one of {', '.join(POLICIES)}")
        if self.sampler is not None and (self.order is not None or self.indices is not None):
            raise ValueError("a sampler decides the order by itself: give either sampler= or order= and indices=")

    def chosen_fields(self, reader: DatasetReader) -> list[str]:
        """The fields to load, in the reader's order; transforms must be of these."""
        known = reader.field_names
        chosen = known if self.fields is None else [self.fields] if isinstance(self.fields, str) else self.fields
        for what, names, among in (("fields", chosen, known), ("transforms for", self.transforms, list(chosen))):
            unknown = [name for name in names if name not in among]
            if unknown:
                raise ValueError(f"{what} unknown fields {', '.join(unknown)}; there are {', '.join(among)}")
        if not chosen:
            raise ValueError("fields: at least one")
        return [name for name in known if name in chosen]

    def plan(self, reader: DatasetReader) -> Plan:
        """Which samples each step loads on this rank."""
        rank, world_size = self._world()
        order = self._order(reader)
        if isinstance(order, BatchOrder):
            return BatchSchedule(order, rank=rank, world_size=world_size, remainder=self.remainder)
        return Schedule(
            order, self.batch_size, drop_last=self.drop_last, rank=rank, world_size=world_size, remainder=self.remainder
        )

    def _world(self) -> tuple[int, int]:
        if not deals(self.sampler):
            return world_from_environment(self.rank, self.world_size)
        # Dealt once more, most samples would reach no rank.
        if self.rank or (self.world_size or 1) != 1:
            raise ValueError(
                f"rank={self.rank}, world_size={self.world_size}: a {type(self.sampler).__name__} gives each rank its "
                "own samples already; leave out rank= and world_size=, or leave out the sampler and let the loader deal"
            )
        return 0, 1

    def _order(self, reader: DatasetReader) -> Order | BatchOrder:
        if self.sampler is not None:
            if isinstance(self.sampler, Order | BatchOrder):
                return self.sampler
            wrapper: Any = FromBatches if gives_batches(self.sampler) else FromIterable
            return wrapper(self.sampler, len(reader))  # type: ignore[no-any-return]
        name = self.order or ("random" if self.shuffle else "sequential")
        indices = None if self.indices is None else as_indices(self.indices, len(reader))
        if name == "quasi_random":
            pages = Pages.of(reader.dataset)
            return QuasiRandom(pages if indices is None else pages.within(indices), self.window, self.seed)
        length = len(reader) if indices is None else len(indices)
        inner: Order = Shuffled(length, self.seed) if name == "random" else Sequential(length)
        return inner if indices is None else Subset(indices, len(reader), inner)
