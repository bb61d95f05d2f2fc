"""Samples of many ZCLD shards as views of the mapped files."""

from __future__ import annotations

import operator
import os
import weakref
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastloader.errors import FormatError
from fastloader.formats.zc import ZCShard
from fastloader.zc.prefetch import Prefetcher


class ShardLoader:
    """Shards open for reading, their samples numbered through. Safe from many threads and across fork.

    A sample is a read-only memoryview of the mapped file: nothing is copied, and it stays valid after ``close``.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str]) -> None:
        several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        if not several:
            raise ValueError("no shards are given; name at least one file")
        # Absolute, because a pickle may be opened in another working directory.
        self._open: _Shards | None = _Shards([ZCShard(Path(path).absolute()) for path in several])
        self._current = -1
        self._prefetcher = self._new_prefetcher()

    @property
    def total_samples(self) -> int:
        """Samples in all shards."""
        return self._shards.total

    @property
    def num_shards(self) -> int:
        """How many shards there are."""
        return len(self._shards.files)

    def get_sample(self, index: int) -> memoryview:
        """One sample; negative numbers count from the end."""
        shards = self._shards
        sample = shards.number(index)
        self._current = shard = bisect_right(shards.bounds, sample) - 1
        return shards.views[shard][shards.begins[sample] : shards.ends[sample]]

    def get_batch(self, indices: ArrayLike) -> list[memoryview]:
        """The samples with these numbers, in this order; any sequence or array of whole numbers."""
        shards = self._shards
        samples = shards.numbers(indices)
        if not len(samples):
            return []
        which: list[int] = (np.searchsorted(shards.bounds, samples, "right") - 1).tolist()
        self._current = which[-1]
        begins, ends = shards.begins[samples].tolist(), shards.ends[samples].tolist()
        return [shards.views[shard][begin:end] for shard, begin, end in zip(which, begins, ends, strict=True)]

    def prefetch_next(self, count: int = 1) -> range:
        """Start to bring the ``count`` shards behind the one last read into memory, and give their numbers.

        The one last read is that of the last sample handed out; before any, shard 0 is next. Behind the last shard
        there is nothing to read. The call returns at once; a background thread reads until all that was asked for is
        in memory.
        """
        files = self._shards.files
        count = operator.index(count)
        if count < 0:
            raise ValueError(f"count={count}: 0 or more")
        first = self._current + 1
        numbers = range(first, min(first + count, len(files)))
        self._own_prefetcher().add((number, files[number]) for number in numbers)
        return numbers

    def wait_prefetch(self) -> None:
        """Wait until what ``prefetch_next`` asked for is in memory. Raises what went wrong since the last time."""
        if self._shards:
            self._own_prefetcher().wait()

    def close(self) -> None:
        """Stop reading ahead and let go of the files. Samples already handed out stay valid."""
        self._open = None
        self._own_prefetcher().stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._open is None:
            return "ShardLoader(closed)"
        return f"ShardLoader({self.total_samples} samples in {self.num_shards} shards)"

    def __reduce__(self) -> tuple[Any, ...]:
        files = self._shards.files
        return _open_again, ([file.path for file in files], [(file.size, file.identity) for file in files])

    @property
    def _shards(self) -> _Shards:
        if self._open is None:
            raise ValueError("this loader is closed")
        return self._open

    def _own_prefetcher(self) -> Prefetcher:
        """The prefetcher of this process: a forked child may find its parent's locked for ever."""
        if self._prefetcher.process != os.getpid():
            self._prefetcher = self._new_prefetcher()
        return self._prefetcher

    def _new_prefetcher(self) -> Prefetcher:
        prefetcher = Prefetcher()
        weakref.finalize(self, prefetcher.abandon)  # who drops the loader wants nothing read ahead any more
        return prefetcher


class _Shards:
    """Open shards, and where each sample lies in its file, in one table for all."""

    def __init__(self, files: list[ZCShard]) -> None:
        self.files = files
        self.views = [file.bytes.data for file in files]
        self.begins = np.concatenate([file.begins for file in files])
        self.ends = np.concatenate([file.ends for file in files])
        self.bounds = [0]
        for file in files:
            first, last = self.bounds[-1], self.bounds[-1] + file.num_samples
            file.begins, file.ends = self.begins[first:last], self.ends[first:last]  # no table twice in memory
            self.bounds.append(last)
        self.total = self.bounds[-1]

    def number(self, index: int) -> int:
        """A sample's number, from 0 up."""
        given = operator.index(index)
        if not -self.total <= given < self.total:
            raise self._outside(given)
        return given + self.total if given < 0 else given

    def numbers(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Many samples' numbers, from 0 up."""
        given = np.asarray(indices)
        if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
            raise TypeError("indices are a one-dimensional sequence of whole numbers")
        outside = (given >= self.total) | (given < -self.total)
        if outside.any():
            raise self._outside(given[outside][0])
        samples = given.astype(np.int64)
        samples[samples < 0] += self.total
        return samples

    def _outside(self, index: int) -> IndexError:
        some = self.files[0].path if len(self.files) == 1 else f"{self.files[0].path} and {len(self.files) - 1} more"
        return IndexError(f"{some}: sample {index} of {self.total}")


def _open_again(paths: list[Path], expected: list[tuple[int, int]]) -> ShardLoader:
    loader = ShardLoader(paths)
    for file, known in zip(loader._shards.files, expected, strict=True):
        if (file.size, file.identity) != known:
            raise FormatError(
                "is not the file it was when the loader was pickled", path=file.path, hint="open the shards again"
            )
    return loader
