"""Draw the plots of docs/explanation/performance.md from the tables of bench/: ``python scripts/plot_performance.py``.

They are SVG with letters that stay letters, and take their ink from the reader's colour scheme, light or dark.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PLOTS = ROOT / "docs" / "explanation" / "plots"

INK, OURS, OTHERS, LIMIT = "#010203", "#2f86b8", "#98a2ad", "#d99a2b"
STYLE = "<style>svg { color: #24292f } @media (prefers-color-scheme: dark) { svg { color: #dfe2e7 } }</style>"
NAMES = {
    "tfdata": "tf.data, not antialiased", "tfdata_antialias": "tf.data, antialiased", "torchvision": "torchvision",
    "litdata": "LitData", "ffcv": "FFCV", "dali": "DALI", "torch_pil": "torch DataLoader + PIL", "spdl": "SPDL",
    "webdataset": "WebDataset", "streaming": "MosaicML Streaming", "s3torchconnector": "s3torchconnector",
}  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """A row of a plot: its name, what was measured, how that is written, and whose it is."""

    name: str
    value: float
    text: str
    colour: str = OTHERS


@dataclass(frozen=True)
class Plot:
    """Groups of bars, each with a title of its own, and what their length means."""

    name: str
    meaning: str
    groups: tuple[tuple[str, tuple[Bar, ...]], ...]


def rows(topic: str, heading: str | None = None) -> list[dict[str, str]]:
    """The first table of a topic's results, or the first one behind a heading."""
    text = (ROOT / "bench" / topic / "results.md").read_text()
    if heading is not None:
        text = text.split(f"\n## {heading}\n")[1]
    names, _, *lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()  # type: ignore[index]
    return [dict(zip(cells(names), cells(line), strict=True)) for line in lines]


def cells(line: str) -> list[str]:
    """Of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def number(text: str) -> float:
    """As it is written in tables."""
    return float(text.replace(",", ""))


def jpeg() -> Plot:
    """Images a second from JPEG files to batches."""
    bars = [
        Bar(NAMES.get(row["loader"], row["loader"]), number(row["images/s"]), f"{number(row['images/s']):,.0f}",
            OURS if row["loader"] == "fastloader" else OTHERS)
        for row in rows("image", "JPEG")
    ]  # fmt: skip
    bars.sort(key=lambda bar: -bar.value)
    return Plot("jpeg", "images/s, 2 workers", (("", tuple(bars)),))


def gpu() -> Plot:
    """How much of a GPU's own speed is left when it is fed from JPEG files."""
    groups: dict[str, list[Bar]] = {}
    for row in rows("gpu"):
        fed = row["fed by"].removesuffix(" (the ceiling)")
        colour = LIMIT if "tensors" in fed else OURS if "TorchLoader" in fed else OTHERS
        speed, share = number(row["images/s"]), number(row["of the ceiling"])
        bar = Bar(in_two_lines(fed), share, f"{share:.1%}  ({speed:,.0f}/s)", colour)
        groups.setdefault(row["model"], []).append(bar)
    return Plot(
        "gpu", "share of the speed on synthetic tensors", tuple((name, tuple(bars)) for name, bars in groups.items())
    )


def in_two_lines(fed: str) -> str:
    """How a model is fed, short enough for its place."""
    return re.sub(r" (\+ torchvision|decode)", r"\n\1", fed.replace("`", "").replace("'", '"'))


@dataclass(frozen=True)
class Strip:
    """What a GPU did, row by row: when it began to wait for data and how long, in seconds."""

    name: str
    colour: str
    end: float
    waits: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Timeline:
    """Strips by model."""

    name: str
    meaning: str
    groups: tuple[tuple[str, tuple[Strip, ...]], ...]


def timeline(seconds: float = 2.5, least: float = 1e-4) -> Timeline:
    """The first seconds of each way to feed a GPU; waits shorter than ``least`` could not be seen."""
    groups: dict[str, list[Strip]] = {}
    for line in json.loads((ROOT / "bench/gpu/timeline.json").read_text()):
        begin, waits = 0.0, []
        for wait, step in zip(line["waits_ms"], line["steps_ms"], strict=False):  # the last step has no end
            if wait / 1e3 >= least and begin < seconds:
                waits.append((begin, min(wait / 1e3, seconds - begin)))
            begin += step / 1e3
        way = line["way"]
        colour = LIMIT if way == "synthetic" else OURS if way.startswith("TorchLoader") else OTHERS
        fed = "tensors on the GPU" if way == "synthetic" else in_two_lines(way)
        model = line["model"].replace("resnet", "ResNet-")
        groups.setdefault(model, []).append(Strip(fed, colour, min(begin, seconds), tuple(waits)))
    return Timeline(
        "timeline", "seconds; gaps: the GPU waits", tuple((name, tuple(rows)) for name, rows in groups.items())
    )


