"""What a loader can be told, checked once, and the plan that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.fields import Field, ListField, RowDecoder
from fastloader.formats.fld import Dataset
from fastloader.formats.fld.layout import MIN_PAGE_SIZE
from fastloader.loader import arguments
from fastloader.loader.padding import Layout, PadSpec, Way, check_way, elements_of, layouts, way_of
from fastloader.loader.policy import POLICIES
from fastloader.loader.reading import LEAST_MEMORY, Habit, Io, Reading, check_io, plan_reading
from fastloader.loader.resources import usable_cpus
from fastloader.ops import BatchOp, Choose, ClipOp, CustomOp, Follow, LabelOp, Named, Op, SoundOp, Views
from fastloader.pipeline import (
    HIDDEN,
    BatchStep,
    ClipPipeline,
    FlowFollowing,
    Following,
    Images,
    PipelineError,
    Pipelines,
    compile_batch_ops,
    compile_decoder,
    compile_pipelines,
    kind_of,
)
from fastloader.reader import DatasetReader
from fastloader.samplers import (
    DEFAULT_WINDOW,
    BatchOrder,
    BatchSchedule,
    FromBatches,
    FromIterable,
    LengthBuckets,
    Order,
    Pages,
    Plan,
    QuasiRandom,
    Remainder,
    Schedule,
    Sequential,
    Shuffled,
    Subset,
    Weighted,
    as_indices,
    deals,
    describe,
    gives_batches,
    is_vast,
    world_from_environment,
)
from fastloader.samplers.checks import flag, seed_of, whole
from fastloader.types import Batch, parse_size

OrderName = Literal["sequential", "random", "quasi_random"]
OnError = Literal["raise", "skip", "replace"]
Transform = Callable[[Any], Any]

DEFAULT_WORKERS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadingOptions:
    """Limits on threads, in the manner of tf.data; ``None`` and 0 set none.

    - ``private_threadpool_size``: the number of native threads, and of Python threads where there are any, in place of
      ``num_workers``. The consumer's thread then only waits; without it, it works along where it would wait.
    - ``max_intra_op_parallelism``: the most native threads that work on one batch at a time; others take the next.
    """

    private_threadpool_size: int | None = None
    max_intra_op_parallelism: int | None = None

    def __post_init__(self) -> None:
        for name in ("private_threadpool_size", "max_intra_op_parallelism"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
                raise ValueError(f"{name}={value!r}: a whole number of threads, or None")
            object.__setattr__(self, name, arguments.threads(name, value))


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
    window: int | None = None
    indices: Sequence[int] | NDArray[Any] | None = None
    sampler: Order | BatchOrder | Iterable[int] | None = None
    fields: Sequence[str] | None = None
    pipelines: Mapping[str, Sequence[Op | LabelOp | Follow | SoundOp | ClipOp | Choose] | Views] = field(
        default_factory=dict
    )
    batch_ops: Sequence[BatchOp] = ()
    pad: PadSpec | Mapping[str, PadSpec] = None
    on_error: OnError = "raise"
    rank: int | None = None
    world_size: int | None = None
    remainder: Remainder = "uneven"
    io: Io = "auto"
    memory_limit: int | str | None = None
    threading: ThreadingOptions = ThreadingOptions()
    auto_tune: bool = False

    def __post_init__(self) -> None:
        if self.threading is not None and not isinstance(self.threading, ThreadingOptions):
            raise TypeError(f"threading={self.threading!r}: a fastloader.ThreadingOptions is needed")
        for name, value in (
            ("batch_size", whole("batch_size", self.batch_size, 1, 2**32)),
            ("num_workers", None if self.num_workers is None else arguments.threads("num_workers", self.num_workers)),
            ("prefetch_factor", whole("prefetch_factor", self.prefetch_factor, 1, 2**21)),
            ("seed", seed_of(self.seed)),
            ("window", None if self.window is None else whole("window", self.window, 1)),
            ("shuffle", flag("shuffle", self.shuffle)),
            ("drop_last", flag("drop_last", self.drop_last)),
            ("auto_tune", flag("auto_tune", self.auto_tune)),
            ("fields", arguments.names("fields", self.fields)),
            ("transforms", arguments.functions("transforms", self.transforms)),
            ("pipelines", arguments.operations("pipelines", self.pipelines)),
            ("batch_ops", tuple(arguments.several("batch_ops", self.batch_ops))),
            ("threading", self.threading or ThreadingOptions()),
        ):
            object.__setattr__(self, name, value)
        if self.collate_fn is not None:
            arguments.function("collate_fn", self.collate_fn)
        if self.order is not None and self.order not in get_args(OrderName):
            raise ValueError(f"order={self.order!r}: one of {', '.join(get_args(OrderName))}")
        if not self.shuffle and self.order in ("random", "quasi_random"):
            raise ValueError(
                f"shuffle=False, order={self.order!r}: these contradict each other; leave out one of the two"
            )
        if self.on_error not in POLICIES:
            raise ValueError(f"on_error={self.on_error!r}: one of {', '.join(POLICIES)}")
        if self.window is not None and self.order != "quasi_random":
            raise ValueError(
                f"window={self.window}: only order='quasi_random' has one; leave it out, or choose that order"
            )
        check_io(self.io)
        if self.io == "uring" and not kernels.has_uring():
            raise ValueError(
                "io='uring': this machine has no io_uring, or fastloader was built without liburing; "
                "io='auto' takes what there is, io='pread' reads with threads"
            )
        if self.memory_bytes is not None and self.memory_bytes < 2 * LEAST_MEMORY:
            raise ValueError(f"memory_limit={self.memory_limit!r}: at least {2 * LEAST_MEMORY} bytes")
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
        chosen = known if self.fields is None else self.fields
        for what, names, among in (
            ("fields", chosen, known),
            ("pipelines for", self.pipelines, list(chosen)),
        ):
            _check_known(what, names, among)
        if not chosen:
            raise ValueError("fields: at least one")
        return [name for name in known if name in chosen]

    def compiled(self, reader: DatasetReader) -> Pipelines:
        """The programs of the fields that have pipelines, or decoders that can be compiled."""
        chosen, layouts = self.chosen_fields(reader), self.layouts(reader)
        fields = _fields(reader, chosen)
        made = compile_pipelines(self.pipelines, fields, self.seed)
        for name in fields.keys() - made.keys() - layouts.keys():
            kind = fields[name].get_decoder_class()
            if issubclass(kind, RowDecoder):
                made[name] = compile_decoder(name, kind(fields[name]), self.seed)
        _check_known("transforms for", self.transforms, _batch_fields(chosen, made))
        return made

    def batch_steps(self, pipelines: Pipelines) -> tuple[BatchStep, ...]:
        """What is done to whole batches."""
        return compile_batch_ops(self.batch_ops, pipelines, self.seed)

    def layouts(self, reader: DatasetReader) -> dict[str, Layout]:
        """How the samples of each field that is padded or joined lie in a batch."""
        if self.pad is None:
            return {}
        fields = _fields(reader, self.chosen_fields(reader))
        apart = [name for name, ops in self.pipelines.items() if not _follows_alone(fields[name], ops)]
        pad: PadSpec | Mapping[str, PadSpec] = self.pad
        if isinstance(pad, Mapping):
            pad = {name: spec for name, spec in pad.items() if name not in apart}
        elif self.ways(reader) and not _pads_some(fields, apart):
            return {}
        try:
            return layouts(pad, {name: field for name, field in fields.items() if name not in apart})
        except FormatError as error:
            error.path = str(reader.path)
            raise

    def ways(self, reader: DatasetReader) -> dict[str, Way]:
        """How what functions of the user's make of samples is padded or joined, by field."""
        fields = _fields(reader, self.chosen_fields(reader))
        found: dict[str, Way] = {}
        for name, ops in self.pipelines.items() if self.pad is not None else ():
            if _follows_alone(fields[name], ops):
                continue
            named = isinstance(self.pad, Mapping)
            spec = self.pad.get(name) if isinstance(self.pad, Mapping) else self.pad
            way = way_of(f"pad for {name!r}", spec)
            if way is None:
                continue
            if kind_of(fields[name], ops) not in ("values", "follow"):
                if named:
                    raise ValueError(
                        f"pad for {name!r}: its pipeline makes samples of one shape; leave out one of the two"
                    )
                continue
            varies = _varies(fields[name], ops)
            if named and varies is False:
                raise ValueError(f"pad for {name!r}: what its pipeline makes has no length; leave out one of the two")
            if varies or named:
                check_way(name, way, fields)
                found[name] = way
        return found

    def plan(self, reader: DatasetReader, saved: Mapping[str, Any] | None = None) -> Plan:
        """Which samples each step loads on this rank.

        ``saved`` describes the order of a state that is to be gone on with: a quasi-random order is cut into lanes for
        the ranks there were when it began, and keeps them.
        """
        rank, world_size = self._world()
        lanes, run = world_size, self.batch_size
        if saved is not None and "lanes" in saved:
            lanes, run = whole("lanes", saved["lanes"], 1), whole("run", saved.get("run"), 1)
        order = self._order(reader, lanes, run)
        if isinstance(order, BatchOrder):
            if self.drop_last and not getattr(self.sampler, "drop_last", False):
                name = type(self.sampler).__name__
                raise ValueError(f"drop_last=True: a {name} decides the batches by itself; give drop_last to it")
            return BatchSchedule(
                order, rank=rank, world_size=world_size, remainder=self.remainder, dataset_length=len(reader)
            )
        return Schedule(
            order, self.batch_size, drop_last=self.drop_last, rank=rank, world_size=world_size,
            remainder=self.remainder, dataset_length=len(reader),
        )  # fmt: skip

    @property
    def memory_bytes(self) -> int | None:
        """The limit in bytes, if there is one."""
        return None if self.memory_limit is None else parse_size(self.memory_limit, "memory_limit")

    def reading(self, dataset: Dataset, fields: Sequence[Field], plan: Plan) -> Reading:
        """How the bytes of these fields come into memory."""
        window = plan.pages_at_once()
        habit = Habit(window, in_order=window > 0 and str(plan.describe()["kind"]).endswith("sequential"))
        payloads = sum(field.has_payload for field in fields)
        found = plan_reading(self.io, dataset, habit, self.batch_size, self.ahead, payloads, self.memory_bytes)
        return replace(found, window=window)

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

    def _order(self, reader: DatasetReader, lanes: int, run: int) -> Order | BatchOrder:
        if self.sampler is not None:
            if isinstance(self.sampler, Order | BatchOrder):
                _check_length(self.sampler, len(reader))
                return self.sampler
            wrapper: Any = FromBatches if gives_batches(self.sampler) else FromIterable
            return wrapper(self.sampler, len(reader))  # type: ignore[no-any-return]
        name = self.order or ("random" if self.shuffle else "sequential")
        indices = None if self.indices is None else as_indices(self.indices, len(reader))
        if name == "quasi_random":
            dataset = reader.dataset
            shards = dataset.shards  # by the smallest of pages, so that nothing need be opened before the others are
            if not is_vast(shards, MIN_PAGE_SIZE) or not is_vast(shards, dataset.page_size):
                dataset.warm(range(len(dataset.shards)), lambda number: dataset.file(number).pages())
            pages = Pages.of(dataset)
            chosen = pages if indices is None else pages.within(indices)
            quasi = QuasiRandom(chosen, self.window or DEFAULT_WINDOW, self.seed, lanes, run)
            return quasi if indices is None else Subset(indices, len(reader), quasi)
        own: Order | None = reader.own_order(self.seed) if name == "random" and indices is None else None
        if own is not None:
            return own
        length = len(reader) if indices is None else len(indices)
        inner: Order = Shuffled(length, self.seed) if name == "random" else Sequential(length)
        return inner if indices is None else Subset(indices, len(reader), inner)


