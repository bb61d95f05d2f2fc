"""The loader: batches made by the native engine, in an order that is arithmetic, from any position of any epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import NotFoundError
from fastloader.loader.columns import Column
from fastloader.loader.finishing import Finishing
from fastloader.loader.memory import memory_lines
from fastloader.loader.options import LoaderOptions, OnError, OrderName, ThreadingOptions, Transform
from fastloader.loader.padding import PadSpec
from fastloader.loader.passes import Pass, Progress
from fastloader.loader.reading import Io
from fastloader.loader.runner import SPARE_SLOTS, Runner
from fastloader.loader.stats import Counters
from fastloader.loader.tuning import Limits, Tuner
from fastloader.ops import BatchOp, Choose, ClipOp, Follow, LabelOp, Op, SoundOp, Views
from fastloader.pipeline import Images, Pipeline
from fastloader.pipeline.pieces import sides
from fastloader.reader import DatasetReader
from fastloader.samplers import BatchOrder, EpochDigest, Order, Position, Remainder, StateError
from fastloader.samplers.checks import whole
from fastloader.types import Batch


class DataLoader:
    """Iterates over a reader in batches: dictionaries of arrays, as ``DatasetReader.read_batch`` gives them.

    Each pass is the next epoch. What a step gives is a function of the dataset, ``seed``, the epoch, the step and the
    world alone, not of ``num_workers`` or timing. Reading and decoding run in ``num_workers`` native threads that never
    hold the GIL (4 unless told otherwise, at most 1,024; 0: one, and everything in Python runs in the caller's thread),
    and in the caller's thread while it would wait. ``num_workers * prefetch_factor`` batches are made ahead. A batch's
    arrays stay valid as long as they are held.

    - ``transforms``: by field, a function of that field's part of the batch; ``collate_fn`` takes the whole batch. Both
      run in Python threads, in order.
    - ``reader``: of a dataset or archive; or an expression over one that only chooses samples of it (``filter``,
      ``take``, ``skip``, ``shard``, slices), whose numbers are then ``indices``: 8 bytes each.
    - ``order``: "sequential", "random" (the default, unless ``shuffle=False``), or "quasi_random", which reads whole
      pages and shuffles within ``window`` of them (64 unless given). ``indices`` restricts to some samples. ``sampler``
      is an order of ``fastloader.samplers``, any iterable of sample numbers, or one of torch's samplers, and decides
      the order by itself; a batch sampler decides the batches too, whatever ``batch_size`` says, and ``drop_last`` is
      told to it.
    - ``fields``: which to load.
    - ``pipelines``: by field, a list of ``fastloader.ops``. Those on images, arrays and sounds run in the engine, from
      stored bytes to the finished row of the batch in one go; functions of yours run on values of any field. All are
      checked before anything is read, and ``explain()`` tells them. ``ops.Views`` in place of a list makes several
      views.
      ``batch_ops`` are those on whole batches: ``ops.Mixup``, ``ops.CutMix``.
    - ``pad``: how samples of different lengths come, for all fields that have such or by field. "list", the default: an
      array where shapes agree, else a list. "ragged": values one behind the other, with ``name_offsets`` (batch + 1).
      "longest", a length, or a ``fastloader.Pad``: rows of one length. ``name_lengths`` comes with both, masked where a
      value is missing; its length is 0.
    - ``on_error``: "raise"; "skip" (a bad sample's row becomes that of the next good one of the batch, or of batches
      further on in the epoch's order where there is none); "replace" (the
      bad value comes as a missing one). ``stats()`` counts and lists what was bad. It holds for functions of yours too:
      which sample it was is found out by giving them one at a time.
    - ``rank``, ``world_size``: from the usual environment variables when absent. ``remainder`` says how an epoch ends
      that can't be dealt equally: "uneven", "drop" or "pad".
    - ``io``: how bytes come that are not in memory. "mmap" lets the system bring them when they are touched. "uring"
      and "pread" read them ahead along the plan, past the page cache, neighbours together and none twice: by io_uring,
      or by threads. "auto" brings a dataset that fits into half of the free memory into the page cache; of a larger
      one it looks what is in memory, and reads the rest by io_uring where there is one. Objects in a store are fetched
      along the plan, many ranges at a time; with ``auto_tune`` their number grows while that makes it faster.
    - ``memory_limit``: bytes (or "2GB") for batches being made and bytes read ahead. One batch is made in any case.
    - ``auto_tune``: start with one thread and two batches ahead, and grow both while the consumer waits for batches and
      growing helps. ``num_workers`` (then by default the number of usable CPUs) and ``prefetch_factor`` give the most;
      memory that runs short makes it less. ``stats()["tuning"]`` says what was chosen.
    - ``threading``: a ``ThreadingOptions``.
    """

    pinning: kernels.Pinning | None = None
    """Has the memory of batches pinned, for those who copy it to a GPU; to be set before the first pass."""
    parts: Mapping[str, float] = MappingProxyType({})
    """Fields of JPEGs of which this share comes as parts still to be decoded (``kernels.PART``), for those who do that
    elsewhere; to be set before the first pass."""
    stands_in: bool = True
    """Whether others of the epoch stand in for a batch without a good sample, where bad ones are skipped."""

    def __init__(
        self,
        reader: DatasetReader,
        batch_size: int = 32,
        shuffle: bool = True,
        num_workers: int | None = None,
        drop_last: bool = False,
        transforms: Mapping[str, Transform] | None = None,
        collate_fn: Callable[[Batch], Any] | None = None,
        prefetch_factor: int = 2,
        *,
        seed: int = 0,
        order: OrderName | None = None,
        window: int | None = None,
        indices: Sequence[int] | NDArray[Any] | None = None,
        sampler: Order | BatchOrder | Iterable[int] | None = None,
        fields: Sequence[str] | None = None,
        pipelines: Mapping[str, Sequence[Op | LabelOp | Follow | SoundOp | ClipOp | Choose] | Views] | None = None,
        batch_ops: Sequence[BatchOp] = (),
        pad: PadSpec | Mapping[str, PadSpec] = None,
        on_error: OnError = "raise",
        rank: int | None = None,
        world_size: int | None = None,
        remainder: Remainder = "uneven",
        io: Io = "auto",
        memory_limit: int | str | None = None,
        threading: ThreadingOptions | None = None,
        auto_tune: bool = False,
    ) -> None:
        self._runner: Runner | None = None
        if not isinstance(reader, DatasetReader) and hasattr(reader, "node"):
            reader = getattr(reader, "reader", reader)  # an archive has one of its files; another loader is no dataset
        if not isinstance(reader, DatasetReader) and hasattr(reader, "chosen_samples"):  # an expression
            if indices is not None:
                raise ValueError("indices: the dataset chooses samples already; choose with its steps, or with these")
            reader, indices, own = reader.chosen_samples()
            fields = own if fields is None else fields
        if not isinstance(reader, DatasetReader):
            raise TypeError(
                f"a loader takes a reader of a .fld dataset, not a {type(reader).__name__}; give it "
                "fastloader.open(path) of one, or of tars, zips or Barecat archives that are not packed; iterate "
                ".shuffle().batch() of a dataset such as this, or write it as .fld first"
            )
        self.reader = reader
        self.options = LoaderOptions(
            batch_size=batch_size, shuffle=shuffle, num_workers=num_workers, drop_last=drop_last,
            transforms={} if transforms is None else transforms, collate_fn=collate_fn,
            prefetch_factor=prefetch_factor, seed=seed, order=order, window=window, indices=indices, sampler=sampler,
            fields=fields, pipelines={} if pipelines is None else pipelines, batch_ops=batch_ops, pad=pad,
            on_error=on_error, rank=rank, world_size=world_size, remainder=remainder, io=io, memory_limit=memory_limit,
            threading=ThreadingOptions() if threading is None else threading, auto_tune=auto_tune,
        )  # fmt: skip
        self._prepare()
        self._next_epoch = 0
        self._resume: Position | None = None
        self._progress = Progress(0)
        self._counters: Counters | None = None
        self._last_stats: dict[str, Any] | None = None

    def _prepare(self) -> None:
        """What follows from the options for the reader there is."""
        reader = self.reader
        self.plan = self.options.plan(reader)  # opens all objects at once, where it needs them
        self._names = self.options.chosen_fields(reader)
        self._layouts = self.options.layouts(reader)
        self._ways = self.options.ways(reader)
        self._pipelines = self.options.compiled(reader)
        self._batch_steps = self.options.batch_steps(self._pipelines)
        if reader.dataset.is_remote:  # what can't be read so, or not within the cache, is told now
            numbers = map(reader.field_names.index, self._names)
            self.options.reading(reader.dataset, list(map(reader.dataset.field, numbers)), self.plan)

    def __len__(self) -> int:
        return self.plan.steps(0, self._next_epoch)

    def set_epoch(self, epoch: int) -> None:
        """The number of the next pass. One that a loaded state is in the middle of still begins there."""
        self._next_epoch = whole("epoch", epoch)
        if self._resume is not None and self._resume.epoch == self._next_epoch:
            return
        self._resume = None
        self._progress = self._progress.moved(self._next_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, in a few numbers ready for JSON: behind the batch that its newest pass gave last."""
        named = {} if self.reader.snapshot is None else {"snapshot": self.reader.snapshot}
        return Position.of(self.plan, self._progress.epoch, self._progress.done(self.plan)).to_dict() | named

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state with the next pass, on as many ranks and workers as there are now.

        What was changed in the dataset since then is not seen: the loader goes back to the snapshot that the state
        names, and ``reader`` is then a reader of that.
        """
        position = Position.from_dict(state)
        self._go_back(state.get("snapshot"))
        plan = self.options.plan(self.reader, position.order) if "lanes" in position.order else self.plan
        position.check(plan)
        self.plan = plan
        self._resume = position
        self._next_epoch = position.epoch
        self._progress = self._progress.moved(position.epoch, position.done)

    def _go_back(self, snapshot: Any) -> None:
        """Read the snapshot that a state names. One of an earlier version names none."""
        if snapshot is None or snapshot == self.reader.snapshot or self.reader.snapshot is None:
            return
        try:
            dataset = self.reader.dataset.at_snapshot(snapshot)
        except (NotFoundError, ValueError, TypeError) as error:
            raise StateError(
                f"the state is of snapshot {snapshot}, which {self.reader.path} does not have; this is "
                f"{self.reader.snapshot}",
                hint="open what the run has read; if it is known to have the same samples in the same order, remove "
                "'snapshot' from the state",
            ) from error  # fmt: skip
        self.close()
        self.reader = type(self.reader).of(dataset)
        self._prepare()

    def digest(self) -> EpochDigest:
        """What this rank was given in the newest pass, in a form that ranks can merge and compare.

        Samples that ``on_error="skip"`` left out are not in it, and those in their place count again.
        """
        return self._progress.digest()

    def stats(self) -> dict[str, Any]:
        """What was done and where the time went since the loader was made: a dictionary ready for JSON.

        Times are seconds; those of threads are sums over threads.

        - ``batches``, ``samples``: given to the consumer. ``bad_values``, ``bad``: how many values were bad, and the
          first thousand of them.
        - ``running``: while an epoch was under way. In it the consumer was ``waiting`` for batches, and busy with them
          for ``consumer``; its thread also spent ``planning`` on which samples come next.
        - ``python``: Python code that finished batches, of which ``transform`` and ``collate`` are the user's.
        - ``fields``, for each: its ``type``; ``lookup`` and ``read``, all the time native threads spent on it, of which
          ``decode`` was work (look up, copy, check, decompress, decode), ``blocked`` waiting for bytes from disk, and
          ``preempted`` waiting for a CPU; ``python`` and ``transform``; ``stored_bytes`` of files and
          ``decoded_bytes`` of batches.
        - ``threads``: ``native`` and ``python`` threads, usable ``cpus``; ``seconds`` of all native threads, of which
          they were ``busy``, ``blocked``, ``preempted`` or ``idle``; ``most_in_one_batch`` at a time.
        - ``io``: the ``mode`` of reading, the ``window`` of pages that the order goes through at a time and whole (0:
          samples lie here and there), stored ``bytes`` of batches, seconds that batches or threads were ``waiting``
          for them, ``major_faults``. Where they are read ahead: ``by`` whom, "uring" or "pread" (threads, also where
          io_uring is refused); ``reads`` and ``read_bytes``, of which payloads are ``payload_bytes``;
          ``batches_in_memory``, which needed none; payloads ``given_up`` to the mapping for want of memory. Of objects
          in a store: ``requests`` and ``fetched_bytes`` of the server, how many may be ``in_flight`` and how many were
          at most, how many were ``hedged`` (asked for twice), ``cache_hits`` and ``cache_misses``.
        - ``memory``: bytes of the ``largest_batch``, and of batches' memory ``kept`` for reuse. ``slots``: for how many
          batches memory was ever made. ``ahead``: how many are made ahead.
        - ``tuning``: what ``auto_tune`` chose and why, or ``None``.
        """
        if self._runner is None and self._last_stats is not None:
            return self._last_stats
        return self._running().stats()

    def explain(self) -> str:
        """What is done for each field, step by step, with shapes and types, and the memory that batches take."""
        told = []
        for name in self._names:
            compiled = self._pipelines.get(name)
            if compiled is not None:
                told += [compiled.lines[0], *(f"    {line}" for line in compiled.lines[1:])]
            else:
                told.append(f"{name!r}: loaded as it is stored")
            if name in self.options.transforms:
                told.append(f"    then {self.options.transforms[name]!r}, in Python")
        told += [f"all: {step}" for step in self._batch_steps]
        if self.options.collate_fn is not None:
            told.append(f"all: {self.options.collate_fn!r}, in Python")
        largest = None if self._runner is None else self._runner.slot_bytes
        told += memory_lines(self._columns(), self.options.batch_size, self.options.ahead + SPARE_SLOTS, largest)
        return "\n".join(told)

    def close(self) -> None:
        """End the threads. Batches already given stay valid."""
        if self._runner is not None:
            self._runner.stop()
            if self._runner.mine:
                self._counters, self._last_stats = self._runner.counters, self._runner.stats()
            self._runner = None

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # When the interpreter ends, contextlib may be gone before this is.
        try:  # noqa: SIM105
            self.close()
        except Exception:
            pass

    def __getstate__(self) -> dict[str, Any]:
        own = {"_runner": None, "_counters": None, "_last_stats": None}  # this process's
        return {**self.__dict__, **own, "_pipelines": {}, "pinning": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pipelines = self.options.compiled(self.reader)  # native programs belong to their process

    def __iter__(self) -> Iterator[Any]:
        epoch, done = self._next_epoch, 0
        if self._resume is not None:
            epoch, done, self._resume = self._resume.epoch, self._resume.done, None
        self._next_epoch = epoch + 1
        self._progress = Progress(epoch, done)
        return self._pass(epoch, done)

    def _pass(self, epoch: int, done: int) -> Pass:
        runner = self._running()
        options = self.options
        plan = self.plan.holding(epoch)  # for the length of this pass, however many others begin meanwhile
        steps = plan.steps(done, epoch)
        batches = (plan.batch(epoch, step, done) for step in range(steps))
        finishing = None
        if options.transforms or options.collate_fn or self._batch_steps:
            steps_of_all, collate = self._batch_steps, options.collate_fn
            finishing = Finishing(steps_of_all, options.transforms, collate, runner.counters, epoch)
        python = options.workers if finishing is not None or runner.needs_python else 0

        def instead(step: int, further: int) -> NDArray[np.int64]:
            return plan.instead(epoch, step, done, further)

        stand_in = instead if self.stands_in else None
        return Pass(steps, self._progress, runner.run(batches, finishing, python, epoch, stand_in))

    def _columns(self) -> list[Column]:
        # Only those asked for: the type of another may be unknown here.
        return [
            Column(
                number,
                name,
                self.reader.dataset.field(number),
                self._layouts.get(name),
                self._pipeline(name),
                self._ways.get(name),
            )
            for number, name in enumerate(self.reader.field_names)
            if name in self._names
        ]

    def image_size(self, name: str) -> tuple[int, int]:
        """Height and width of the images that a field's pipeline makes, where that is one of images."""
        pipeline = self._pipelines[name]
        assert isinstance(pipeline, Images)
        height, width = sides(pipeline.views[0].result)[:2]
        return height, width

    def _pipeline(self, name: str) -> Pipeline | None:
        pipeline = self._pipelines.get(name)
        return (
            pipeline.with_parts(self.parts[name]) if name in self.parts and isinstance(pipeline, Images) else pipeline
        )

    def _running(self) -> Runner:
        """The engine of this process; a forked child makes its own."""
        if self._runner is None or not self._runner.mine:
            dataset, columns, options = self.reader.dataset, self._columns(), self.options
            threads, ahead, limit = options.native_threads, options.ahead, options.memory_bytes
            reading = options.reading(dataset, [column.field for column in columns], self.plan)
            room = None if limit is None else limit - reading.memory
            known, self._counters = self._counters, None
            if known is not None and len(known.columns) != len(columns):
                known = None  # of a snapshot that had other fields
            self._runner = Runner(
                dataset, columns, threads, ahead, options.on_error, counters=known, reading=reading, memory_limit=limit,
                helping=not options.threading.private_threadpool_size,
                threads_a_batch=options.threading.max_intra_op_parallelism or 0,
                tuner=Tuner(Limits(threads, ahead, room)) if options.auto_tune else None, pinning=self.pinning,
            )  # fmt: skip
        return self._runner
