"""Makes the files under ``formats`` with the libraries that define them, each in an environment of its own.

    pip install tensorflow-cpu                  && python tests/vectors/make_formats.py tensorflow
    pip install mosaicml-streaming==0.13.0      && python tests/vectors/make_formats.py streaming
    pip install litdata==0.2.76 zstd pyarrow    && python tests/vectors/make_formats.py litdata
    pip install litdata==0.2.30                 && python tests/vectors/make_formats.py old-litdata

They are stored because these libraries are far larger than anything else the tests need. The samples are formulas,
which the tests import from here.
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


LIT_SAMPLES = 9
LIT_LAYOUTS = {
    "plain": {}, "chunk": {"compression": "zstd", "compression_level": "chunk"}, "sample": {
        "compression": "zstd", "compression_level": "sample",
    }, "batch": {"compression": "zstd:3", "compression_level": "batch", "compression_batch_size": 2},
}  # fmt: skip
"""How LitData's chunks of the same samples are packed, as options of its writer."""


def lit_sample(i: int) -> dict[str, Any]:
    """A sample with a leaf of each kind that is read; arrays, where LitData has tensors."""
    return {
        "number": 3**i - 5,
        "fraction": i / 8,
        "odd": i % 2 == 1,
        "name": "ä" * i,
        "blob": bytes(range(i)),
        "photo": JPEG.read_bytes(),
        "pixels": np.full((2, 3, 3), i, np.uint8),
        "grid": np.arange(6, dtype=np.float32).reshape(2, 3) * i,
        "line": np.arange(i, dtype=np.int16),
        "tensor": np.full((1 + i, 2), i, np.float32),
        "vector": np.arange(1 + i, dtype=np.int64),
        "counts": np.arange(1 + i, dtype=np.int64) ** 2,
        "parts": np.arange(1 + i) / 4,
        "words": ["word", "größe"][: 1 + i % 2],
        "boxes": [{"x": i, "y": i / 2, "name": "ball", "seen": True, "last": None}] * (1 + i % 3),
        "meta": {"i": i, "list": [None, True, "ä"], "flags": [True, False], "deep": {"half": i / 2}},
        "views": [JPEG.read_bytes()] * (1 + i % 2),
    }


def lit_row(i: int) -> dict[str, Any]:
    """A sample of texts and numbers alone, which LitData keeps in a table; one has more than the first, one less."""
    row: dict[str, Any] = {"text": "wörd " * i, "ids": np.arange(1 + i, dtype=np.int64), "score": i / 4}
    row["meta"] = {"i": i, "tags": ["a", "b"]}
    return {**row, "late": None if i < 3 else str(i)}


def lit_tokens(i: int) -> Any:
    """A document."""
    return np.arange(10 * i, 10 * i + 3 + i, dtype=np.uint16)


def mds_lists(i: int) -> dict[str, Any]:
    """A sample with a column of each encoding of several images."""
    files = [JPEG.read_bytes()] * (i % 3)
    return {"array": files or [JPEG.read_bytes()], "jpegs": files, "pixels": [np.full((2, 3, 3), i, np.uint8)] * i}


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

    shutil.rmtree(FORMATS / "mds-lists", ignore_errors=True)
    columns = {"array": "jpeg_array", "jpegs": "list[jpeg]", "pixels": "list[pil]"}
    with MDSWriter(out=str(FORMATS / "mds-lists"), columns=columns) as writer:
        for i in range(4):
            lists = mds_lists(i)
            lists["jpegs"] = [Image.open(JPEG) for _ in lists["jpegs"]]
            lists["pixels"] = [Image.fromarray(one) for one in lists["pixels"]]
            writer.write(lists)
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


def with_litdata() -> None:
    """Samples of every kind in every layout; rows, plain and packed; lists; documents of tokens."""
    import torch
    from litdata.streaming.item_loader import TokensLoader
    from litdata.types import JpegArray
    from PIL import Image

    def sample(i: int) -> dict[str, Any]:
        found = lit_sample(i)
        found["photo"], found["pixels"] = Image.open(JPEG), Image.fromarray(found["pixels"])
        found["tensor"], found["vector"] = torch.from_numpy(found["tensor"]), torch.from_numpy(found["vector"])
        found["counts"], found["parts"] = found["counts"].tolist(), found["parts"].tolist()
        found["views"] = JpegArray(images=[Image.open(JPEG) for _ in found["views"]])
        return found

    def row(i: int) -> dict[str, Any]:
        found = lit_row(i)
        found["ids"] = found["ids"].tolist()
        return {key: value for key, value in found.items() if key != "late" or value is not None}

    def small(i: int) -> dict[str, Any]:
        return {key: sample(i)[key] for key in LIT_PACKED}

    for name, options in LIT_LAYOUTS.items():
        _lit_write(f"lit-{name}", sample if name == "plain" else small, **options)
    _lit_write("lit-rows", row)
    _lit_write("lit-rows-zstd", row, compression="zstd")
    _lit_write("lit-list", lambda i: [np.full((2, 2), i), {"label": i}])
    _lit_write("lit-tokens", lambda i: torch.from_numpy(lit_tokens(i)), item_loader=TokensLoader())
    _lit_write("lit-pickle", lambda i: {"number": i, "any": {1, i}})


LIT_PACKED = ("number", "name", "grid")


def with_old_litdata() -> None:
    """Chunks whose size is told without the header, and tensors with a header the other way round."""
    import torch

    def sample(i: int) -> dict[str, Any]:
        found = lit_sample(i)
        return {"number": found["number"], "tensor": torch.from_numpy(found["tensor"]), "grid": found["grid"]}

    _lit_write("lit-old", sample)


def _lit_write(name: str, sample: Any, **options: Any) -> None:
    from litdata.streaming.writer import BinaryWriter

    folder = FORMATS / name
    shutil.rmtree(folder, ignore_errors=True)
    writer = BinaryWriter(str(folder), chunk_size=4, **options)
    for i in range(LIT_SAMPLES):
        writer[i] = sample(i)
    writer.done()
    writer.merge()


if __name__ == "__main__":
    FORMATS.mkdir(exist_ok=True)
    {
        "tensorflow": with_tensorflow, "streaming": with_streaming, "litdata": with_litdata,
        "old-litdata": with_old_litdata,
    }[sys.argv[1]]()  # fmt: skip
