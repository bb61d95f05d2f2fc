"""Vectors of 256 floats with a label, batches of 256 tensors: TorchLoader against torch's DataLoader, 2 workers.

Torch's loader reads the same ``.fld`` by TorchMapDataset and TorchIterableDataset, and a ``.npy`` file per vector.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Result

sys.path.insert(0, str(Path(__file__).parent))

from contest import ITERABLE, OURS, contest, copies, copying, crowd, our_copies, torchs

import fastloader as fl
from fastloader.torch import TorchIterableDataset, TorchLoader, TorchMapDataset

COUNT, WIDTH, BATCH, ROUNDS = 16_384, 256, 256, 7


class Files(torch.utils.data.Dataset[Any]):
    """A .npy file per vector; its label is its number's last digit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"vector": torch.from_numpy(np.load(self.folder / f"{number}.npy")), "label": number % 10}


def write(folder: Path) -> None:
    """The same vectors as files and as .fld."""
    vectors = np.random.default_rng(0).standard_normal((COUNT, WIDTH), dtype=np.float32)
    fields = {"vector": fl.NDArrayField("float32", (WIDTH,)), "label": fl.IntField()}
    with fl.DatasetWriter(folder / "vectors.fld", fields) as writer:
        for number, vector in enumerate(vectors):
            np.save(folder / f"{number}.npy", vector)
            writer.write_sample({"vector": vector, "label": number % 10})


def main() -> list[Result]:
    """An epoch of each, interleaved, in memory; then what each copies."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        path = folder / "vectors.fld"
        mapped, files = TorchMapDataset(path), Files(folder)
        options = {"num_workers": 1, "remainder": "drop", "drop_last": True}
        dealt = torchs(TorchIterableDataset(path, BATCH, **options), None)
        same = "torch's DataLoader, the same .fld by TorchMapDataset"
        loose = "torch's DataLoader, a .npy file per vector"
        with TorchLoader(path, BATCH, num_workers=2, drop_last=True) as loader:
            contestants = {
                same: (torchs(mapped, BATCH), 1), loose: (torchs(files, BATCH), 1), ITERABLE: (dealt, 1),
                OURS: (loader, 20),
            }  # fmt: skip
            results = contest("vectors", ROUNDS, COUNT, contestants)
        counted = {same: copies(torchs(mapped, BATCH, 0)), loose: copies(torchs(files, BATCH, 0))}
        ours = our_copies(TorchLoader(path, BATCH, num_workers=2, drop_last=True))
        return results + copying("vectors", ours, counted)


def appendix(folder: Path) -> str:
    """Below the results."""
    return crowd()
