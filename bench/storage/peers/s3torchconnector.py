"""s3torchconnector: tar files as an iterable dataset in torch's DataLoader, samples taken out of them in workers."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator
from typing import Any

from task import measure, told

task = told()
sys.path.pop(0)  # this file has the library's name
import torch  # noqa: E402
from s3torchconnector import S3IterableDataset  # noqa: E402


def samples(tar: Any) -> list[bytes]:
    """What a tar file holds."""
    with tarfile.open(fileobj=tar, mode="r|") as archive:
        return [file.read() for member in archive if (file := archive.extractfile(member)) is not None]


def epoch() -> Iterator[tuple[int, int]]:
    """All tar files, two workers."""
    data = S3IterableDataset.from_prefix(
        f"s3://{task['bucket']}/tar/", region="us-east-1", endpoint=task["endpoint"], transform=samples,
        enable_sharding=True,
    )  # fmt: skip
    for batch in torch.utils.data.DataLoader(data, batch_size=None, num_workers=2):
        yield len(batch), sum(map(len, batch))


if __name__ == "__main__":
    measure(epoch)
