"""Ten to the ninth samples in 100,000 shards on 1,024 ranks, by simulation: what ranks read, against their share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from common import Result
from figures import LINK, World, number


def main() -> list[Result]:
    """One row an order and a measure."""
    world = World()
    results = []
    for name, one in world.simulations.items():
        rank = max(one.ranks, key=lambda rank: rank.bytes)
        share = rank.samples * world.sample_bytes
        whole = rank.bytes + rank.opening_bytes
        results += [
            Result(f"{name}: bytes a rank", "its samples", whole / share, "< 1.1",
                   f"{number(rank.bytes, 1e9)} GB, and {number(rank.opening_bytes, 1e9)} GB of tables"),
            Result(f"{name}: requests a rank", "its samples", (rank.requests + rank.opening_requests) / rank.samples,
                   "low", f"{number(rank.requests)}, and {number(rank.opening_requests)} for tables"),
            Result(f"{name}: first batch", "1 s", one.first_batch_seconds(LINK), "< 2",
                   f"planned in {number(one.planning_seconds)} s with {number(one.planning_bytes, 1e6)} MB"),
            Result(f"{name}: spread of labels in a batch", "a shuffle", one.mixing.label_spread, "low",
                   "written sorted by 1,000 labels"),
        ]  # fmt: skip
    return results
