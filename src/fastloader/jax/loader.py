"""Batches as JAX arrays: without a copy on the CPU, ahead of the step on other devices, sharded where that is asked."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastloader.dataset import open_dataset
from fastloader.dataset.opening import opened
from fastloader.errors import MissingExtraError
from fastloader.loader import DataLoader, WrappedLoader
from fastloader.reader import DatasetReader
from fastloader.samplers.checks import whole
from fastloader.types import Sample

try:
    import jax
except ImportError as error:
    raise MissingExtraError(
        "JAX is not installed", extra="jax", hint="pip install jax, as its own page says for your accelerator"
    ) from error

_ALIGNED = 64


def to_jax(value: Any) -> Any:
    """An array as one of JAX's on the CPU, over the same memory where its alignment allows; other values as they are.

    JAX has no 64-bit numbers unless told (``jax_enable_x64``): they become 32-bit ones, as everywhere in JAX.
    """
    if isinstance(value, np.ma.MaskedArray):
        value = value.filled(0)
    if not _has_numbers(value):
        return value
    plain = value.flags.c_contiguous and value.__array_interface__["data"][0] % _ALIGNED == 0
    config: Any = jax.config
    wide = value.dtype.itemsize == 8 and value.dtype.kind in "iuf" and not config.jax_enable_x64
    if plain and not wide and value.flags.writeable and value.size and value.dtype.name != "bfloat16":
        return jax.dlpack.from_dlpack(value)
    return jax.numpy.asarray(value)


def _has_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.kind in "biufc" or value.dtype.name == "bfloat16")


@dataclass(frozen=True)
class Placement:
    """Where arrays go: to a device (the first there is, unless told otherwise), or over several by a sharding."""

    device: Any = None
    sharding: Any = None

    def __post_init__(self) -> None:
        if self.device is not None and self.sharding is not None:
            raise ValueError("device and sharding: the sharding names devices itself")
        object.__setattr__(self, "device", self.device if self.device is not None else jax.devices()[0])

    def __call__(self, batch: Any) -> Any:
        """A batch there: its arrays, by themselves or in a dictionary. What is no array of numbers stays as it is."""
        if not isinstance(batch, Mapping):
            return self._put("", batch)
        return {name: self._put(name, value) for name, value in batch.items()}

    def _put(self, name: str, value: Any) -> Any:
        sharding = self.sharding.get(name) if isinstance(self.sharding, Mapping) else self.sharding
        if not _has_numbers(value):
            return value
        if isinstance(value, np.ma.MaskedArray):
            value = value.filled(0)
        if sharding is not None:
            make: Any = jax.make_array_from_process_local_data
            try:
                return make(sharding, np.asarray(value))
            except ValueError as error:
                said = f"field {name!r}, {value.shape}, can't be sharded so: {error}"
                raise ValueError(f"{said}; drop_last=True leaves out a last batch that is smaller") from error
        if self.device.platform == "cpu" and self.device == jax.devices("cpu")[0]:
            return to_jax(value)
        return jax.device_put(np.asarray(value), self.device)


def prefetch_to_device(batches: Iterable[Any], *, device: Any = None, sharding: Any = None, ahead: int = 2) -> Any:
    """Any batches with their arrays on a device or sharded, ``ahead`` of them on their way before they are needed.

    For what is no ``DataLoader``: the batches of an expression (``fl.Dataset``), or a generator. ``JaxLoader`` does the
    same, with a state.
    """
    placement, ahead = Placement(device, sharding), whole("ahead", ahead, 0)

    def placed() -> Iterator[Any]:
        waiting: deque[Any] = deque()
        for batch in batches:
            waiting.append(placement(batch))
            del batch
            if len(waiting) > ahead:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()

    return placed()


class JaxLoader(WrappedLoader):
    """Batches as dictionaries of JAX arrays, by ``fastloader.DataLoader``, whose options it takes.

    - ``device``: where they go; by default the first of ``jax.devices()``. On the CPU they share the engine's memory.
    - ``sharding``: a ``jax.sharding.Sharding`` for the arrays, or one by field. In a world of several processes each
      loads its own part of the batch, and the arrays are global ones; ``rank`` and ``world_size`` are then by default
      those of ``jax.process_index()`` and ``jax.process_count()``.
    - ``ahead``: how many batches are on their way to the device before they are needed.

    What is no array of numbers (text, lists) comes as it is. ``state_dict`` is behind the batch that was given last.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int = 32,
        *,
        device: Any = None,
        sharding: Any = None,
        ahead: int = 2,
        **options: Any,
    ) -> None:
        self._ahead = whole("ahead", ahead, 0)
        self._placement = Placement(device, sharding)
        reader = open_dataset(source) if isinstance(source, str | os.PathLike) else source
        if sharding is not None and jax.process_count() > 1:
            options = {"rank": jax.process_index(), "world_size": jax.process_count(), **options}
        self.loader = DataLoader(reader, batch_size, **options)

    def __iter__(self) -> Iterator[Any]:
        yield from self._with_ahead(self._ahead, self._placement)


class JaxSource:
    """Samples by number, as grain's data loaders take them: ``__len__``, ``__getitem__``, and it pickles."""

    def __init__(self, source: Any, fields: Sequence[str] | None = None) -> None:
        self._reader = opened(source)
        if not isinstance(self._reader, DatasetReader):
            raise TypeError(f"JaxSource takes a .fld dataset, not a {type(source).__name__}")
        self._fields = None if fields is None else [fields] if isinstance(fields, str) else list(fields)

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: Any) -> Sample:
        sample: Sample = self._reader.read_sample(int(index), self._fields)
        return sample

    def __repr__(self) -> str:
        return f"JaxSource({str(self._reader.path)!r}, {self._fields})"
