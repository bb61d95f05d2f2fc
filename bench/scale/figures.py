"""Writes the figures of ``docs/explanation/scale.md``: ``python bench/scale/figures.py [--write]`` (some minutes).

They are of a manifest that is made up, for a dataset that nobody has: what a loader does with it before it reads, and
what it would read, is the same as if it were there.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine

from fastloader.formats.fld import Manifest, Shard, shard_name
from fastloader.simulation import Layout, Link, Simulation, simulate

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "scale.md"
BEGIN, END = "<!-- figures: python bench/scale/figures.py --write -->", "<!-- end of figures -->"
LINK = Link(latency=0.03, bandwidth=1e9, at_once=32)
TABLES = 32 + 8
"""Bytes that the tables of a shard keep of a sample with one payload and a label."""


@dataclass(frozen=True)
class World:
    """A dataset and the ranks that load it."""

    shards: int = 100_000
    samples_per_shard: int = 10_000
    sample_bytes: int = 100_000
    ranks: int = 1_024
    batch_size: int = 256
    windows: tuple[int, ...] = (64, 1024)

    @cached_property
    def manifest(self) -> Manifest:
        """As a writer would leave it."""
        size = self.samples_per_shard * (self.sample_bytes + TABLES) + (16 << 10)
        each = (Shard(shard_name(number), self.samples_per_shard, size, number) for number in range(self.shards))
        return Manifest(tuple(each))

    @cached_property
    def simulations(self) -> dict[str, Simulation]:
        """By the order's name."""
        layout = Layout.of_manifest(self.manifest)
        found = {}
        for order in ("sequential", "random"):
            found[f"`{order}`"] = self._simulated(layout, order)
        for window in self.windows:
            found[f"`quasi_random`, window {window}"] = self._simulated(layout, "quasi_random", window)
        return found

    def _simulated(self, layout: Layout, order: Any, window: int | None = None) -> Simulation:
        return simulate(layout, world_size=self.ranks, batch_size=self.batch_size, order=order, window=window)


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def number(value: float, unit: float = 1.0) -> str:
    """Three figures that count."""
    value /= unit
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def opening(world: World) -> str:
    """What the manifest costs."""
    data = world.manifest.to_bytes()
    began = time.perf_counter()
    Manifest.from_bytes(data, Path("manifest.json"))
    took = time.perf_counter() - began
    tracemalloc.start()
    kept = Manifest.from_bytes(data, Path("manifest.json"))
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return table(
        ("shards", "manifest, MB", "read in, s", "in memory, MB"),
        [(number(len(kept.shards)), number(len(data), 1e6), number(took), number(memory, 1e6))],
    )


def planning(world: World) -> str:
    """What a rank does before it reads."""
    return table(
        ("order", "to know the first batch, s", "memory for it, MB"),
        [(name, number(one.planning_seconds), number(one.planning_bytes, 1e6))
         for name, one in world.simulations.items()],
    )  # fmt: skip


def reading(world: World) -> str:
    """What a rank asks for in an epoch."""
    rows = []
    for name, one in world.simulations.items():
        rank = max(one.ranks, key=lambda rank: rank.bytes)
        rows.append((
            name, number(rank.samples), number(rank.bytes, 1e9), number(rank.requests), number(rank.shards),
            number(rank.opening_bytes, 1e9), number(rank.opening_requests),
        ))  # fmt: skip
    names = ("order", "samples", "payloads, GB", "requests", "shards opened", "their tables, GB", "requests for these")
    return table(names, rows)


def first_batch(world: World) -> str:
    """What comes before the first batch."""
    rows = []
    for name, one in world.simulations.items():
        rank = max(one.ranks, key=lambda rank: rank.first_batch_bytes)
        rows.append((
            name, number(rank.first_batch_shards), number(rank.first_batch_requests),
            number(rank.first_batch_bytes, 1e6), number(one.first_batch_seconds(LINK)),
        ))  # fmt: skip
    return table(("order", "shards opened", "requests", "MB", "seconds"), rows)


def mixing(world: World) -> str:
    """What a cache must hold, and how well orders mix."""
    rows = []
    for name, one in world.simulations.items():
        mixed = one.mixing
        rows.append((
            name, number(one.cache_bytes, 1e9), number(mixed.displacement), number(mixed.pages_in_batch),
            number(mixed.label_spread), number(mixed.step_label_spread),
        ))  # fmt: skip
    names = ("order", "room for a cache, GB", "displacement", "pages in a batch", "label spread, a batch", "of a step")
    return table(names, rows)


def render(world: World) -> str:
    """All of it, as it stands in the page."""
    size = world.shards * world.samples_per_shard * world.sample_bytes
    total = world.shards * world.samples_per_shard
    return "\n\n".join((
        BEGIN,
        f"{number(total)} samples of {number(world.sample_bytes)} bytes ({number(size, 1e12)} TB) in "
        f"{number(world.shards)} shards, {number(world.ranks)} ranks, batches of {world.batch_size}. {machine()}",
        "**The manifest**", opening(world),
        "**Planning, on each rank**", planning(world),
        "**An epoch, for the rank that has most to do of some**", reading(world),
        f"**The first batch**, with {number(LINK.latency, 1e-3)} ms a request, {LINK.at_once} at once, and "
        f"{number(LINK.bandwidth, 1e9)} GB/s", first_batch(world),
        "**Cache and mixing**, a plain shuffle being 1", mixing(world),
        END,
    ))  # fmt: skip


def written(page: str, figures: str) -> str:
    """The page with other figures."""
    found = re.search(re.escape(BEGIN) + ".*?" + re.escape(END), page, re.DOTALL)
    if found is None:
        raise ValueError(f"the page has no place for figures, from {BEGIN} to {END}")
    return page[: found.start()] + figures + page[found.end() :]


def main() -> None:
    """Print the figures, or put them into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put them into the page")
    parser.add_argument("--shards", type=int, help="so many shards rather than all, to try it")
    options = parser.parse_args()
    world = World() if options.shards is None else replace(World(), shards=options.shards)
    figures = render(world)
    if options.write:
        PAGE.write_text(written(PAGE.read_text(), figures))
    else:
        print(figures)


if __name__ == "__main__":
    main()
