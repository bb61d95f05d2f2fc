"""Each sample of 101 KB an object of its own, against bare obstore and against others' loaders."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import environments
from common import Result
from contest import FRESH, compete, row
from data import put_small, task_for

from fastloader.testing.seaweed import s3_server

SAMPLES = 2000
ABLE = ("boto3", "s3dlio", "s3torchconnector")
"""Peers that take single objects for samples."""
LIMIT = "obstore, single objects"


def main() -> list[Result]:
    """Interleaved rounds."""
    peers = [peer for peer in environments.chosen() if peer in ABLE]
    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder) / "s3") as s3:
        task = task_for(s3, SAMPLES)
        put_small(s3, task)
        ways = {"single objects": ("fastloader", "small", "bucket"), LIMIT: ("bare_obstore", "small")}
        seen = compete(ways | {peer: (peer, "small", FRESH) for peer in peers}, task, s3.process)
    return [row("single objects", other, seen, "<= 1.11" if other == LIMIT else "<= 0.4") for other in (LIMIT, *peers)]
