"""Training steps on a GPU, fed three ways: from memory of the GPU, by TorchLoader, by torch's DataLoader + torchvision.

``python bench/gpu/train.py PHOTOS`` takes a folder of JPEGs (bench/image/photos.py makes one), writes them as a dataset
of 65,536 samples, and prints a table and a JSON line for each way. It needs torch with CUDA, and torchvision.

Each way trains the same model in bfloat16, channels last, with SGD, for the same number of steps. The GPU's waiting is
measured by the GPU itself: events before and behind the batch that the model's stream waits for.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from torchvision.transforms import v2

import fastloader as fl
from fastloader import ops
from fastloader.torch import TorchLoader

SAMPLES = 65_536
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def write(path: Path, photos: Path) -> None:
    """The photos again and again, each with a label."""
    files = [file.read_bytes() for file in sorted(photos.glob("*.jpg"))]
    fields = {"image": fl.JPEGImageField(), "label": fl.IntField()}
    with fl.DatasetWriter(path, fields, num_workers=len(os.sched_getaffinity(0))) as writer:
        writer.write_many({"image": files[number % len(files)], "label": number % 1000} for number in range(SAMPLES))


class Files(torch.utils.data.Dataset[Any]):
    """A file a sample, as torchvision's examples read them."""

    def __init__(self, photos: Path) -> None:
        self.files = sorted(map(str, photos.glob("*.jpg")))

        self.transform = v2.Compose([
            v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32),
            v2.Normalize(MEAN, STD),
        ])  # fmt: skip

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        data = torchvision.io.read_file(self.files[index % len(self.files)])
        return self.transform(torchvision.io.decode_jpeg(data, torchvision.io.ImageReadMode.RGB)), index % 1000


def synthetic(batch: int) -> Iterator[tuple[Any, Any]]:
    """One batch that is there already, for ever."""
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(torch.bfloat16, memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    while True:
        yield images, labels


def ours(path: Path, batch: int, workers: int, decode: Any = "cpu") -> Iterator[tuple[Any, Any]]:
    """Epoch after epoch of TorchLoader."""
    pipeline = [
        ops.RandomResizedCrop(224), ops.HorizontalFlip(), ops.Normalize(MEAN, STD), ops.Cast("bfloat16"),
        ops.Layout("CHW"),
    ]  # fmt: skip
    loader = TorchLoader(
        path, batch, device="cuda", channels_last=True, pipelines={"image": pipeline}, num_workers=workers,
        drop_last=True, prefetch_factor=2, decode=decode,
    )  # fmt: skip
    while True:
        for one in loader:
            yield one["image"], one["label"]


def alone(path: Path, batch: int, workers: int, decode: str = "cpu", steps: int = 100) -> float:
    """Images a second that TorchLoader brings to the GPU where nobody trains."""
    batches = ours(path, batch, workers, decode)
    for step in range(20 + steps):
        if step == 20:
            torch.cuda.synchronize()
            began = time.perf_counter()
        next(batches)
    torch.cuda.synchronize()
    return steps * batch / (time.perf_counter() - began)


def torchs(photos: Path, batch: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """Epoch after epoch of torch's DataLoader."""
    loader = torch.utils.data.DataLoader(
        Files(photos), batch, shuffle=True, num_workers=workers, pin_memory=True, drop_last=True,
        persistent_workers=True, prefetch_factor=4,
    )  # fmt: skip
    while True:
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True)
            labels = labels.to("cuda", non_blocking=True)
            yield images.to(torch.bfloat16, memory_format=torch.channels_last), labels


def train(name: str, batches: Iterator[tuple[Any, Any]], batch: int, steps: int, warmup: int) -> dict[str, Any]:
    """Images a second, and which share of the time the GPU waited for data."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = getattr(torchvision.models, name)().cuda().to(torch.bfloat16, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, foreach=True)
    loss_of = torch.nn.CrossEntropyLoss()
    marks = []
    for step in range(warmup + steps):
        if step == warmup:
            torch.cuda.synchronize()
            began = time.perf_counter()
        before, behind = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        images, labels = next(batches)
        behind.record()
        loss = loss_of(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step >= warmup:
            marks.append((before, behind))
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    begun = [one.elapsed_time(other) for (one, _), (other, _) in pairwise(marks)]
    waited = [before.elapsed_time(behind) for before, behind in marks]
    return {
        "images_per_second": steps * batch / took, "waiting": sum(waited) / 1e3 / took,
        "step_ms": took / steps * 1e3, "waits_ms": [round(one, 3) for one in waited],
        "steps_ms": [round(one, 3) for one in begun],
    }  # fmt: skip


def main() -> None:
    """All ways, for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--models", default="resnet50,resnet18")
    parser.add_argument("--cores", default="8,16", help="cores for TorchLoader, for each model")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--decode", default="cpu,gpu,hybrid", help="ways to decode that are measured where nobody trains"
    )
    parser.add_argument("--train-decode", default="cpu", help="ways to decode that train, beside the ceiling")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    every = sorted(os.sched_getaffinity(0))
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "photos.fld"
        write(path, chosen.photos)
        for name, cores in zip(chosen.models.split(","), map(int, chosen.cores.split(",")), strict=True):
            modes = {f"TorchLoader, {cores} cores{'' if one == 'cpu' else f', decode={one!r}'}": one
                     for one in chosen.train_decode.split(",")}  # fmt: skip
            ways = ["synthetic", *modes]
            if chosen.peer:
                ways.append(f"torch DataLoader + torchvision, {len(every)} workers")
            found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
            for _ in range(chosen.rounds):
                for way in ways:
                    os.sched_setaffinity(0, every[:cores] if way.startswith("TorchLoader") else every)
                    steps = chosen.steps if not way.startswith("torch ") else max(20, chosen.steps // 4)
                    if way == "synthetic":
                        batches = synthetic(chosen.batch)
                    elif way.startswith("TorchLoader"):
                        batches = ours(path, chosen.batch, cores, modes[way])
                    else:
                        batches = torchs(chosen.photos, chosen.batch, len(every))
                    found[way].append(train(name, batches, chosen.batch, steps, 20))
                    del batches
            os.sched_setaffinity(0, every[:cores])
            for decode in chosen.decode.split(","):
                speed = alone(path, chosen.batch, cores, decode)
                print(
                    f"{name:9} TorchLoader alone, {cores} cores, decode={decode!r}: {speed:,.0f} images/s", flush=True
                )
            ceiling = max(one["images_per_second"] for one in found["synthetic"])
            for way, results in found.items():
                best = max(results, key=lambda one: one["images_per_second"])
                line = {"model": name, "way": way, "share": best["images_per_second"] / ceiling, **best}
                lines.append(line)
                rate = f"{best['images_per_second']:9,.0f} images/s"
                print(f"{name:9} {way:45} {rate}, {line['share']:.3f} of the ceiling, waiting {best['waiting']:.4f}")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {len(every)} cores", file=sys.stderr)
    if chosen.out:
        chosen.out.write_text("\n".join(json.dumps(line) for line in lines) + "\n")


if __name__ == "__main__":
    np.random.seed(0)
    main()
