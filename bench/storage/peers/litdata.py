"""LitData: chunks of 8 MB, fetched whole into a cache on disk and read from there by two worker processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from task import BATCH, WORKERS, measure, samples, told, way

task = told()
sys.path.append(sys.path.pop(0))  # this file has the library's name
import litdata  # noqa: E402
import numpy as np  # noqa: E402
from litdata.streaming import downloader  # noqa: E402

downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # its own client takes no server without TLS


def sample(data: bytes) -> dict[str, Any]:
    """What a chunk holds of each: an array, for bytes come as views that its workers can't send."""
    return {"data": np.frombuffer(data, np.uint8)}


def epoch(cache: str) -> Iterator[tuple[int, int]]:
    """Shuffled."""
    options = {
        "endpoint_url": task["endpoint"], "aws_access_key_id": task["access"],
        "aws_secret_access_key": task["secret"], "region_name": "us-east-1",
    }  # fmt: skip
    where = f"s3://{task['bucket']}/litdata"
    data: Any = litdata.StreamingDataset(where, cache_dir=cache, storage_options=options, shuffle=True)
    for batch in litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=WORKERS, shuffle=True):
        yield len(batch["data"]), batch["data"].numel()


if __name__ == "__main__":
    what, folder = way()
    if what == "prepare":
        litdata.optimize(sample, list(samples(task)), folder, chunk_bytes="8MB", num_workers=1, verbose=False)
    else:
        measure(lambda: epoch(folder))
