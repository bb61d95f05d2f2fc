"""The plots of the documentation show what the tables of benchmarks say."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def plotting():
    """The script that draws them."""
    sys.path.insert(0, str(ROOT / "scripts"))
    yield importlib.import_module("plot_performance")
    sys.path.remove(str(ROOT / "scripts"))


def words(path: Path) -> list[str]:
    """All that is written in a plot, in order."""
    elements = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()) for element in elements]


def test_the_plots_are_of_the_tables_as_they_are(plotting) -> None:
    kept = {path.stem: words(path) for path in (ROOT / "docs/explanation/plots").glob("*.svg")}
    assert kept.keys() == {plot.name for plot in (*plotting.plots(), plotting.timeline())}
    for plot in plotting.plots():
        for _, bars in plot.groups:
            assert len(bars) >= 3
            for bar in bars:
                assert bar.text in kept[plot.name], "the tables have changed: python scripts/plot_performance.py"
                assert bar.name.splitlines()[0] in kept[plot.name]


def test_the_timeline_is_of_the_steps_as_they_are(plotting) -> None:
    text = (ROOT / "docs/explanation/plots/timeline.svg").read_text()
    for _, strips in plotting.timeline().groups:
        assert strips[0].name == "tensors on the GPU"
        for strip in strips:
            assert all(begin + wait <= strip.end + 1e-9 for begin, wait in strip.waits)
            assert strip.name.splitlines()[0] in text
    pieces = sum(len(strip.waits) for _, strips in plotting.timeline().groups for strip in strips)
    drawn = len(re.findall(rf"fill: (?:{plotting.OURS}|{plotting.OTHERS}|{plotting.LIMIT})", text))
    strips = sum(len(strips) for _, strips in plotting.timeline().groups)
    assert abs(drawn - pieces - strips) <= strips, "the steps have changed: python scripts/plot_performance.py"


def test_plots_are_drawn_again_the_same_and_take_the_colour_of_their_page(plotting, tmp_path: Path) -> None:
    plot = plotting.cold()
    for name in ("once", "again"):
        plotting.draw(plot, tmp_path / f"{name}.svg")
    assert (tmp_path / "once.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()
    assert words(tmp_path / "once.svg") == words(ROOT / "docs/explanation/plots/cold.svg")
    text = (tmp_path / "once.svg").read_text()
    assert "currentColor" in text
    assert "prefers-color-scheme: dark" in text
    assert plotting.INK not in text
    assert re.search(r"href=.https?:", text) is None


def test_every_plot_is_on_the_page() -> None:
    page = (ROOT / "docs/explanation/performance.md").read_text()
    shown = set(re.findall(r"\]\(plots/(\w+)\.svg\)", page))
    assert shown == {path.stem for path in (ROOT / "docs/explanation/plots").glob("*.svg")}
