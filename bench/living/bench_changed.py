"""Loading from a dataset of which half is deleted, or with columns beside its shards, against one written anew."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from common import Result, interleave

import fastloader as fl

SAMPLES, SIZE, BATCH, SHARDS = 60_000, 2048, 256, 8


def write(path: Path, numbers: np.ndarray, *, beside: bool = False) -> fl.DatasetReader:
    """Samples with these numbers; with ``beside``, the label is a column added later."""
    fields = {"data": fl.NDArrayField("u1", (SIZE,))} | ({} if beside else {"label": fl.IntField()})
    rng = np.random.default_rng(0)
    data = rng.integers(0, 255, (256, SIZE), np.uint8)
    with fl.DatasetWriter(path, fields, shard_size=SAMPLES * SIZE // SHARDS) as writer:
        for i in numbers.tolist():
            writer.write_sample({"data": data[i % 256]} | ({} if beside else {"label": i}))
    if beside:
        fl.edit(path).add_column("label", fl.IntField(), numbers)
    return fl.open(path)


def epoch(loader: fl.DataLoader) -> None:
    """One pass."""
    loader.set_epoch(0)
    for _ in loader:
        pass


def main() -> list[Result]:
    """Random order, everything in memory."""
    folder = Path(tempfile.mkdtemp(prefix="fastloader-bench-"))
    try:
        every = np.arange(SAMPLES)
        left = np.sort(np.random.default_rng(1).permutation(SAMPLES)[: SAMPLES // 2])
        plain = write(folder / "plain.fld", every)
        half = write(folder / "half.fld", left)
        write(folder / "deleted.fld", every)
        fl.edit(folder / "deleted.fld").delete(indices=np.setdiff1d(every, left))
        deleted = fl.open(folder / "deleted.fld")
        beside = write(folder / "beside.fld", every, beside=True)
        loaders = {
            name: fl.DataLoader(reader, BATCH, num_workers=1, seed=3)
            for name, reader in {"plain": plain, "half": half, "deleted": deleted, "beside": beside}.items()
        }
        loaders["chosen"] = fl.DataLoader(plain, BATCH, num_workers=1, seed=3, indices=left)
        took = interleave(25, **{name: (lambda one=one: epoch(one)) for name, one in loaders.items()})
        runs = len(deleted.dataset.runs.starts) - 1
        opening = interleave(
            5, half=lambda: fl.open(folder / "half.fld"), deleted=lambda: fl.open(folder / "deleted.fld")
        )
        for loader in loaders.values():
            loader.close()
        return [
            Result("epoch, half of the samples deleted", "the other half written anew", took["deleted"] / took["half"],
                   "", f"{len(left):,} samples left in {runs:,} runs, bare copies: "
                   f"{(took['deleted'] - took['half']) / len(left) * 1e9:.0f} ns a sample more"),
            Result("epoch, half of the samples deleted", "the other half chosen by indices=",
                   took["deleted"] / took["chosen"], "", "the same bytes of the same files"),
            Result("epoch, a column beside the shards", "the column in the shards", took["beside"] / took["plain"],
                   "1.1 or less", f"{SAMPLES:,} samples of {SIZE} bytes in {SHARDS} shards"),
            Result("opening, half of the samples deleted", "the other half written anew",
                   opening["deleted"] / opening["half"], "",
                   f"{opening['deleted'] * 1e3:.1f} ms: the manifest is parsed, {runs:,} ranges"),
        ]  # fmt: skip
    finally:
        shutil.rmtree(folder)
