"""Which nodes of a cluster see a file: tasks that need it run there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fastloader.errors import StoreError
from fastloader.ray.library import ray

PATIENCE = 30.0
"""Seconds for a node to answer; one that does not is taken to see nothing."""


def nodes_that_see(paths: Sequence[Path]) -> list[str] | None:
    """The ids of the nodes that have all these files, as they are here; ``None`` where all nodes do."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if len(nodes) < 2:
        return None
    look = ray.remote(num_cpus=0, max_retries=1)(_facts)
    answers = {
        look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(paths): node
        for node in nodes
    }
    ready, _ = ray.wait(list(answers), num_returns=len(answers), timeout=PATIENCE)
    here = _facts(paths)
    seen = []
    for answer in ready:
        try:
            if ray.get(answer) == here:
                seen.append(answers[answer])
        except ray.exceptions.RayError:  # it is gone
            continue
    if not seen:
        raise StoreError(
            "no node of the cluster sees this file",
            path=paths[0],
            hint="bring it to a disk that nodes share, or a store",
        )
    return None if len(seen) == len(nodes) else seen


def _facts(paths: Sequence[Path]) -> list[tuple[int, int] | None]:
    """Size and time of files, which no two of one name on different disks share by chance."""
    found: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
            found.append((status.st_size, status.st_mtime_ns))
        except OSError:
            found.append(None)
    return found
