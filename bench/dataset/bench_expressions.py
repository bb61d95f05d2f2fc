"""Expressions: native batches against DataLoader, maps in threads against torch's processes, and resuming."""

from __future__ import annotations

import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Result, interleave
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import fastloader as fl

BATCH, WORKERS = 64, 2
VECTORS, PHOTOS = 40_000, 600


def vectors(path: Path) -> fl.Dataset[Any]:
    """256 floats and a label."""
    rng = np.random.default_rng(0)
    fields = {"x": fl.NDArrayField("float32", (256,)), "label": fl.IntField()}
    with fl.DatasetWriter(path, fields) as writer:
        writer.write_many({"x": rng.random(256, np.float32), "label": i % 10} for i in range(VECTORS))
    return fl.Dataset.from_reader(fl.open(path))


def photos(path: Path) -> fl.Dataset[Any]:
    """JPEG files of 320 x 240 pixels, kept as bytes."""
    rng = np.random.default_rng(0)
    with fl.DatasetWriter(path, {"jpeg": fl.BytesField(), "label": fl.IntField()}) as writer:
        for i in range(PHOTOS):
            coarse = Image.fromarray(rng.integers(0, 256, (15, 20, 3), dtype=np.uint8))
            file = io.BytesIO()
            coarse.resize((320, 240), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
            writer.write_sample({"jpeg": file.getvalue(), "label": i % 10})
    return fl.Dataset.from_reader(fl.open(path))


def decoded(sample: dict[str, Any]) -> dict[str, Any]:
    """A real map: decode and shrink by PIL."""
    image = Image.open(io.BytesIO(sample["jpeg"])).convert("RGB").resize((224, 224))
    return {"image": np.array(image), "label": sample["label"]}


def halved(sample: dict[str, Any]) -> dict[str, Any]:
    """A trivial map."""
    return {"x": sample["x"] * 0.5, "label": sample["label"]}


class Mapped(Dataset[Any]):
    """The same samples and map as torch's loader takes them."""

    def __init__(self, path: Path, function: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.reader, self.function = fl.open(path), function

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: torch.as_tensor(value) for name, value in self.function(self.reader[index]).items()}


def torchs(path: Path, function: Callable[[dict[str, Any]], dict[str, Any]]) -> DataLoader[Any]:
    """The loader of torch, with worker processes that stay."""
    return DataLoader(
        Mapped(path, function),
        BATCH,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        multiprocessing_context="fork",
    )


def seconds(batches: Iterable[Any]) -> float:
    """Of going through all."""
    began = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - began


def main() -> list[Result]:
    """Ratios of whole passes; the cost of a state and of the first batch behind it."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "vectors.fld", Path(folder) / "photos.fld"
        rows, files = vectors(small).shuffle(seed=1), photos(large).shuffle(seed=1)
        loader = fl.DataLoader(fl.open(small), BATCH, num_workers=WORKERS, seed=1)
        loader_of_vectors = torchs(small, halved)
        loader_of_photos = torchs(large, decoded)
        native = rows.batch(BATCH).options(threads=WORKERS)
        times = interleave(
            7,
            loader=lambda: seconds(loader),
            native=lambda: seconds(native),
            repeated=lambda: seconds(native.repeat(4)) / 4,
            mapped=lambda: seconds(native.map(dict).repeat(4)) / 4,
            trivial=lambda: seconds(rows.map(halved).batch(BATCH)),
            trivial_auto=lambda: seconds(rows.map(halved, "auto").batch(BATCH).prefetch("auto")),
            trivial_torch=lambda: seconds(loader_of_vectors),
            batched=lambda: seconds(native.map(halved)),
            real=lambda: seconds(files.map(decoded, WORKERS).batch(BATCH)),
            real_auto=lambda: seconds(files.map(decoded, "auto").batch(BATCH).prefetch("auto")),
            real_torch=lambda: seconds(loader_of_photos),
        )

        def rate(name: str, count: int) -> str:
            return f"{count / times[name]:,.0f} samples a second"

        def against(what: str, name: str, other: str, text: str, goal: str, count: int) -> Result:
            return Result(what, text, times[name] / times[other], goal, f"{rate(name, count)}, {rate(other, count)}")

        torch_text = f"torch's DataLoader, {WORKERS} processes, the same map"
        results = [
            against("native batches, an iterator a pass", "native", "loader", "DataLoader", "<= 1.2", VECTORS),
            against("native batches, repeat", "repeated", "loader", "DataLoader", "<= 1.1", VECTORS),
            against("native batches, map, repeat", "mapped", "loader", "DataLoader", "<= 1.2", VECTORS),
            against("trivial map, no threads", "trivial", "trivial_torch", torch_text, "<= 1", VECTORS),
            against("trivial map, auto", "trivial_auto", "trivial_torch", torch_text, "<= 1", VECTORS),
            against("trivial map of native batches", "batched", "trivial_torch", torch_text, "<= 0.1", VECTORS),
            against(f"PIL decode, {WORKERS} threads", "real", "real_torch", torch_text, "<= 1", PHOTOS),
            against("PIL decode, auto", "real_auto", "real_torch", torch_text, "<= 1", PHOTOS),
        ]
        for what, dataset in (
            ("native batches", native),
            ("map, batch, prefetch", rows.map(halved, 2).batch(BATCH).prefetch(2)),
            ("iterable: mix of two, batch", rows.mix(rows, seed=1).batch(BATCH)),
        ):
            results.append(resumed(what, dataset))
    return results


def resumed(what: str, dataset: Any) -> Result:
    """The first batch behind a state in the middle of a pass against the first batch of a fresh pass."""

    def first(**position: Any) -> float:
        began = time.perf_counter()
        with dataset.iterate(**position) as passing:
            next(passing)
            return time.perf_counter() - began

    saving: list[float] = []
    with iter(dataset) as passing:
        for _ in range(VECTORS // BATCH // 2):
            next(passing)
            began = time.perf_counter()
            state = passing.state_dict()
            saving.append(time.perf_counter() - began)
    times = interleave(20, fresh=first, resumed=lambda: first(state=state))
    details = f"{len(json.dumps(state))} bytes, saved in {statistics.median(saving) * 1e6:.0f} us"
    return Result(f"resume, {what}", "the first batch of a pass", times["resumed"] / times["fresh"], "<= 1.2", details)
