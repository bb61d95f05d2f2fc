"""A loader that reads batches in threads, in an order that depends on seed and epoch alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import DecodeError, FastLoaderError
from fastloader.reader import DatasetReader
from fastloader.types import Batch

Transform = Callable[[Any], Any]


class DataLoader:
    """Iterates over a reader in batches: dictionaries of arrays, as ``DatasetReader.read_batch`` gives them.

    Each pass is the next epoch; with ``shuffle`` its order is a function of ``seed`` and the epoch's number, not of
    ``num_workers`` (0 reads in the caller's thread). ``transforms`` maps a field's name to a function of that field's
    part of the batch, and ``collate_fn`` takes the finished dictionary; both run in the workers. Up to
    ``num_workers * prefetch_factor`` batches are read ahead. An error in a worker is raised where the batch would have
    come.
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
    ) -> None:
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("num_workers", num_workers, 0),
            ("prefetch_factor", prefetch_factor, 1),
            ("seed", seed, 0),
        ):
            if value < least:
                raise ValueError(f"{name}={value}: at least {least}")
        unknown = set(transforms or ()) - set(reader.field_names)
        if unknown:
            known = ", ".join(reader.field_names)
            raise ValueError(f"transforms for unknown fields {', '.join(sorted(unknown))}; there are {known}")
        self.reader = reader
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.num_workers = num_workers
        self.drop_last = drop_last
        self.transforms = dict(transforms or {})
        self.collate_fn = collate_fn
        self.prefetch_factor = prefetch_factor
        self.seed = seed
        self._epoch = 0

    def __len__(self) -> int:
        whole, rest = divmod(len(self.reader), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """The number of the next pass."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        order = self._order(epoch)
        batches = (order[i * self.batch_size : (i + 1) * self.batch_size] for i in range(len(self)))
        if self.num_workers == 0:
            # A generator: a StopIteration raised by user code in it is an error, not the end of the epoch.
            return (self._load(indices) for indices in batches)
        return self._ahead(batches)

    def _ahead(self, batches: Iterator[NDArray[np.int64]]) -> Iterator[Any]:
        running: deque[Future[Any]] = deque()
        pool = ThreadPoolExecutor(self.num_workers, "fastloader-loader")
        try:
            for indices in batches:
                running.append(pool.submit(self._load, indices))
                if len(running) >= self.num_workers * self.prefetch_factor:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if not self.shuffle:
            return np.arange(len(self.reader), dtype=np.int64)
        return np.random.Generator(np.random.Philox([self.seed, epoch])).permutation(len(self.reader))

    def _load(self, indices: NDArray[np.int64]) -> Any:
        batch = self.reader.read_batch(indices)
        for name, transform in self.transforms.items():
            try:
                batch[name] = transform(batch[name])
            except FastLoaderError:
                raise
            except Exception as error:
                samples = f"samples {indices[:4].tolist()}{' ...' if len(indices) > 4 else ''}"
                raise DecodeError(
                    f"the transform failed on {samples}: {type(error).__name__}: {error}",
                    path=self.reader.path,
                    field=name,
                ) from error
        return batch if self.collate_fn is None else self.collate_fn(batch)
