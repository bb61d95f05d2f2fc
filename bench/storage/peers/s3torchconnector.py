"""s3torchconnector: tar files or single objects as an iterable dataset in torch's DataLoader."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator
from typing import Any

from task import BATCH, WORKERS, measure, told, way

task = told()
sys.path.append(sys.path.pop(0))  # this file has the library's name
import torch  # noqa: E402
from s3torchconnector import S3IterableDataset  # noqa: E402

small = way()[0] == "small"


def samples(tar: Any) -> list[bytes]:
    """What a tar file holds."""
    with tarfile.open(fileobj=tar, mode="r|") as archive:
        return [file.read() for member in archive if (file := archive.extractfile(member)) is not None]


def whole(one: Any) -> bytes:
    """An object's bytes."""
    data: bytes = one.read()
    return data


def epoch() -> Iterator[tuple[int, int]]:
    """All objects; the workers take samples out of tar files."""
    data = S3IterableDataset.from_prefix(
        f"s3://{task['bucket']}/{'small' if small else 'tar'}/", region="us-east-1", endpoint=task["endpoint"],
        transform=whole if small else samples, enable_sharding=True,
    )  # fmt: skip
    batched = {"batch_size": BATCH, "collate_fn": list} if small else {"batch_size": None}
    for batch in torch.utils.data.DataLoader(data, num_workers=WORKERS, **batched):  # type: ignore[arg-type]
        yield len(batch), sum(map(len, batch))


if __name__ == "__main__":
    measure(epoch)
