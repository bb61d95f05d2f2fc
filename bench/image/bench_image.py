"""JPEG -> RandomResizedCrop(224) -> flip, batches of 64, shuffled, in memory, 2 workers: against other loaders.

Each peer runs in an environment of its own; README.md says how to make them and what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import environments
from common import Result
from environments import HERE, HOME, OURS
from measure import Run, prepare, quality, reference, speed, wanted_crops

ROUNDS = int(os.environ.get("FASTLOADER_BENCH_ROUNDS", "3"))
BASELINE = "torch_pil"
VARIANTS = {
    "jpeg": "JPEG",
    "jpeg512": "JPEG, no larger than 512 px",
    "raw256": "raw pixels, 256 px",
}
RAW = (OURS, "ffcv", BASELINE)
QUIET = 0.1
"""Share of the machine that others may take before images/s say little."""
ANTIALIASED = 45.0
"""dB of the 5th percentile from which a resize counts as antialiased."""


@dataclass(slots=True)
class Measured:
    """All that was seen in one go."""

    photos: list[str] = field(default_factory=list)
    runs: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    decibels: dict[str, tuple[float, float]] = field(default_factory=dict)

    def cheapest(self, variant: str, peer: str) -> float:
        """CPU seconds per 1,000 images: hardly touched by what others do."""
        return min(run.cpu_per_1000 for run in self.runs[variant][peer])

    def allowed(self, variant: str, peer: str) -> float:
        """Images a second if all cores did nothing else at that cost."""
        return (os.cpu_count() or 1) * 1000 / self.cheapest(variant, peer)

    def disturbed(self) -> float:
        """The most that others took of the machine during a run that counts."""
        return max(self.fastest(variant, peer).others for variant, runs in self.runs.items() for peer in runs)

    def fastest(self, variant: str, peer: str) -> Run:
        """The best round: what others on the machine take away only ever slows a run."""
        return max(self.runs[variant][peer], key=lambda run: run.images_per_second)


LAST = Measured()


def chosen() -> list[str]:
    """Peers asked for, whose environments are made; otherwise those that have one."""
    known = environments.peers()
    asked = os.environ.get("FASTLOADER_BENCH_PEERS", "")
    if not asked:
        return [peer for peer in known if environments.made(peer)]
    names = known if asked == "all" else asked.split(",")
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for peer in ["tools", *names]:
        if not environments.made(peer):
            environments.make(peer)
    return names


def measure(peers: list[str]) -> Measured:
    """Quality once, speed in rounds: every round runs each peer once."""
    maker = [environments.python("tools"), str(HERE / "photos.py"), str(HOME / "photos")]
    seen = Measured(subprocess.run(maker, check=True, capture_output=True, text=True).stdout.splitlines())
    print("\n".join(seen.photos), flush=True)
    for peer in peers:
        prepare(peer, "jpeg")
    wanted = wanted_crops()
    truth = reference(wanted)
    seen.decibels = {peer: quality(peer, wanted, truth) for peer in peers}
    for variant in VARIANTS:
        able = [peer for peer in peers if variant != "raw256" or peer in RAW]
        seen.runs[variant] = {peer: [] for peer in able}
        for peer in able:
            prepare(peer, variant)
        for number in range(ROUNDS):
            for peer in able:
                run = speed(peer, variant)
                seen.runs[variant][peer].append(run)
                print(
                    f"{variant} round {number + 1}: {peer} {run.images_per_second:.0f} images/s, "
                    f"{run.cpu_per_1000:.2f} CPU s a 1,000, others took {run.others:.0%}",
                    flush=True,
                )
    return seen


def results(seen: Measured) -> list[Result]:
    """Ours against each peer, as ratios of time."""
    rows = []
    for variant, what in VARIANTS.items():
        runs = seen.runs[variant]
        ours = seen.fastest(variant, OURS)
        rivals = [peer for peer in runs if peer != OURS]
        speeds = {peer: seen.fastest(variant, peer).images_per_second for peer in rivals}
        careful = [peer for peer in rivals if seen.decibels[peer][1] >= ANTIALIASED]
        goals = {"ffcv": "<= 0.33" if variant == "jpeg" else "< 1"}
        if variant == "jpeg":
            for group, goal in ((rivals, "<= 0.56, the fastest"), (careful, "<= 0.43, the fastest antialiased")):
                if group:
                    goals.setdefault(max(group, key=speeds.__getitem__), goal)
        for peer in sorted(rivals, key=speeds.__getitem__, reverse=True):
            costs = seen.cheapest(variant, OURS) / seen.cheapest(variant, peer)
            details = f"images/s: {speeds[peer]:.0f}, here {ours.images_per_second:.0f}; CPU time {costs:.2f}"
            rows.append(Result(what, peer, speeds[peer] / ours.images_per_second, goals.get(peer, "< 1"), details))
    return rows


def main() -> list[Result]:
    """Measure what can be measured here."""
    peers = chosen()
    absent = [peer for peer in environments.peers() if peer not in peers]
    if absent:
        print(f"Left out: {', '.join(absent)}. --peers NAME,NAME or --peers all makes their environments.")
    if not peers or not environments.made("tools"):
        return []
    global LAST
    LAST = measure([OURS, *peers])
    return results(LAST)


def table(seen: Measured, variant: str) -> str:
    """All columns, the cheapest first."""
    runs = seen.runs[variant]
    base = seen.cheapest(variant, BASELINE) if BASELINE in runs else None
    lines = [
        "| loader | images/s | others took | CPU s per 1,000 | allows images/s | against torch + PIL | "
        "peak memory, MiB | without file pages | PSNR to PIL, dB: mean, 5 % | version |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for peer in sorted(runs, key=lambda one: seen.cheapest(variant, one)):
        run, cost = seen.fastest(variant, peer), seen.cheapest(variant, peer)
        mean, low = seen.decibels[peer]
        decibels = "-" if variant == "raw256" else "equal" if low == 100 else f"{mean:.1f}, {low:.1f}"
        ratio = f"{base / cost:.2f}" if base else "-"
        memory = f"{run.memory.total / 2**20:.0f} | {run.memory.own / 2**20:.0f}"
        lines.append(
            f"| {peer} | {run.images_per_second:.0f} | {run.others:.0%} | {cost:.2f} | "
            f"{seen.allowed(variant, peer):.0f} | {ratio} | {memory} | {decibels} | {run.version} |"
        )
    return "\n".join(lines)


def appendix(folder: Path) -> str:
    """What follows the ratios in results.md: a table a variant, and the plot, which is written beside it."""
    if not LAST.runs:
        return ""
    bars = [
        [
            peer,
            LAST.fastest("jpeg", peer).images_per_second,
            LAST.allowed("jpeg", peer),
            LAST.decibels[peer][1] >= ANTIALIASED,
        ]
        for peer in LAST.runs["jpeg"]
    ]
    plot = [environments.python("tools"), str(HERE / "plot.py"), str(folder / "speed.svg")]
    subprocess.run(plot, input=json.dumps(bars), text=True, check=True)
    parts = ["\n".join(f"- {line}" for line in LAST.photos), "![Images a second](speed.svg)"]
    if LAST.disturbed() > QUIET:
        parts.append(
            f"Others took up to {LAST.disturbed():.0%} of the machine during these runs: do not rely on images/s or "
            "their ratios. Compare CPU seconds, and what they allow."
        )
    parts += [f"## {what}\n\n{table(LAST, variant)}" for variant, what in VARIANTS.items()]
    return "\n\n".join(parts)
