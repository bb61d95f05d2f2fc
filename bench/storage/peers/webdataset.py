"""WebDataset: tar files through curl, shuffled by file and in a buffer; batches are made in two worker processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from task import BATCH, WORKERS, measure, told

task = told()
sys.path.append(sys.path.pop(0))  # this file has the library's name
import webdataset  # noqa: E402

SIGNED = f"--aws-sigv4 aws:amz:us-east-1:s3 --user {task['access']}:{task['secret']}"


def epoch() -> Iterator[tuple[int, int]]:
    """Shuffled."""
    where = f"{task['endpoint']}/{task['bucket']}"
    urls = [f"pipe:curl -sf {SIGNED} {where}/{key}" for key, _ in task["tar"]]
    data = webdataset.WebDataset(urls, shardshuffle=len(urls)).shuffle(1000).to_tuple("bin")
    for (batch,) in webdataset.WebLoader(data.batched(BATCH, partial=True), batch_size=None, num_workers=WORKERS):
        yield len(batch), sum(map(len, batch))


if __name__ == "__main__":
    measure(epoch)
