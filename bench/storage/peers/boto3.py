"""boto3 in threads: whole objects."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from task import IN_FLIGHT, measure, told, way

task = told()
sys.path.append(sys.path.pop(0))  # this file has the library's name
import boto3  # noqa: E402
from botocore.config import Config  # noqa: E402

client: Any = boto3.client("s3", config=Config(max_pool_connections=IN_FLIGHT))  # type: ignore[attr-defined]


def epoch() -> Iterator[tuple[int, int]]:
    """In a random order."""
    keys = [key for key, _ in task["small" if way()[0] == "small" else "plain"]]
    random.Random(0).shuffle(keys)
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        for size in pool.map(lambda key: len(client.get_object(Bucket=task["bucket"], Key=key)["Body"].read()), keys):
            yield size // task["sample"], size


measure(epoch)
