"""A whole epoch of 101 KB samples from an S3 server, against bare obstore and against others' loaders.

README.md says what is measured, and how environments of peers are made.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from common import Result
from contest import FRESH, Seen, compete, row
from data import OWN_FORM, PEERS, put_files, put_own_form, put_shards, task_for

from fastloader.testing.seaweed import s3_server

SAMPLES = 8000
NO_SAMPLES = ("boto3", "s3dlio")
LIMIT, SINGLE = "obstore, 8 MB objects", "obstore, a range a sample"


def main() -> list[Result]:
    """Interleaved rounds."""
    peers = PEERS.chosen()
    with tempfile.TemporaryDirectory() as name, s3_server(Path(name) / "s3") as s3:
        folder = Path(name)
        task = task_for(s3, SAMPLES)
        put_shards(s3, task, folder)
        put_files(s3, task)
        for peer in set(OWN_FORM) & set(peers):
            put_own_form(s3, task, peer, folder / peer)
        ways = {
            "quasi_random": ("fastloader", "quasi_random", "bucket"),
            "sequential": ("fastloader", "sequential", "bucket"),
            "random": ("fastloader", "random", "bucket"),
            "quasi_random, cached": ("fastloader", "quasi_random", "bucket", str(folder / "cache")),
            **{
                f"second epoch, {order}, {where}": ("fastloader", order, *place, "second")
                for order in ("quasi_random", "random")
                for where, place in (("cached", ("bucket", str(folder / "cache"))), ("local", (str(folder / "fld"),)))
            },
            LIMIT: ("bare_obstore", "plain"),
            SINGLE: ("bare_obstore", "samples"),
        }
        for peer in peers:
            ways[peer] = (peer, "epoch", FRESH)
            if peer in OWN_FORM:
                ways[f"{peer}, cached"] = (peer, "epoch", str(folder / f"{peer}-cache"))
        return compare(compete(ways, task, s3.process), peers)


def compare(seen: dict[str, Seen], peers: list[str]) -> list[Result]:
    """Times of ours in those of others."""

    def fetched(order: str) -> str:
        share, first = seen[order].median("fetched") / seen[order].median("bytes"), seen[order].median("first")
        size = seen[order].median("fetched_first") / 1e6
        return f"; bytes fetched {share:.4f} of those needed; first batch after {first:.2f} s and {size:.0f} MB"

    rows = [
        row("quasi_random", LIMIT, seen, "<= 1.11", fetched("quasi_random")),
        row("sequential", LIMIT, seen, "<= 1.11", fetched("sequential")),
        row("random", SINGLE, seen, "<= 1.11", fetched("random")),
        row("second epoch, quasi_random, cached", "second epoch, quasi_random, local", seen, "about 1"),
        row("second epoch, random, cached", "second epoch, random, local", seen, "about 1"),
    ]
    # Of these two it is objects that come, whatever is in them: what they show is how near to that a loader can be.
    rows += [row("quasi_random", peer, seen, "" if peer in NO_SAMPLES else "<= 0.4") for peer in peers]
    rows += [row("quasi_random, cached", f"{peer}, cached", seen, "<= 0.4") for peer in peers if peer in OWN_FORM]
    return rows
