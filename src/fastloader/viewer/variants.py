"""What a pipeline makes of one sample, epoch by epoch: just what a ``DataLoader`` would give."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError, KeyNotFoundError
from fastloader.fields import SpectrogramField
from fastloader.loader import DataLoader
from fastloader.ops import MelSpectrogram, Views
from fastloader.reader import DatasetReader
from fastloader.viewer.pictures import as_shown, encoded
from fastloader.viewer.plots import plot_of
from fastloader.viewer.telling import Told, plain

MOST = 32
KEPT = 64
SIDES = (8, 4096)


class Variants:
    """Augmented samples, those asked for last kept."""

    def __init__(self, reader: DatasetReader, pipelines: Mapping[str, Any], seed: int = 0) -> None:
        self._reader = reader
        self._pipelines = {name: ops for name, ops in pipelines.items() if name in reader.field_names}
        self._seed = seed
        self._lock = threading.Lock()
        self._made: OrderedDict[tuple[int, int], dict[str, Any]] = OrderedDict()
        unknown = [name for name in pipelines if name not in reader.field_names]
        if unknown:
            raise FormatError(
                f"there is a pipeline for {unknown[0]!r}, which is no field", path=reader.path,
                hint=f"there are {', '.join(reader.field_names)}",
            )  # fmt: skip
        self._loader([0] if len(reader) else [])  # what does not fit is told at once

    def _loader(self, indices: list[int]) -> DataLoader:
        return DataLoader(
            self._reader, batch_size=1, indices=indices, shuffle=False, num_workers=1, seed=self._seed,
            pipelines=self._pipelines, fields=list(self._pipelines), prefetch_factor=1, rank=0,
            world_size=1,
        )  # fmt: skip

    def get(self, index: int, epoch: int) -> dict[str, Any]:
        """The sample as it is in an epoch, without the batch's dimension."""
        with self._lock:
            found = self._made.get((index, epoch))
            if found is None:
                loader = self._loader([index])
                loader.set_epoch(epoch)
                with loader:
                    batches = iter(loader)
                    batch = next(batches)
                    found = {name: _own(value[0]) for name, value in batch.items()}
                    del batch, batches
                self._made[index, epoch] = found
                while len(self._made) > KEPT:
                    self._made.popitem(last=False)
            return found

    def tell(self, index: int, epochs: int) -> list[dict[str, Told]]:
        """What there is in each epoch, by field."""
        return [
            {name: _tell(value) for name, value in self.get(index, epoch).items()}
            for epoch in range(max(1, min(epochs, MOST)))
        ]

    def _value(self, index: int, epoch: int, name: str) -> Any:
        made = self.get(index, epoch)
        if name not in made:
            raise KeyNotFoundError(f"the pipelines make no {name!r}")
        return made[name]

    def picture(self, index: int, epoch: int, name: str) -> bytes:
        """A field that is a picture, or several side by side, encoded."""
        made = _pictures(self._value(index, epoch, name))
        if made is None:
            raise FormatError("is no picture", sample=index, field=name)
        return encoded(made)

    def plot(self, index: int, epoch: int, name: str) -> dict[str, Any]:
        """A field that is an array."""
        return plot_of(np.asarray(self._value(index, epoch, name)), turned=self._is_spectrogram(name))

    def _is_spectrogram(self, name: str) -> bool:
        """Whether time goes down in the array, which is drawn across."""
        made = any(isinstance(op, MelSpectrogram) for op in _ops(self._pipelines.get(name, ())))
        return made or isinstance(self._reader.fields.get(name), SpectrogramField)


def _ops(pipeline: Any) -> Sequence[Any]:
    return () if isinstance(pipeline, Views) else pipeline


def _own(value: Any) -> Any:
    """A value that outlives its batch."""
    return np.array(value) if isinstance(value, np.ndarray) else value


def _tell(value: Any) -> Told:
    if isinstance(value, np.ndarray) and value.ndim:
        told: Told = {"dtype": str(value.dtype), "shape": list(value.shape)}
        picture = _pictures(value)
        if picture is not None:
            count = value.shape[0] if value.ndim == 4 else 1
            return told | {"kind": "picture", "count": count, "stretched": value.dtype != np.uint8}
        if value.ndim == 2 and value.shape[1] == 4 and value.dtype.kind == "f" and len(value) <= 500:
            return told | {"kind": "boxes", "boxes": plain(value.tolist())}
        if value.size <= 16:
            return told | {
                "kind": "text",
                "text": np.array2string(value, separator=", ", formatter={"float_kind": lambda one: f"{one:.4g}"}),
            }
        return told | {"kind": "array"}
    return {"kind": "text", "text": str(plain(value))[:2000]}


def _pictures(value: Any) -> NDArray[np.uint8] | None:
    """An image (H, W, C) or (C, H, W), or several of them side by side; ``None`` for what is none."""
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.ndim == 4:
        parts = [_pictures(one) for one in array[:64]]
        good = [part for part in parts if part is not None]
        return np.concatenate(good, axis=1) if good and len(good) == len(parts) else None
    if array.ndim != 3 or array.dtype.kind not in "uif":
        return None
    if array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
        array = np.moveaxis(array, 0, 2)
    height, width, channels = array.shape
    if channels not in (1, 3, 4) or not all(SIDES[0] <= side <= SIDES[1] for side in (height, width)):
        return None
    return np.ascontiguousarray(as_shown(array))
