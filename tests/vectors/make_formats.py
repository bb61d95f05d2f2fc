"""Makes the files under ``formats`` with the libraries that define them, each in an environment of its own.

    pip install tensorflow-cpu                  && python tests/vectors/make_formats.py tensorflow
    pip install mosaicml-streaming==0.13.0      && python tests/vectors/make_formats.py streaming

They are stored because both libraries are far larger than anything else the tests need. The samples are formulas, which
the tests import from here.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
FORMATS = HERE / "formats"
JPEG = HERE / "images" / "1-rgb-444.jpg"
RECORDS = 7
"""Samples of each TFRecord file."""
MDS_SAMPLES = 11


def example(i: int) -> dict[str, Any]:
    """A record's features: one value or several of each kind, none, negative and large ones, and one that is absent."""
    features: dict[str, Any] = {
        "image": b"\xff\xd8\xff" + bytes(range(i * 30)),
        "label": i - 3,
        "ids": np.array([(-3) ** (i * j) for j in range(i % 4)], np.int64),
        "weights": np.array([i / 4, -i, 1e-30], np.float32),
        "words": [b"word", "größe".encode()][: i % 3],
        "score": float(np.float32(i / 3)),
        "größe": 2**62 + i,
    }
    if i % 2:
        features["odd"] = i
    return features


def mds_sample(i: int) -> dict[str, Any]:
    """A sample with a column of each encoding that is read."""
    return {
        "number": 3**i,
        "name": "ä" * i,
        "blob": bytes(range(i)),
        "small": np.uint8(i),
        "half": np.float16(i / 8),
        "fixed": np.arange(6, dtype=np.float32).reshape(2, 3) * i,
        "typed": np.arange(1 + i, dtype=np.int16),
        "free": np.full((1 + i, 2), i, np.float64),
        "meta": {"i": i, "list": [None, True, "ä"]},
        "digits": -(10**i),
        "fraction": i / 8,
        "pixels": np.full((2, 3, 3), i, np.uint8),
        "photo": JPEG.read_bytes(),
    }


MDS_COLUMNS = {
    "number": "int", "name": "str", "blob": "bytes", "small": "uint8", "half": "float16",
    "fixed": "ndarray:float32:2,3", "typed": "ndarray:int16", "free": "ndarray", "meta": "json",
    "digits": "str_int", "fraction": "str_float", "pixels": "pil", "photo": "jpeg",
}  # fmt: skip


def with_tensorflow() -> None:
    """Examples, the same gzipped, and records that are none."""
    import tensorflow as tf

    def feature(value: Any) -> Any:
        values = value if isinstance(value, list | np.ndarray) else [value]
        if isinstance(value, bytes | list):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if isinstance(value, float) or getattr(value, "dtype", None) == np.float32:
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    for name, options in (("examples.tfrecord", None), ("examples.tfrecord.gz", "GZIP")):
        with tf.io.TFRecordWriter(str(FORMATS / name), options) as writer:
            for i in range(RECORDS):
                features = {key: feature(value) for key, value in example(i).items()}
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    with tf.io.TFRecordWriter(str(FORMATS / "bytes.tfrecord")) as writer:
        for i in range(RECORDS):
            writer.write(b"\x07plain %d" % i)


def with_streaming() -> None:
    """Shards as they are, and packed in both ways that are unpacked here."""
    from PIL import Image
    from streaming import MDSWriter

    for name, compression in (("plain", None), ("zstd", "zstd:3"), ("gz", "gz")):
        folder = FORMATS / f"mds-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        columns = MDS_COLUMNS if compression is None else {key: MDS_COLUMNS[key] for key in ("number", "name", "free")}
        limit = 6000 if compression is None else 1200
        with MDSWriter(out=str(folder), columns=columns, compression=compression, size_limit=limit) as writer:
            for i in range(MDS_SAMPLES):
                sample = {key: value for key, value in mds_sample(i).items() if key in columns}
                if "pixels" in columns:
                    sample["pixels"] = Image.fromarray(sample["pixels"])
                    sample["photo"] = Image.open(JPEG)
                writer.write(sample)


if __name__ == "__main__":
    FORMATS.mkdir(exist_ok=True)
    {"tensorflow": with_tensorflow, "streaming": with_streaming}[sys.argv[1]]()
