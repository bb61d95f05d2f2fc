"""A loader over .fld shards in an order, in the bucket (with a cache, if a third argument names one) or in a folder;
or single objects.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from task import BATCH, WORKERS, measure, told, way

task = told()
sys.path.append(sys.path.pop(0))  # this file has the library's name
import fastloader as fl  # noqa: E402
from fastloader.stores import client, cloud  # noqa: E402, F401 - imported when first used: the others' are before it begins

fl.open, fl.DataLoader, client.module()

WINDOW = 16
"""Pages of 8 MiB that quasi-random order mixes: 128 MiB."""

order, place, *more = way()
second, cache = "second" in more, [one for one in more if one not in ("second", "opened")]
fetched: dict[str, float] = {}


def made() -> fl.DataLoader:
    """The loader, on the dataset opened."""
    if place == "bucket":
        options: dict[str, Any] = {"cache_dir": cache[0], "cache_size": "8GB"} if cache else {}
        reader = fl.open(f"s3://{task['bucket']}/fld", {"endpoint": task["endpoint"]}, **options)
    else:
        reader = fl.open(place)
    window = WINDOW if order == "quasi_random" else None
    return fl.DataLoader(reader, batch_size=BATCH, order=order, num_workers=WORKERS, window=window)  # type: ignore[arg-type]


def epoch(loader: fl.DataLoader | None = None) -> Iterator[tuple[int, int]]:
    """One pass, from opening on unless that is done."""
    loader = loader or made()
    for batch in loader:
        if not fetched:
            fetched["fetched_first"] = loader.stats()["io"].get("fetched_bytes", 0)
        yield len(batch["data"]), batch["data"].size
    fetched["fetched"] = loader.stats()["io"].get("fetched_bytes", 0)


def objects() -> Any:
    """All below a prefix of the bucket, listed."""
    return fl.open(f"s3://{task['bucket']}/small/")


def single_objects(opened: Any = None) -> Iterator[tuple[int, int]]:
    """One pass over them, from opening on unless that is done."""
    for batch in (opened or objects()).shuffle(seed=0).batch(BATCH):
        yield len(batch["data"]), sum(map(len, batch["data"]))


if second:
    loader = made()
    for _ in loader:
        pass
    measure(lambda: epoch(loader), fetched, passes=5)
if order == "small" and "opened" in more:
    known = objects()
    measure(lambda: single_objects(known))
measure(single_objects if order == "small" else epoch, fetched)
