"""What a loader can be told, checked once, and the plan that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from fastloader.loader.policy import POLICIES
from fastloader.loader.resources import usable_cpus
from fastloader.reader import DatasetReader
from fastloader.samplers import (
    BatchOrder,
    BatchSchedule,
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
    world_from_environment,
)
from fastloader.types import Batch

OrderName = Literal["sequential", "random", "quasi_random"]
OnError = Literal["raise", "skip", "replace"]
Transform = Callable[[Any], Any]

DEFAULT_WORKERS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadingOptions:
    """Limits on threads, in the manner of tf.data; ``None`` and 0 set none.

    - ``private_threadpool_size``: the number of native threads, and of Python threads where there are any, in place of
      ``num_workers``.
    - ``max_intra_op_parallelism``: the most native threads that work on one batch at a time; others take the next.
    """

    private_threadpool_size: int | None = None
    max_intra_op_parallelism: int | None = None

    def __post_init__(self) -> None:
        for name in ("private_threadpool_size", "max_intra_op_parallelism"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise ValueError(f"{name}={value!r}: a whole number of threads, or None")


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """The options of a ``DataLoader``; its documentation says what each does."""

    batch_size: int = 32
    shuffle: bool = True
    num_workers: int | None = None
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
    threading: ThreadingOptions = ThreadingOptions()
    auto_tune: bool = False

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("num_workers", 0), ("prefetch_factor", 1), ("seed", 0), ("window", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name}={value}: at least {least}")
        if self.seed >= 2**64:
            raise ValueError(f"seed={self.seed}: below 2**64")
        if self.order is not None and self.order not in get_args(OrderName):
            raise ValueError(f"order={self.order!r}: one of {', '.join(get_args(OrderName))}")
        if self.on_error not in POLICIES:
            raise ValueError(f"on_error={self.on_error!r}: one of {', '.join(POLICIES)}")
        if self.sampler is not None and (self.order is not None or self.indices is not None):
            raise ValueError("a sampler decides the order by itself: give either sampler= or order= and indices=")

    @property
    def workers(self) -> int:
        """How many threads there are, native and Python's; with ``auto_tune``, the most. 0: no thread for Python."""
        if self.num_workers == 0:
            return 0
        default = usable_cpus() if self.auto_tune else DEFAULT_WORKERS
        return self.threading.private_threadpool_size or self.num_workers or default

    @property
    def native_threads(self) -> int:
        """How many threads the engine has; with ``auto_tune``, the most."""
        return self.threading.private_threadpool_size or max(1, self.workers)

    @property
    def ahead(self) -> int:
        """How many batches are made ahead; with ``auto_tune``, the most."""
        return self.native_threads * self.prefetch_factor

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
        rank, world_size = world_from_environment(self.rank, self.world_size)
        order = self._order(reader)
        if isinstance(order, BatchOrder):
            return BatchSchedule(order, rank=rank, world_size=world_size, remainder=self.remainder)
        return Schedule(
            order, self.batch_size, drop_last=self.drop_last, rank=rank, world_size=world_size, remainder=self.remainder
        )

    def _order(self, reader: DatasetReader) -> Order | BatchOrder:
        if self.sampler is not None:
            ready = isinstance(self.sampler, Order | BatchOrder)
            return self.sampler if ready else FromIterable(self.sampler, len(reader))  # type: ignore[return-value, arg-type]
        name = self.order or ("random" if self.shuffle else "sequential")
        indices = None if self.indices is None else as_indices(self.indices, len(reader))
        if name == "quasi_random":
            pages = Pages.of(reader.dataset)
            return QuasiRandom(pages if indices is None else pages.within(indices), self.window, self.seed)
        length = len(reader) if indices is None else len(indices)
        inner: Order = Shuffled(length, self.seed) if name == "random" else Sequential(length)
        return inner if indices is None else Subset(indices, len(reader), inner)
