"""Samples with a value of every field, and what tells their batches apart."""

import hashlib
import pickle

import numpy as np

import fastloader as fl

COUNT = 90
FIELDS = {
    "number": fl.IntField(),
    "ratio": fl.FloatField(),
    "fixed": fl.NDArrayField("float32", (5, 3)),
    "varying": fl.NDArrayField("int16", (None, 2)),
    "any": fl.NDArrayField("uint8"),
    "blob": fl.BytesField(),
    "tree": fl.JSONField(),
    "photo": fl.JPEGImageField(),
    "mask": fl.PNGImageField(),
    "raw": fl.RawImageField(6, 4),
}


def sample(i, missing=False):
    """Sample ``i``; with ``missing``, one of its values is."""
    rng = np.random.default_rng(i)
    values = {
        "number": i,
        "ratio": i / 7,
        "fixed": rng.standard_normal((5, 3), np.float32),
        "varying": rng.integers(-9, 9, (i % 4, 2)).astype(np.int16),
        "any": rng.integers(0, 255, (i % 3,) * (i % 3)).astype(np.uint8),
        "blob": rng.bytes(i * 37 % 501),
        "tree": {"i": i, "list": [i] * (i % 5)},
        "photo": rng.integers(0, 255, (16 + i % 2, 24, 3)).astype(np.uint8),
        "mask": rng.integers(0, 2**16, (7, 5)).astype(np.uint16),
        "raw": rng.integers(0, 255, (6, 4, 3)).astype(np.uint8),
    }
    if missing:
        values[list(values)[i % len(values)]] = None
    return values


def fingerprint(batch):
    """The same for batches of the same values, types and shapes."""
    parts = hashlib.sha256()
    for name, value in batch.items():
        parts.update(name.encode() + pickle.dumps(value, protocol=4) if isinstance(value, list) else b"")
        if not isinstance(value, list):
            parts.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    return parts.hexdigest()
