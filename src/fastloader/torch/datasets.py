"""Datasets for torch's own DataLoader: one with random access, one that deals itself to ranks and workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fastloader.dataset import MapDataset, open_dataset
from fastloader.dataset.opening import opened
from fastloader.loader import DataLoader
from fastloader.reader import DatasetReader
from fastloader.samplers.checks import whole
from fastloader.samplers.world import world_from_environment
from fastloader.torch.library import torch
from fastloader.torch.tensors import to_tensors
from fastloader.types import Batch, Sample

MOST_WORKERS = 1024
TOGETHER = 16
"""Samples that are made together, where they are given one by one."""


class TorchMapDataset(torch.utils.data.Dataset[Any]):
    """Samples by number, for torch's DataLoader with any sampler and any number of workers.

    ``source`` is a path or URL, a reader, an archive, or a map-style dataset. ``transform`` is called with each sample,
    in the worker. Several samples that torch asks for at once are read together.

    Workers get no copy of the index: what is pickled is the path, and files are mapped once a machine.
    """

    def __init__(
        self,
        source: Any,
        fields: Sequence[str] | None = None,
        transform: Callable[[Sample], Any] | None = None,
    ) -> None:
        self._source = opened(source)
        if not isinstance(self._source, DatasetReader | MapDataset):
            raise TypeError(
                f"TorchMapDataset takes a path, a reader or a map-style dataset, not a {type(source).__name__}; "
                "TorchIterableDataset and Dataset's own steps take what has no random access"
            )
        self._fields = None if fields is None else [fields] if isinstance(fields, str) else list(fields)
        if self._fields is not None:
            if isinstance(self._source, MapDataset):
                raise ValueError("fields= is for readers; choose those of a dataset when it is opened, or by map()")
            unknown = [name for name in self._fields if name not in self._source.field_names]
            if unknown:
                there = ", ".join(self._source.field_names)
                raise ValueError(f"fields: unknown {', '.join(unknown)}; there are {there}")
        self._transform = transform

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples; torch calls it with those of a batch."""
        numbers = [self._number(index) for index in indices]
        if isinstance(self._source, MapDataset):
            samples = [self._source[number] for number in numbers]
        else:
            samples = self._read(numbers)
        return samples if self._transform is None else [self._transform(sample) for sample in samples]

    def _number(self, index: int) -> int:
        number, count = int(index), len(self)
        if not -count <= number < count:
            raise IndexError(f"sample {number} of {count}")
        return number % count

    def _read(self, numbers: list[int]) -> list[Sample]:
        if len(numbers) == 1:
            return [self._source.read_sample(numbers[0], self._fields)]
        columns = self._source.read_batch(numbers, self._fields)
        return [{name: values[row] for name, values in columns.items()} for row in range(len(numbers))]


class TorchIterableDataset(torch.utils.data.IterableDataset[Any]):
    """Samples or batches in the loader's order, each exactly once over all ranks and workers.

    It takes the options of ``fastloader.DataLoader``: seed, order, pipelines, ``on_error`` and the rest. Without
    ``batch_size`` it gives samples, for torch to put together; with it, batches as tensors, for
    ``torch.utils.data.DataLoader(dataset, batch_size=None)``.

    Within torch's workers each gets its share, as if it were a rank: ``remainder`` says how the end of an epoch is
    dealt. Passes are epochs 0, 1, 2 and so on, in workers that stay and in those that are made anew; ``set_epoch``
    chooses one. ``state_dict`` and ``load_state_dict`` are those that torchdata's StatefulDataLoader asks for, in each
    worker. How many elements a pass has depends on the number of workers, so there is no length.
    """

    def __init__(self, source: Any, batch_size: int | None = None, **options: Any) -> None:
        super().__init__()
        self._reader = open_dataset(source) if isinstance(source, str | os.PathLike) else source
        self._batch_size = None if batch_size is None else whole("batch_size", batch_size, 1)
        self._world = world_from_environment(options.pop("rank", None), options.pop("world_size", None))
        self._options = {"num_workers": 1, **options}
        self._loader_of(0, 1).close()  # wrong options are told here, not in a worker
        # Which epoch is next, by worker: shared with the workers, wherever they come from.
        self._epochs = torch.zeros(MOST_WORKERS, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._at: tuple[dict[str, Any], int] | None = None
        self._resume: Mapping[str, Any] | None = None

    def set_epoch(self, epoch: int) -> None:
        """The number of the next pass, in every worker."""
        self._epochs.fill_(whole("epoch", epoch))

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if worker >= MOST_WORKERS:
            raise ValueError(f"{workers} workers: at most {MOST_WORKERS}")
        loader, over = self._loader_of(worker, workers), 0
        loader.set_epoch(int(self._epochs[worker]))
        if self._resume is not None:
            loader.load_state_dict(self._resume["loader"])
            over, self._resume = whole("given", self._resume["given"]), None
        self._at = (loader.state_dict(), over)
        self._epochs[worker] = self._at[0]["epoch"] + 1
        return self._pass(loader, over)

    def _pass(self, loader: DataLoader, over: int) -> Iterator[Any]:
        with loader:
            for batch in loader:
                if self._batch_size is not None:
                    self._at = (loader.state_dict(), 0)
                    yield to_tensors(batch)
                    continue
                before, _ = self._at or ({}, 0)
                samples = _samples(batch)
                for given in range(over, len(samples)):
                    self._at = (before, given + 1)
                    yield samples[given]
                over = 0
                self._at = (loader.state_dict(), 0)

    def state_dict(self) -> dict[str, Any]:
        """Where this worker is."""
        if self._at is None:
            return dict(self._resume or {})
        return {"loader": self._at[0], "given": self._at[1]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Where the next pass of this worker begins."""
        self._resume = dict(state) or None

    def _loader_of(self, worker: int, workers: int) -> DataLoader:
        return DataLoader(
            self._reader, self._batch_size or TOGETHER, rank=self._world.rank * workers + worker,
            world_size=self._world.world_size * workers, **self._options,
        )  # fmt: skip


def _samples(batch: Batch) -> list[Sample]:
    count = len(next(iter(batch.values())))
    return [{name: values[row] for name, values in batch.items()} for row in range(count)]
