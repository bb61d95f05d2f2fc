"""A loader over .fld shards in an order, with a cache where a second argument names one; or single objects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from task import BATCH, WORKERS, measure, told, way

task = told()
sys.path.pop(0)  # this file has the library's name
import fastloader as fl  # noqa: E402

order, *cache = way()


def epoch() -> Iterator[tuple[int, int]]:
    """One pass, from opening on."""
    if order == "small":
        for batch in fl.open(f"s3://{task['bucket']}/small/").shuffle(seed=0).batch(BATCH):
            yield len(batch["data"]), sum(map(len, batch["data"]))
        return
    options: dict[str, Any] = {"cache_dir": cache[0], "cache_size": "8GB"} if cache else {}
    reader = fl.open(f"s3://{task['bucket']}/fld", {"endpoint": task["endpoint"]}, **options)
    for batch in fl.DataLoader(reader, batch_size=BATCH, order=order, num_workers=WORKERS):  # type: ignore[arg-type]
        yield len(batch["data"]), sum(map(len, batch["data"]))


measure(epoch)