def _check_length(order: Order | BatchOrder, length: int) -> None:
    """Refuse an order of this library that was made for a dataset of another length."""
    if isinstance(order, Sequential | Shuffled | QuasiRandom | Subset | Weighted | LengthBuckets):
        stated = describe(order)["dataset"]
        if stated != length:
            raise ValueError(
                f"sampler: this {type(order).__name__} is for a dataset of {stated} samples, and this has {length}; "
                "make it anew, or choose among the samples by Subset or indices="
            )


def _follows_alone(field: Field, ops: Any) -> bool:
    """Whether it follows an image and does no more: positions are then moved however they are laid out."""
    return kind_of(field, ops) == "follow" and len(ops) == 1


def _varies(field: Field, ops: Any) -> bool | None:
    """Whether what a pipeline makes of values varies in length; ``None`` where functions of the user's decide."""
    chooses = isinstance(field, ListField) and any(isinstance(op, Choose) for op in ops)
    if elements_of(field.field if chooses else field) is not None:  # type: ignore[attr-defined]
        return True
    return None if any(isinstance(Named.of(op).op, CustomOp) for op in ops if isinstance(op, Op)) else False


def _pads_some(fields: Mapping[str, Field], apart: Sequence[str]) -> bool:
    return any(name not in apart and elements_of(field) is not None for name, field in fields.items())


def _fields(reader: DatasetReader, names: Iterable[str]) -> dict[str, Field]:
    """The fields of these names alone: another may be of a type that nobody here knows."""
    return {name: reader.dataset.field(reader.field_names.index(name)) for name in names}


def _batch_fields(chosen: Sequence[str], pipelines: Pipelines) -> list[str]:
    """The fields of a batch, by names that differ."""
    found: list[str] = []
    for name in chosen:
        pipeline = pipelines.get(name)
        if isinstance(pipeline, Images | ClipPipeline):
            found += [one for one in pipeline.fields if not one.startswith(HIDDEN)]
        else:
            found += [name, *(pipeline.returned if isinstance(pipeline, Following | FlowFollowing) else ())]
    for name in found:
        if found.count(name) > 1:
            raise PipelineError(f"two fields of the batch would be {name!r}: return one by another name")
    return found


def _check_known(what: str, names: Iterable[str], among: Sequence[str]) -> None:
    unknown = [name for name in names if name not in among]
    if unknown:
        raise ValueError(f"{what} unknown fields {', '.join(unknown)}; there are {', '.join(among)}")
