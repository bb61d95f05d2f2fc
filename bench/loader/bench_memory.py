"""Resident memory over 100 epochs of one loader, held against that after the first ten."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import numpy as np
import psutil
from common import Result

import fastloader as fl

EPOCHS, FIRST, SAMPLES = 100, 10, 20_000


def main() -> list[Result]:
    """Fixed arrays, bytes of any size and numbers, with a transform, in two workers; some epochs are left early."""
    rng = np.random.default_rng(0)
    fields = {"vector": fl.NDArrayField("float32", (64,)), "text": fl.BytesField(), "label": fl.IntField()}
    with tempfile.TemporaryDirectory() as folder:
        with fl.DatasetWriter(Path(folder) / "data.fld", fields) as writer:
            for i in range(SAMPLES):
                vector = rng.standard_normal(64, dtype=np.float32)
                writer.write_sample({"vector": vector, "text": bytes(int(rng.integers(0, 500))), "label": i})
        loader = fl.DataLoader(
            fl.open(Path(folder) / "data.fld"), 64, num_workers=2, transforms={"label": lambda numbers: numbers + 1}
        )
        process, sizes = psutil.Process(), []
        for epoch in range(EPOCHS):
            for step, _ in enumerate(loader):
                if epoch % 7 == 3 and step == 20:
                    break
            gc.collect()
            sizes.append(process.memory_info().rss)
        loader.close()
    later = np.array(sizes[FIRST:], float)
    slope = float(np.polyfit(np.arange(len(later)), later, 1)[0])
    early, last = sizes[FIRST - 1], sizes[-1]
    details = f"{early / 2**20:.1f} MiB, then {last / 2**20:.1f}; slope {slope / 1024:+.2f} KiB an epoch"
    return [Result(f"resident memory after {EPOCHS} epochs", f"after {FIRST}", last / early, "flat", details)]
