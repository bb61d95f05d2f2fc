"""s3dlio: its loader over whole objects in a random order."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from task import IN_FLIGHT, measure, told, way

task = told()
sys.path.append(sys.path.pop(0))  # this file has the library's name
import s3dlio  # noqa: E402


def epoch() -> Iterator[tuple[int, int]]:
    """As many requests at a time as the others have."""
    options = {"shuffle": True, "seed": 0, "prefetch": IN_FLIGHT, "num_workers": IN_FLIGHT, "batch_size": 1}
    where = f"s3://{task['bucket']}/{'small' if way()[0] == 'small' else 'plain'}/"
    for item in s3dlio.create_async_loader(where, options).items():
        yield len(item) // task["sample"], len(item)


measure(epoch)
