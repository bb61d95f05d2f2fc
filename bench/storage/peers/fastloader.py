"""A loader over .fld shards; the second argument is the order, a third one a cache."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from task import measure, told

task = told()
here = sys.path.pop(0)  # this file has the library's name
import fastloader as fl  # noqa: E402

options: dict[str, Any] = {"endpoint": task["endpoint"]}
cache = {"cache_dir": sys.argv[3], "cache_size": "2GB"} if len(sys.argv) > 3 else {}


def epoch() -> Iterator[tuple[int, int]]:
    """One pass, from opening on."""
    reader = fl.open(f"s3://{task['bucket']}/fld", options, **cache)
    for batch in fl.DataLoader(reader, batch_size=64, order=sys.argv[2], num_workers=2):  # type: ignore[arg-type]
        yield len(batch["data"]), sum(map(len, batch["data"]))


measure(epoch)
