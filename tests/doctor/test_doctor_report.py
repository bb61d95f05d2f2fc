"""The report: one file that needs nothing, and in which hostile names stay text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doctor.findings_by_hand import disk, findings, loaded, network, work

from fastloader.doctor import diagnose
from fastloader.doctor.findings import Consumption, Findings
from fastloader.doctor.plots import Bar, bars, curves, stacked
from fastloader.doctor.report import page

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\x00\x1b[2J\udcff"
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "section", "h1", "h2", "h3", "p", "span", "ul",
    "li", "i", "div", "table", "thead", "tbody", "tr", "th", "td", "svg", "text", "rect", "line", "circle", "polyline",
}  # fmt: skip


class Seen(HTMLParser):
    """The tags and words of a page, with a check that tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words = ""
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def seen(found: Findings) -> tuple[str, Seen]:
    """The page of findings, gone through."""
    made = page(found, diagnose(found))
    parser = Seen()
    parser.feed(made)
    parser.close()
    assert parser.open == []
    assert parser.tags <= ALLOWED
    assert not [name for name, _ in parser.attributes if name.startswith("on") or name in ("href", "src")]
    for picture in re.findall(r"<svg.*?</svg>", made, re.DOTALL):
        ET.fromstring(picture)
    return made, parser


LOCAL = findings(with_consumer=loaded(500), consumption=Consumption(0.5, "train:step, measured 9 times"))
FAR = findings(disk=None, hot=None, cold=loaded(90, "I/O-bound"), network=network())


@pytest.mark.parametrize("found", [LOCAL, FAR, findings(), findings(disk=disk(1e8), num_bytes=10**9)])
def test_it_needs_nothing_from_elsewhere_and_says_what_bounds(found: Findings) -> None:
    made, parser = seen(found)
    assert "prefers-color-scheme: dark" in made
    assert "url(" not in made
    assert "http://" not in made
    assert "https://" not in made
    made.encode()
    for verdict in diagnose(found).verdicts:
        assert f"{verdict.bound}-bound" in parser.words
        for cure in verdict.cures:
            assert cure in parser.words
    for title in ("Every part by itself", "The machine", "The disk" if found.disk else "The network"):
        assert title in parser.words


def test_hostile_names_stay_text() -> None:
    field = work(HOSTILE, HOSTILE, 5e-3, has_operations=True, resize=1e-3, resize_to=(2, 2), resize_is_used=True)
    for changes in ({"hot": loaded(790, HOSTILE)}, {"disk": None, "network": network(), "hot": None}):
        found = findings(path=HOSTILE, fields=(field,), consumption=Consumption(1e-9, HOSTILE), **changes)
        made, parser = seen(found)
        made.encode()
        assert "<script" not in made
        assert "alert(1)" in parser.words
        assert "\\x00\\x1b[2J\\udcff" in parser.words
        assert "\x00" not in made


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.floats(0, 1e18), min_size=1, max_size=8), powers=st.booleans(),
    points=st.lists(st.tuples(st.integers(1, 99), st.floats(0, 1e15)), min_size=1, max_size=6),
)  # fmt: skip
def test_plots_are_pictures_whatever_the_numbers(
    values: list[float], powers: bool, points: list[tuple[float, float]]
) -> None:
    for made in (
        bars([Bar(HOSTILE, value, "said") for value in values], "t", powers=powers),
        stacked([("row", [("work", value) for value in values])], "t"),
        curves([("one", points), ("two", points)], "across", "up", "t"),
    ):
        if not made:
            continue
        picture = ET.fromstring(made)
        width = float(picture.attrib["viewBox"].split()[2])
        for rect in picture.iter("rect"):
            assert 0 <= float(rect.attrib["x"]) <= float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width
