"""Batches of a loader as a ``tf.data.Dataset``, with a signature that is told by its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fastloader.errors import MissingExtraError
from fastloader.loader import DataLoader

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingExtraError(
        "TensorFlow is not installed", extra="tensorflow", hint="pip install tensorflow, or tensorflow-cpu"
    ) from error

OFFSETS, LENGTHS = "_offsets", "_lengths"


def to_tf_dataset(
    loader: DataLoader | Callable[[int, int], DataLoader],
    *,
    select: Callable[[dict[str, Any]], Any] | None = None,
    input_context: Any = None,
    epochs: int | None = 1,
) -> Any:
    """The loader's batches as a ``tf.data.Dataset``: dictionaries of tensors, one epoch after the other.

    Python runs once a batch. The signature (types, shapes) is told by the first batch, which is made and dropped. What
    ``pad="ragged"`` loads becomes a ``tf.RaggedTensor``; so do lists of arrays that differ in their first dimension.
    Text and bytes become string tensors.

    ``select`` makes of a batch what ``model.fit`` takes: ``lambda batch: (batch["image"], batch["label"])``. ``epochs``
    counts passes; ``None``: for ever. Each time the dataset is iterated over, the loader goes on with its next epoch.

    With a distribution strategy give a function of rank and world size that makes the loader, and the context:
    ``strategy.distribute_datasets_from_function(lambda context: to_tf_dataset(make, input_context=context))``.
    """
    if input_context is not None:
        if isinstance(loader, DataLoader):
            raise TypeError("with input_context, give a function of rank and world size that makes the loader")
        loader = loader(input_context.input_pipeline_id, input_context.num_input_pipelines)
    elif not isinstance(loader, DataLoader):
        loader = loader(0, 1)
    if epochs is not None and epochs < 1:
        raise ValueError(f"epochs={epochs}: at least 1, or None for ever")
    chosen = loader
    first = _first(chosen)
    steady = chosen.options.drop_last
    signature = {
        name: _spec(value, steady, f"{name}{LENGTHS}" in first) for name, value in _tensors(first).items()
    }  # fmt: skip

    def batches() -> Iterator[dict[str, Any]]:
        number = 0
        while epochs is None or number < epochs:
            for batch in chosen:
                yield _tensors(batch)
            number += 1

    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    if epochs is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(epochs * len(chosen)))
    return dataset if select is None else dataset.map(select, num_parallel_calls=1)


def _first(loader: DataLoader) -> Mapping[str, Any]:
    """A batch of the loader, which stays where it is."""
    state = loader.state_dict()
    batches = iter(loader)
    batch = next(batches, None)
    del batches
    loader.load_state_dict(state)
    if batch is None:
        raise ValueError("the loader has no batch, so that nothing tells the types of a dataset")
    if not isinstance(batch, Mapping):
        raise TypeError(f"a batch is a dictionary of fields, not a {type(batch).__name__}: leave out collate_fn")
    return batch


def _tensors(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as they are; values with offsets, and lists of arrays, as ragged tensors."""
    made: dict[str, Any] = {}
    for name, value in batch.items():
        base = name.removesuffix(OFFSETS)
        if name.endswith(OFFSETS) and base in batch:
            continue
        offsets = batch.get(f"{name}{OFFSETS}")
        if offsets is not None:
            made[name] = tf.RaggedTensor.from_row_splits(np.asarray(value), np.asarray(offsets), validate=False)
        else:
            made[name] = _tensor(name, value)
    return made


def _tensor(name: str, value: Any) -> Any:
    if isinstance(value, np.ma.MaskedArray):
        return value.filled(0)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value
    values = list(value)
    if all(isinstance(one, str | bytes) for one in values):
        return np.array([one.encode() if isinstance(one, str) else one for one in values], object)
    if all(isinstance(one, np.ndarray) and one.ndim for one in values):
        splits = np.cumsum([0, *map(len, values)])
        return tf.RaggedTensor.from_row_splits(np.concatenate(values), splits, validate=False)
    kinds = ", ".join(sorted({type(one).__name__ for one in values}))
    raise TypeError(f"field {name!r} has values of {kinds}, which no tensor holds: leave it out by fields=")


def _spec(value: Any, steady: bool, padded: bool) -> Any:
    """Rows are known where the last batch is dropped; of padded fields the second dimension is never."""
    if isinstance(value, tf.RaggedTensor):
        shape = [value.shape[0] if steady else None, *value.shape[1:]]
        return tf.RaggedTensorSpec(shape, value.dtype, ragged_rank=1, row_splits_dtype=value.row_splits.dtype)
    kind = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
    sides = [None, *value.shape[2:]] if padded and value.ndim > 1 else list(value.shape[1:])
    return tf.TensorSpec([value.shape[0] if steady else None, *sides], kind)
