"""MosaicML Streaming: MDS shards of 8 MB, fetched whole to the disk and read from there by two worker processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from task import BATCH, WORKERS, measure, samples, told, way

task = told()
sys.path.append(sys.path.pop(0))  # this file has the library's name
sys.path.append(str(Path(__file__).parents[2] / "image"))
import vision  # noqa: E402, F401  it imports torchvision, which may need help
from streaming import MDSWriter, StreamingDataset, base  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402


def prepare(folder: str) -> None:
    """Shards without compression."""
    with MDSWriter(out=folder, columns={"data": "bytes"}, size_limit=1 << 23) as writer:
        for data in samples(task):
            writer.write({"data": data})


def epoch(cache: str) -> Iterator[tuple[int, int]]:
    """Shuffled."""
    base.util.clean_stale_shared_memory()
    data = StreamingDataset(remote=f"s3://{task['bucket']}/streaming", local=cache, shuffle=True, batch_size=BATCH)
    for batch in DataLoader(data, BATCH, num_workers=WORKERS):
        yield len(batch["data"]), sum(map(len, batch["data"]))


if __name__ == "__main__":
    what, folder = way()
    if what == "prepare":
        prepare(folder)
    else:
        measure(lambda: epoch(folder))
