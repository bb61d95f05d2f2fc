"""What every contestant is told and tells. Nothing here is imported from fastloader, which peers don't have."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

IN_FLIGHT = 16
BATCH = 64
WORKERS = 2


def told() -> dict[str, Any]:
    """Where the server is and what lies there: in the file that the first argument names."""
    task: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    os.environ.update(
        AWS_ACCESS_KEY_ID=task["access"], AWS_SECRET_ACCESS_KEY=task["secret"], AWS_ENDPOINT_URL=task["endpoint"],
        AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true",
        S3_ENDPOINT_URL=task["endpoint"], NO_PROXY="127.0.0.1",
    )  # fmt: skip
    return task


def way() -> list[str]:
    """What to do, and with what: the other arguments."""
    return sys.argv[2:]


def samples(task: dict[str, Any]) -> Iterator[bytes]:
    """Random bytes, the same every time."""
    import numpy as np

    rng = np.random.default_rng(0)
    for _ in range(task["samples"]):
        yield rng.bytes(task["sample"])


def measure(
    epoch: Callable[[], Iterable[tuple[int, int]]], also: Mapping[str, float] | None = None, passes: int = 1
) -> None:
    """Run an epoch, which gives (samples, bytes) as they come, and tell how it went, and what it put into ``also``.

    Of several passes, the one that took the median time is told of.
    """
    results = sorted((_pass(epoch) for _ in range(passes)), key=lambda result: result["seconds"])
    print(json.dumps(results[passes // 2] | dict(also or {})), flush=True)
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(0)  # bare obstore ends every other process with an abort when the interpreter is taken down


def _pass(epoch: Callable[[], Iterable[tuple[int, int]]]) -> dict[str, Any]:
    usage = _cpu()
    began = time.perf_counter()
    first = None
    count = size = 0
    for more, bytes_ in epoch():
        first = first or time.perf_counter() - began
        count += more
        size += bytes_
    took = time.perf_counter() - began
    return {"seconds": took, "first": first, "samples": count, "bytes": size, "cpu": _cpu() - usage}


def _cpu() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
