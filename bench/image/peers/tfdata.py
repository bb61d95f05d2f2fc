"""tf.data: decodes the crop alone, then resizes it, as TensorFlow's examples do: fast inverse DCT, not antialiased."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from task import BATCH, RATIO, SCALE, SIZE, WORKERS, Box, Task

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

VERSION = f"tensorflow {tf.__version__}"


def cropped(encoded: Any, window: Any, careful: bool) -> Any:
    """Pixels of a window (top, left, height, width), resized; ``careful``: the accurate inverse DCT, antialiased."""
    method = "INTEGER_ACCURATE" if careful else ""
    image = tf.io.decode_and_crop_jpeg(encoded, window, channels=3, dct_method=method)
    image = tf.image.resize(image, [SIZE, SIZE], antialias=careful)
    return tf.cast(tf.round(image), tf.uint8)


def epoch(task: Task, careful: bool) -> Iterator[Any]:
    """(64, 224, 224, 3) of uint8."""
    paths = task.paths
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])

    def load(path: Any) -> Any:
        encoded = tf.io.read_file(path)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(encoded), whole, min_object_covered=0.0, area_range=SCALE,
            aspect_ratio_range=RATIO, max_attempts=10, use_image_if_no_bounding_boxes=True,
        )  # fmt: skip
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        return tf.image.random_flip_left_right(cropped(encoded, window, careful))

    options = tf.data.Options()
    options.threading.private_threadpool_size = WORKERS
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = False
    dataset = (
        tf.data.Dataset.from_tensor_slices(paths * task.passes)
        .shuffle(task.passes * len(paths))
        .map(load, num_parallel_calls=WORKERS)
        .batch(BATCH, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )
    yield from dataset.as_numpy_iterator()


def windows(task: Task, wanted: list[tuple[int, Box]], careful: bool) -> NDArray[np.uint8]:
    """Given boxes."""
    paths = task.paths
    found = []
    for number, (left, top, width, height) in wanted:
        encoded = tf.io.read_file(paths[number])
        found.append(cropped(encoded, [top, left, height, width], careful).numpy())
    return np.stack(found)


def batches(task: Task) -> Iterator[Any]:
    """The fast way."""
    return epoch(task, careful=False)


def crops(task: Task, wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """The fast way."""
    return windows(task, wanted, careful=False)
