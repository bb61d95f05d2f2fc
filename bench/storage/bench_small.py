"""Each sample of 101 KB an object of its own, against bare obstore and against others' loaders."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from common import Result
from contest import FRESH, compete, row
from data import PEERS, put_small, task_for

from fastloader.testing.seaweed import s3_server

SAMPLES = 2000
ABLE = ("boto3", "s3dlio", "s3torchconnector")
"""Peers that take single objects for samples."""
NO_LOADER = ("boto3", "s3dlio")
"""They hand out objects, in whatever order these come."""
OURS, LIMIT = "single objects", "obstore, single objects"
LISTED, LISTED_LIMIT = "single objects, listed", "obstore, single objects, listed"
"""From opening on, told the folder alone; the others are told the objects."""


def main() -> list[Result]:
    """Interleaved rounds."""
    peers = [peer for peer in PEERS.chosen() if peer in ABLE]
    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder) / "s3") as s3:
        task = task_for(s3, SAMPLES)
        put_small(s3, task)
        ways = {
            OURS: ("fastloader", "small", "bucket", "opened"),
            LIMIT: ("bare_obstore", "small"),
            LISTED: ("fastloader", "small", "bucket"),
            LISTED_LIMIT: ("bare_obstore", "listed"),
        }
        seen = compete(ways | {peer: (peer, "small", FRESH) for peer in peers}, task, s3.process)
    limits = [row(OURS, LIMIT, seen, "<= 1.11"), row(LISTED, LISTED_LIMIT, seen, "")]
    return limits + [row(LISTED, peer, seen, "" if peer in NO_LOADER else "<= 0.4") for peer in peers]
