"""The loader: batches made by the native engine, in an order that is arithmetic, from any position of any epoch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import DecodeError, FastLoaderError
from fastloader.loader.columns import Column
from fastloader.loader.options import LoaderOptions, OnError, OrderName, Transform
from fastloader.loader.padding import PadSpec
from fastloader.loader.reading import Io
from fastloader.loader.runner import Runner
from fastloader.reader import DatasetReader
from fastloader.samplers import BatchOrder, EpochDigest, Order, Position, Remainder
from fastloader.samplers.checks import whole
from fastloader.types import Batch

DIGESTED_AT_ONCE = 64


class DataLoader:
    """Iterates over a reader in batches: dictionaries of arrays, as ``DatasetReader.read_batch`` gives them.

    Each pass is the next epoch. What a step gives is a function of the dataset, ``seed``, the epoch, the step and the
    world alone, not of ``num_workers`` or timing. Reading and decoding run in ``num_workers`` native threads that never
    hold the GIL (0: one, and everything in Python runs in the caller's thread); ``num_workers * prefetch_factor``
    batches are made ahead. A batch's arrays stay valid as long as they are held.

    - ``transforms``: by field, a function of that field's part of the batch; ``collate_fn`` takes the whole batch. Both
      run in Python threads, in order.
    - ``order``: "sequential", "random" (the default, unless ``shuffle=False``), or "quasi_random", which reads whole
      pages and shuffles within ``window`` of them. ``indices`` restricts to some samples. ``sampler`` is an order of
      ``fastloader.samplers``, any iterable of sample numbers, or one of torch's samplers, and decides the order by
      itself; a batch sampler decides the batches too, whatever ``batch_size`` says.
    - ``fields``: which to load.
    - ``pad``: how samples of different lengths come, for all fields that have such or by field. "list", the default: an
      array where shapes agree, else a list. "ragged": values one behind the other, with ``name_offsets`` (batch + 1).
      "longest", a length, or a ``fastloader.Pad``: rows of one length. ``name_lengths`` comes with both, masked where a
      value is missing; its length is 0.
    - ``on_error``: "raise"; "skip" (a bad sample's row becomes that of the next good one of the batch); "replace" (the
      bad value comes as a missing one). ``stats()`` counts and lists what was bad.
    - ``rank``, ``world_size``: from the usual environment variables when absent. ``remainder`` says how an epoch ends
      that can't be dealt equally: "uneven", "drop" or "pad".
    """

    def __init__(
        self,
        reader: DatasetReader,
        batch_size: int = 32,
        shuffle: bool = True,
        num_workers: int = 4,
        drop_last: bool = False,
        transforms: Mapping[str, Transform] | None = None,
        collate_fn: Callable[[Batch], Any] | None = None,
        prefetch_factor: int = 2,
        *,
        seed: int = 0,
        order: OrderName | None = None,
        window: int = 64,
        indices: Sequence[int] | NDArray[Any] | None = None,
        sampler: Order | BatchOrder | Iterable[int] | None = None,
        fields: Sequence[str] | None = None,
        pad: PadSpec | Mapping[str, PadSpec] = None,
        on_error: OnError = "raise",
        rank: int | None = None,
        world_size: int | None = None,
        remainder: Remainder = "uneven",
        io: Io = "auto",
        memory_limit: int | str | None = None,
    ) -> None:
        self._runner: Runner | None = None
        if not isinstance(reader, DatasetReader):
            raise TypeError(f"a loader takes a reader, not a {type(reader).__name__}; give it fastloader.open(path)")
        self.reader = reader
        self.options = LoaderOptions(
            batch_size=batch_size, shuffle=shuffle, num_workers=num_workers, drop_last=drop_last,
            transforms=dict(transforms or {}), collate_fn=collate_fn, prefetch_factor=prefetch_factor, seed=seed,
            order=order, window=window, indices=indices, sampler=sampler, fields=fields, pad=pad, on_error=on_error,
            rank=rank, world_size=world_size, remainder=remainder, io=io, memory_limit=memory_limit,
        )  # fmt: skip
        self._names = self.options.chosen_fields(reader)
        self._layouts = self.options.layouts(reader)
        self.plan = self.options.plan(reader)
        self._next_epoch = 0
        self._resume: Position | None = None
        # The epoch, what was done of it when this pass began, and the step last given.
        self._place: tuple[int, int, int | None] = (0, 0, None)
        self._digest = EpochDigest(0)
        self._undigested: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return self.plan.steps(0, self._next_epoch)

    def set_epoch(self, epoch: int) -> None:
        """The number of the next pass."""
        self._next_epoch = whole("epoch", epoch)
        self._resume = None
        self._place = (self._next_epoch, 0, None)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, in a few numbers ready for JSON: behind the batch that was given last."""
        epoch, done, step = self._place
        if step is not None:
            done = self.plan.done_after(step, done, epoch)
        return Position.of(self.plan, epoch, done).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state with the next pass, on as many ranks and workers as there are now."""
        position = Position.from_dict(state)
        plan = self.options.plan(self.reader, position.order) if "lanes" in position.order else self.plan
        position.check(plan)
        self.plan = plan
        self._resume = position
        self._next_epoch = position.epoch
        self._place = (position.epoch, position.done, None)

    def digest(self) -> EpochDigest:
        """What this rank was given of the current epoch, in a form that ranks can merge and compare."""
        if self._undigested:
            given, self._undigested = self._undigested, []
            self._digest = self._digest.add(np.concatenate(given))
        return self._digest

    def stats(self) -> dict[str, Any]:
        """What was done and where the time went, in seconds, since the loader was made."""
        runner = self._running()
        done = runner.counters
        return {
            "batches": done.batches,
            "samples": done.samples,
            "waiting": done.waiting,
            "python": done.python,
            "fields": runner.times(),
            "io": runner.reads(),
            "bad_values": done.faults,
            "bad": list(done.listed),
            "slots": runner.slots_made,
        }

    def close(self) -> None:
        """End the threads. Batches already given stay valid."""
        if self._runner is not None:
            self._runner.stop()
            self._runner = None

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runner": None}

    def __iter__(self) -> Iterator[Any]:
        epoch, done = self._next_epoch, 0
        if self._resume is not None:
            epoch, done, self._resume = self._resume.epoch, self._resume.done, None
        self._next_epoch = epoch + 1
        self._place = (epoch, done, None)
        self._digest = EpochDigest(epoch)
        self._undigested = []
        return self._epoch(epoch, done)

    def _epoch(self, epoch: int, done: int) -> Iterator[Any]:
        runner = self._running()
        steps = self.plan.steps(done, epoch)
        batches = (self.plan.batch(epoch, step, done) for step in range(steps))
        python = self.options.num_workers if self._needs_python(runner) else 0
        with contextlib.closing(runner.run(batches, self._finish, python)) as finished:
            for step in range(steps):
                batch, samples = next(finished)
                self._place = (epoch, done, step)
                self._undigested.append(samples)
                if len(self._undigested) == DIGESTED_AT_ONCE:
                    self.digest()
                yield batch
                del batch
        self._place = (epoch + 1, 0, None)

    def _running(self) -> Runner:
        """The engine of this process; a forked child makes its own."""
        if self._runner is None or not self._runner.mine:
            names = self.reader.field_names
            columns = [
                Column(names.index(name), name, self.reader.fields[name], self._layouts.get(name))
                for name in self._names
            ]
            threads = max(1, self.options.num_workers)
            depth = threads * self.options.prefetch_factor
            limit = self.options.memory_limit
            assert limit is None or isinstance(limit, int)
            reading = self.options.reading(self.reader, self._names, self.plan)
            self._runner = Runner(self.reader.dataset, columns, threads, depth, self.options.on_error, reading, limit)
        return self._runner

    def _needs_python(self, runner: Runner) -> bool:
        return bool(self.options.transforms or self.options.collate_fn) or runner.needs_python

    def _finish(self, batch: Batch, samples: NDArray[np.int64]) -> tuple[Any, NDArray[np.int64]]:
        for name, transform in self.options.transforms.items():
            try:
                batch[name] = transform(batch[name])
            except FastLoaderError:
                raise
            except Exception as error:
                some = f"samples {samples[:4].tolist()}{' ...' if len(samples) > 4 else ''}"
                raise DecodeError(
                    f"the transform failed on {some}: {type(error).__name__}: {error}",
                    path=self.reader.path, field=name,
                ) from error  # fmt: skip
        return (batch if self.options.collate_fn is None else self.options.collate_fn(batch)), samples
