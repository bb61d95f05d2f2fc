"""What Python makes of a batch behind the engine: operations on all of it, functions of the user's, collating."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import DecodeError, FastLoaderError
from fastloader.loader.stats import Counters
from fastloader.types import Batch

NAMED = 8
"""Samples of a batch that an error names, where it can't tell which it was."""


class CallableFailed(Exception):
    """A function of the user's raised, on a batch or on a sample alone."""

    def __init__(self, what: str, error: Exception, field: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.error = error
        self.field = field

    def told(self, path: object, samples: NDArray[np.int64], alone: bool) -> FastLoaderError:
        """As the error that the consumer gets; ``alone``: the first sample is known to be the one."""
        if isinstance(self.error, FastLoaderError):  # which has its say; it may not know of what
            if alone and self.error.sample is None:
                self.error.sample = int(samples[0])
            return self.error
        said = f"{type(self.error).__name__}: {self.error}"
        if alone:
            told = DecodeError(f"{self.what} failed: {said}", path=path, sample=int(samples[0]), field=self.field)
        else:
            some = ", ".join(map(str, samples[:NAMED].tolist())) + (", ..." if len(samples) > NAMED else "")
            whole = f"{self.what} failed on a batch, and on none of its samples that were tried alone: {said}"
            told = DecodeError(f"{whole} (samples {some})", path=path, field=self.field)
        told.__cause__ = self.error
        return told


class Finishing:
    """Operations on whole batches, then ``transforms`` by field, then ``collate_fn``."""

    def __init__(
        self,
        steps: Sequence[Any],
        transforms: Mapping[str, Callable[[Any], Any]],
        collate: Callable[[Batch], Any] | None,
        counters: Counters,
        epoch: int,
    ) -> None:
        self._steps = steps
        self._transforms = transforms
        self._collate = collate
        self._counters = counters
        self._epoch = epoch

    def __call__(self, batch: Batch, samples: NDArray[np.int64]) -> Any:
        """The batch of these samples, finished. Raises ``CallableFailed`` where a function of the user's fails."""
        for step in self._steps:
            step.run(batch, samples, self._epoch)
        began = time.perf_counter()
        spent = {}
        for name, transform in self._transforms.items():
            try:
                batch[name] = transform(batch[name])
            except MemoryError:  # no sample is to blame for it
                raise
            except Exception as error:
                raise CallableFailed("the transform", error, name) from error
            before, began = began, time.perf_counter()
            spent[name] = began - before
        try:
            collated = batch if self._collate is None else self._collate(batch)
        except MemoryError:
            raise
        except Exception as error:
            raise CallableFailed("collate_fn", error) from error
        self._counters.transformed(spent, time.perf_counter() - began)
        return collated


def made_bytes(value: Any) -> int:
    """Bytes of arrays that were made in Python, wherever they are in a batch; memory of the engine's slots is not."""
    return sum(_owned(value, set()))


def _owned(value: Any, seen: set[int]) -> Iterator[int]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from _owned(one, seen)
    elif isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        if value.base is None and id(value) not in seen:
            seen.add(id(value))
            yield value.nbytes
    elif isinstance(size := getattr(value, "nbytes", None), int) and id(value) not in seen:  # another library's array
        seen.add(id(value))
        yield size
