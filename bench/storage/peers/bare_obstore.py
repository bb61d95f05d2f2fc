"""obstore alone: whole objects of 8 MB, or ranges of one sample each. What comes is counted and dropped."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator

import obstore
from obstore.store import S3Store
from task import IN_FLIGHT, measure, told

task = told()
store = S3Store(task["bucket"], endpoint=task["endpoint"], client_options={"allow_http": True})
single = sys.argv[2] == "samples"


async def fetch() -> int:
    """All of it, so many requests at a time."""
    places = asyncio.Semaphore(4 * IN_FLIGHT if single else IN_FLIGHT)
    wanted = [(key, at, task["sample"]) for key, size in task["objects"] for at in range(0, size, task["sample"])]
    if not single:
        wanted = [(key, 0, size) for key, size in task["objects"]]
    random.Random(0).shuffle(wanted)

    async def one(key: str, begin: int, size: int) -> int:
        async with places:
            return len(await obstore.get_range_async(store, key, start=begin, length=size))

    return sum(await asyncio.gather(*(one(*range_) for range_ in wanted)))


def epoch() -> Iterator[tuple[int, int]]:
    """All at once."""
    size = asyncio.run(fetch())
    yield size // task["sample"], size


measure(epoch)
