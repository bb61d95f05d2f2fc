"""Samples of a reader read a block at a time and handed out one by one: as ``read_sample`` gives them, but cheaper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError, NotFoundError, StoreError
from fastloader.fields.singles import single_values, tells_values
from fastloader.reader import DatasetReader
from fastloader.types import Sample

MOST = 64
BYTES = 1 << 20
"""Samples of a block, and stored bytes: what is large gains nothing, and would be held for long."""


class Blocks:
    """How the samples of a reader are read in blocks."""

    def __init__(self, reader: DatasetReader, fields: Sequence[str] | None) -> None:
        dataset = reader.dataset
        self._reader = reader
        self._names = list(dataset.names if fields is None else fields)
        known = {name: dataset.field(dataset.names.index(name)) for name in self._names}
        self._together = {name: field for name, field in known.items() if tells_values(field)}
        size = sum(shard.size for shard in dataset.shards) // max(1, len(reader))
        self._most = max(1, min(MOST, BYTES // max(1, size)))

    def lazily(self, samples: NDArray[np.int64], alone: Callable[[int], Sample]) -> list[Callable[[], Sample]]:
        """Functions that give these samples, to be called in order. What a block can't give is read ``alone``."""
        if self._most == 1 or len(samples) == 1:
            return [partial(alone, sample) for sample in samples.tolist()]
        found: list[Callable[[], Sample]] = []
        for first in range(0, len(samples), self._most):
            some = samples[first : first + self._most].tolist()
            found += [Block(self.read, some, alone).next] * len(some)
        return found

    def read(self, samples: Sequence[int]) -> list[Sample]:
        """Samples as ``read_sample`` gives them, read together."""
        batch = self._reader.read_batch(samples, list(self._together)) if self._together else {}
        columns = {name: single_values(self._together[name], values) for name, values in batch.items()}
        apart = [name for name in self._names if columns.get(name) is None]
        if apart:
            each = [self._reader.read_sample(sample, apart) for sample in samples]
            columns |= {name: [one[name] for one in each] for name in apart}
        rows = zip(*(columns[name] for name in self._names), strict=True)
        return [dict(zip(self._names, row, strict=True)) for row in rows]


class Block:
    """A few samples, ``read`` together when the first is asked for, or each ``alone`` where that fails."""

    def __init__(
        self, read: Callable[[list[int]], list[Sample]], samples: list[int], alone: Callable[[int], Sample]
    ) -> None:
        self._together, self._alone = read, alone
        self._samples = iter(samples)
        self._all: list[int] | None = samples
        self._read: list[Sample] = []

    def next(self) -> Sample:
        """The next of them."""
        if self._all is not None:
            try:
                self._read = self._together(self._all)[::-1]
            except FastLoaderError as error:  # some are bad: each speaks for itself when its turn comes
                if isinstance(error, StoreError) and not isinstance(error, NotFoundError):
                    raise  # it was tried often enough
                self._read = []
            self._all = None
        sample = next(self._samples)
        return self._read.pop() if self._read else self._alone(sample)
