"""Opening costs the same at any size: 10 million samples against 10 thousand."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from common import Result, interleave

import fastloader as fl
from fastloader.formats.fld import Chunk, Column, FieldSpec, FldBuilder

SMALL, LARGE = 10_000, 10_000_000


def build(path: Path, samples: int) -> None:
    """A dataset of a label, a few bytes and a key a sample, through the builder itself to save time."""
    specs = [FieldSpec("label", fl.IntField()), FieldSpec("text", fl.BytesField())]
    builder = FldBuilder(path, specs, 2 << 20, keys=True)
    step = 10_000
    for first in range(0, samples, step):
        labels = np.zeros(step, specs[0].field.metadata_type)
        labels["value"] = np.arange(first, first + step)
        empty = np.zeros(step, np.uint64)
        valid = np.ones(step, np.bool_)
        codecs = np.zeros(step, np.uint8)
        texts = Column(
            np.zeros(step, specs[1].field.metadata_type),
            valid,
            [b"12345678"] * step,
            np.full(step, 8, np.uint64),
            codecs,
        )
        keys = [b"%d" % i for i in range(first, first + step)]
        builder.append(Chunk(step, [Column(labels, valid, [], empty, codecs), texts], keys))
    builder.finish()


def main() -> list[Result]:
    """Open, open and read a sample, and look up a key."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {"small": Path(folder) / "small.fld", "large": Path(folder) / "large.fld"}
        build(paths["small"], SMALL)
        began = time.perf_counter()
        build(paths["large"], LARGE)
        built = time.perf_counter() - began
        readers = {name: fl.open(path) for name, path in paths.items()}
        rng = np.random.default_rng(0)

        def first_sample(name: str) -> None:
            with fl.open(paths[name]) as reader:
                assert reader[len(reader) - 1]["label"] == len(reader) - 1

        def lookups(name: str) -> float:
            reader = readers[name]
            wanted = [b"%d" % i for i in rng.integers(0, len(reader), 1000)]
            began = time.perf_counter()
            for key in wanted:
                reader.index_of(key)
            return time.perf_counter() - began

        opened = interleave(300, small=lambda: fl.open(paths["small"]), large=lambda: fl.open(paths["large"]))
        read = interleave(300, small=lambda: first_sample("small"), large=lambda: first_sample("large"))
        found = interleave(30, small=lambda: lookups("small"), large=lambda: lookups("large"))
        size = paths["large"].stat().st_size / 1e6
    against = f"{SMALL:,} samples"
    return [
        Result(f"open {LARGE:,} samples", against, opened["large"] / opened["small"], "< 2",
               f"{opened['large'] * 1e6:.0f} us; the file has {size:.0f} MB and was built in {built:.0f} s"),
        Result("open and read the last sample", against, read["large"] / read["small"], "< 2",
               f"{read['large'] * 1e6:.0f} us"),
        Result("find a sample by key", against, found["large"] / found["small"], "flat",
               f"{found['large'] * 1e3:.2f} us a key"),
    ]  # fmt: skip
