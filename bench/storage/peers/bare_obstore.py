"""obstore alone: objects, or ranges of a sample's size. What comes is counted and dropped.

Single objects it is told of, or ``listed``: then it is told their folder, as loaders are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import obstore
from obstore.store import S3Store
from task import IN_FLIGHT, measure, told, way

task = told()
store = S3Store(task["bucket"], endpoint=task["endpoint"], client_options={"allow_http": True})
(what,) = way()


async def fetch() -> int:
    """All of it, so many requests at a time; four times as many of small ones."""
    places = asyncio.Semaphore(IN_FLIGHT if what == "plain" else 4 * IN_FLIGHT)
    if what == "samples":
        wanted = [(key, at, task["sample"]) for key, at in task["ranges"]]
    elif what == "listed":
        wanted = [(one["path"], 0, one["size"]) for page in obstore.list(store, "small/") for one in page]
    else:
        wanted = [(key, 0, size) for key, size in task[what]]
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
