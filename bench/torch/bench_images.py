"""JPEGs -> RandomResizedCrop(224) -> flip -> batches of 64 tensors: TorchLoader against torch's DataLoader, 2 workers.

Torch's loader reads the same ``.fld`` by TorchMapDataset and TorchIterableDataset, and a file per image with Pillow.
"""

from __future__ import annotations

import io
import math
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Result
from numpy.typing import NDArray
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))

from contest import ITERABLE, OURS, contest, copies, copying, our_copies, torchs

import fastloader as fl
from fastloader import ops
from fastloader.torch import TorchIterableDataset, TorchLoader, TorchMapDataset

COUNT, WIDTH, HEIGHT, SIDE, BATCH, ROUNDS = 512, 486, 414, 224, 64, 5
PIPELINE = {"image": [ops.RandomResizedCrop(SIDE), ops.HorizontalFlip()]}


def photo(seed: int) -> bytes:
    """Clouds of several sizes and grain: a JPEG of about 100 KB."""
    rng = np.random.default_rng(seed)
    sizes = [(n, n * WIDTH // HEIGHT) for n in (3, 9, 40, 140)]
    clouds = [Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)) for size in sizes]
    layers = [np.asarray(cloud.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.float32) for cloud in clouds]
    pixels = np.average(layers, 0, weights=(4, 3, 2, 1.5)) + rng.normal(0, 7, (HEIGHT, WIDTH, 1))
    out = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()


def write(folder: Path) -> int:
    """The same JPEGs as files and as .fld; their size on average."""
    size = 0
    with fl.DatasetWriter(folder / "images.fld", {"image": fl.JPEGImageField(), "label": fl.IntField()}) as writer:
        for number in range(COUNT):
            jpeg = photo(number)
            (folder / f"{number}.jpg").write_bytes(jpeg)
            writer.write_sample({"image": jpeg, "label": number})
            size += len(jpeg)
    return size // COUNT


def cropped(image: Image.Image) -> NDArray[np.uint8]:
    """As torchvision's RandomResizedCrop and RandomHorizontalFlip draw it, resized antialiased by Pillow."""
    width, height = image.size
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if wide <= width and high <= height:
            left, top = random.randint(0, width - wide), random.randint(0, height - high)
            break
    else:
        left, top, wide, high = 0, 0, width, height
    box = (left, top, left + wide, top + high)
    made = np.asarray(image.crop(box).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    return np.ascontiguousarray(made[:, ::-1]) if random.random() < 0.5 else made.copy()


class Transformed:
    """What a worker does to a sample of the .fld; it counts what it copies."""

    def __init__(self) -> None:
        self.copied = 0

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        made = cropped(Image.fromarray(sample["image"]))
        self.copied += made.nbytes  # out of Pillow's memory
        return {"image": made, "label": sample["label"]}


class Files(torch.utils.data.Dataset[Any]):
    """A file per image, with Pillow."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.copied = folder, 0

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> dict[str, Any]:
        with Image.open(self.folder / f"{number}.jpg") as image:
            made = cropped(image)
        self.copied += made.nbytes  # out of Pillow's memory
        return {"image": made, "label": number}


def main() -> list[Result]:
    """An epoch of each, interleaved, in memory; then what each copies."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write(folder)
        path = folder / "images.fld"
        transform, files = Transformed(), Files(folder)
        mapped = TorchMapDataset(path, transform=transform)

        def ours() -> TorchLoader:
            return TorchLoader(path, BATCH, num_workers=2, pipelines=PIPELINE, drop_last=True)

        def dealt(workers: int) -> Any:
            options = {"num_workers": 1, "remainder": "drop", "drop_last": True, "pipelines": PIPELINE}
            return torchs(TorchIterableDataset(path, BATCH, **options), None, workers)

        what = f"JPEGs of {size // 1000} KB"
        same = "torch's DataLoader, the same .fld by TorchMapDataset, Pillow"
        loose = "torch's DataLoader, a file per image, Pillow"
        with ours() as loader:
            contestants = {
                same: (torchs(mapped, BATCH), 1), loose: (torchs(files, BATCH), 1), ITERABLE: (dealt(2), 1),
                OURS: (loader, 1),
            }  # fmt: skip
            results = contest(what, ROUNDS, COUNT, contestants)
        counted = {
            same: copies(torchs(mapped, BATCH, 0), lambda: transform.copied),
            loose: copies(torchs(files, BATCH, 0), lambda: files.copied),
        }
        return results + copying(what, our_copies(ours()), counted)
