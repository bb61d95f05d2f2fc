"""A hundred NPZ objects of a bucket as tensors of TensorFlow."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from tests.stores.test_foreign_formats import check_hundred

import fastloader as fl
from fastloader.tensorflow import to_tf_dataset


def test_as_they_are(hundred):
    url, options = hundred
    dataset = fl.open(url, options).shuffle(seed=3).batch(16)
    signature = {"x": tf.TensorSpec((None, 4, 4), tf.float32), "y": tf.TensorSpec((None,), tf.int64)}
    batches = list(tf.data.Dataset.from_generator(lambda: dataset, output_signature=signature).as_numpy_iterator())
    assert batches[0]["x"].shape == (16, 4, 4)
    check_hundred(batches)


def test_by_the_loader_once_they_are_written_as_fld(hundred):
    url, options = hundred
    fl.open(url, options).write(f"{url}-tf.fld", storage_options=options)
    with fl.open(f"{url}-tf.fld", options) as reader, fl.DataLoader(reader, batch_size=16, seed=3) as loader:
        check_hundred(list(to_tf_dataset(loader).as_numpy_iterator()))
