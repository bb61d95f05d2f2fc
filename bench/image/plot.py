"""Draws images a second: ``python plot.py OUT.svg``, from JSON ``[[loader, images/s, allowed, antialiased], ...]``."""

from __future__ import annotations

import json
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.fonttype"] = "none"  # letters stay letters: smaller, and searchable
matplotlib.rcParams["svg.hashsalt"] = "fastloader"
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

ANTIALIASED, OTHER = "#2a6f97", "#c9a227"


def main() -> None:
    """Bars, the fastest on top."""
    bars = sorted(json.load(sys.stdin), key=lambda bar: bar[2])
    names, speeds, allowed, careful = zip(*bars, strict=True)
    figure, axes = plt.subplots(figsize=(8, 0.42 * len(bars) + 1.2), layout="constrained")
    bound = axes.barh(names, allowed, height=0.8, color="none", edgecolor="#888888")
    axes.barh(names, speeds, height=0.5, color=[ANTIALIASED if one else OTHER for one in careful])
    axes.bar_label(bound, fmt="%.0f", padding=3)
    axes.set_xlabel("images/s: JPEG, RandomResizedCrop 224, flip; batch 64, 2 workers, in memory")
    axes.spines[["top", "right"]].set_visible(False)
    keys = [
        Patch(color=ANTIALIASED, label="measured, antialiased"),
        Patch(color=OTHER, label="measured, not antialiased"),
        Patch(facecolor="none", edgecolor="#888888", label="what the CPU time allows"),
    ]
    axes.legend(handles=keys, loc="lower right")
    figure.savefig(sys.argv[1], metadata={"Date": None})


if __name__ == "__main__":
    main()
