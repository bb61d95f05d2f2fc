"""LitData: chunks of 8 MB, fetched whole into a cache on disk and read from there by two worker processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from task import BATCH, WORKERS, measure, samples, told, way

task = told()
sys.path.append(sys.path.pop(0))  # this file has the library's name
import litdata  # noqa: E402


def sample(data: bytes) -> dict[str, bytes]:
    """What a chunk holds of each."""
    return {"data": data}


def epoch(cache: str) -> Iterator[tuple[int, int]]:
    """Shuffled."""
    options = {
        "endpoint_url": task["endpoint"], "aws_access_key_id": task["access"],
        "aws_secret_access_key": task["secret"], "region_name": "us-east-1",
    }  # fmt: skip
    where = f"s3://{task['bucket']}/litdata"
    data: Any = litdata.StreamingDataset(where, cache_dir=cache, storage_options=options, shuffle=True)
    for batch in litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=WORKERS, shuffle=True):
        yield len(batch["data"]), sum(map(len, batch["data"]))


if __name__ == "__main__":
    what, folder = way()
    if what == "prepare":
        litdata.optimize(sample, list(samples(task)), folder, chunk_bytes="8MB", num_workers=1, verbose=False)
    else:
        measure(lambda: epoch(folder))