def cold() -> Plot:
    """Megabytes a second of random reads from a file that is not in memory."""
    found: dict[str, list[Bar]] = {}
    for row in rows("loader"):
        what = re.fullmatch(r"cold (\S+ KB), io=(\w+)", row["what"])
        if what and row["against"].startswith("a bare io_uring"):
            bare, loader = map(number, re.fullmatch(r"MB/s: ([\d,]+), loader ([\d,]+)", row["details"]).groups())  # type: ignore[union-attr]
            bars = found.setdefault(what[1], [Bar("bare io_uring loop", bare, f"{bare:,.0f}", LIMIT)])
            bars.append(Bar(f'io="{what[2]}"', loader, f"{loader:,.0f}", OURS))
    return Plot("cold", "MB/s", tuple((f"payloads of {size}", tuple(bars)) for size, bars in found.items()))


def bucket() -> Plot:
    """CPU seconds of the client for a thousand samples from a bucket."""
    said = re.compile(r".*?CPU ([\d.]+) \+.*?; against .*?CPU ([\d.]+) \+")
    table = [(row["what"], row["against"], said.match(row["details"])) for row in rows("storage")]
    ours, theirs = {}, {}
    for what, against, costs in table:
        if costs and what.startswith(("quasi_random", "sequential")):
            ours.setdefault(what, float(costs[1]))
        if costs and what in ("quasi_random", "quasi_random, cached"):
            theirs.setdefault(against, float(costs[2]))
    bars = [Bar(f'order="{what}"', ours[what], f"{ours[what]:.3f}", OURS) for what in ("sequential", "quasi_random")]
    bars.append(
        Bar("obstore, bytes dropped", theirs["obstore, 8 MB objects"], f"{theirs['obstore, 8 MB objects']:.3f}", LIMIT)
    )
    peers = {name: cost for name, cost in theirs.items() if name in NAMES}
    bars += [Bar(NAMES[name], cost, f"{cost:.3f}") for name, cost in peers.items()]
    cached = [Bar('order="quasi_random"', ours["quasi_random, cached"], f"{ours['quasi_random, cached']:.3f}", OURS)]
    for name, cost in theirs.items():
        if name.endswith(", cached"):
            cached.append(Bar(NAMES[name.removesuffix(", cached")], cost, f"{cost:.3f}"))
    by_cost: Callable[[Bar], float] = lambda bar: bar.value  # noqa: E731
    groups = (
        ("the first epoch", tuple(sorted(bars, key=by_cost))),
        ("from the cache", tuple(sorted(cached, key=by_cost))),
    )
    return Plot("bucket", "CPU seconds for 1,000 samples of 101 KB", groups)


def plots() -> list[Plot]:
    """All that are bars."""
    return [jpeg(), gpu(), cold(), bucket()]


def draw(plot: Plot | Timeline, path: Path) -> None:
    """Bars or strips that lie, one group below the other."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    settings: dict[str, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": "fastloader", "font.family": "sans-serif", "font.size": 11,
        "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    }  # fmt: skip
    heights = [len(lying) for _, lying in plot.groups]
    row = 0.46 if any("\n" in one.name for _, lying in plot.groups for one in lying) else 0.34
    with plt.rc_context(settings):
        figure, several = plt.subplots(
            len(heights), 1, sharex=True, squeeze=False, height_ratios=heights, layout="constrained",
            figsize=(6.4, row * sum(heights) + 0.35 * len(heights) + 0.45),
        )  # fmt: skip
        for axes, (title, lying) in zip(several[:, 0], plot.groups, strict=True):
            if isinstance(plot, Plot):
                draw_bars(axes, lying, max(bar.value for _, bars in plot.groups for bar in bars))
            else:
                draw_strips(axes, lying)
            axes.set_yticks(range(len(lying)), [one.name for one in lying])
            axes.invert_yaxis()
            axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
        several[-1, 0].set_xlabel(plot.meaning)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    text = re.sub(r"<!--.*?-->\n?", "", path.read_text(), flags=re.DOTALL).replace(INK, "currentColor")
    text = re.sub(r"^ +", "", text, flags=re.MULTILINE)
    path.write_text(text.replace("<defs>", f"{STYLE}\n<defs>", 1))


def draw_bars(axes: Any, bars: Sequence[Bar], longest: float) -> None:
    """Each with its number at its end."""
    drawn = axes.barh(range(len(bars)), [bar.value for bar in bars], color=[bar.colour for bar in bars], height=0.72)
    axes.bar_label(drawn, [bar.text for bar in bars], padding=4)
    axes.set_xlim(0, longest * 1.22)


def draw_strips(axes: Any, strips: Sequence[Strip]) -> None:
    """Each without what was waited: gaps, through which the page shows."""
    for row, strip in enumerate(strips):
        ends = [0.0, *(begin + wait for begin, wait in strip.waits)]
        begins = [*(begin for begin, _ in strip.waits), strip.end]
        works = [(end, begin - end) for end, begin in zip(ends, begins, strict=True) if begin > end]
        axes.broken_barh(works, (row - 0.36, 0.72), color=strip.colour, linewidth=0)
    axes.set_xlim(0, max(strip.end for strip in strips))


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=PLOTS)
    folder = parser.parse_args().folder
    for plot in (*plots(), timeline()):
        draw(plot, folder / f"{plot.name}.svg")


if __name__ == "__main__":
    main()
