"""read_batch of 256 random 4 KB payloads, checksums verified, in memcpys of as many bytes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from common import Result, interleave

import fastloader as fl

PAYLOAD, BATCH = 4096, 256
SAMPLES = 16_384


def build(folder: Path) -> dict[str, Path]:
    """The same random payloads as fixed arrays and as bytes."""
    data = np.random.default_rng(0).integers(0, 256, (SAMPLES, PAYLOAD), dtype=np.uint8)
    paths = {}
    for name, field in (("array", fl.NDArrayField("uint8", (PAYLOAD,))), ("bytes", fl.BytesField())):
        paths[name] = folder / f"{name}.fld"
        with fl.DatasetWriter(paths[name], {"x": field}) as writer:
            for row in data:
                writer.write_sample({"x": row})
    return paths


def main() -> list[Result]:
    """Against one contiguous copy, against a copy of each of the same payloads, and against numpy's take."""
    with tempfile.TemporaryDirectory() as folder:
        readers = {name: fl.open(path) for name, path in build(Path(folder)).items()}
        rng = np.random.default_rng(1)
        file = readers["array"].dataset.file(0)
        source = file.bytes[file.data.offset : file.data.offset + file.data.size]
        source.sum()  # map every page
        rows = source[: len(source) // PAYLOAD * PAYLOAD].reshape(-1, PAYLOAD)
        out = np.empty((BATCH, PAYLOAD), np.uint8)

        def copy() -> float:
            at = int(rng.integers(0, len(source) - out.nbytes))
            piece = source[at : at + out.nbytes].reshape(out.shape)
            began = time.perf_counter()
            np.copyto(out, piece)
            return time.perf_counter() - began

        def take() -> float:
            indices = rng.integers(0, len(rows), BATCH)
            began = time.perf_counter()
            np.take(rows, indices, axis=0, out=out)
            return time.perf_counter() - began

        def batch(name: str) -> float:
            indices = rng.integers(0, SAMPLES, BATCH)
            began = time.perf_counter()
            readers[name].read_batch(indices)
            return time.perf_counter() - began

        times = interleave(2000, copy=copy, take=take, array=lambda: batch("array"), bytes=lambda: batch("bytes"))
    mb = out.nbytes / 1e6
    return [
        Result(f"read_batch of {BATCH} x 4 KB as one array", "one contiguous memcpy", times["array"] / times["copy"],
               "< 2.5", f"{times['array'] * 1e6:.0f} us, {mb / times['array'] / 1e3:.1f} GB/s"),
        Result(f"read_batch of {BATCH} x 4 KB as bytes", "one contiguous memcpy", times["bytes"] / times["copy"],
               "-", f"{times['bytes'] * 1e6:.0f} us; every payload an object of its own"),
        Result(f"read_batch of {BATCH} x 4 KB as one array", "np.take of the same rows", times["array"] / times["take"],
               "< 1", "np.take checks nothing"),
    ]  # fmt: skip
