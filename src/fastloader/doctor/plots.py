"""Plots as inline SVG, without scripts: bars, stacked shares, curves. Colours are those of the page around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 760
LABEL = 150
"""Room for names at the left."""
ROW = 30
FURTHEST = 1e9
"""What is less than the largest value by more than this looks like no more."""
VALUE = 130
"""Room for numbers at the right."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its name, what is written behind it, and which colour it has."""

    name: str
    value: float
    said: str
    colour: str = "part"


def safe(words: str) -> str:
    """Text that stays text; what no page may hold is spelled out."""
    if not words.isprintable():
        words = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in words)
    return escape(words)


def svg(width: float, height: float, inner: Sequence[str], title: str) -> str:
    """A picture that grows with its place, and says what it shows to who can't see it."""
    said = safe(title)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{said}" '
        f'preserveAspectRatio="xMinYMin meet">{"".join(inner)}</svg>'
    )


def text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    """Words in a picture, whatever they are made of."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{safe(said)}</text>'


def bars(rows: Sequence[Bar], title: str, *, powers: bool = True) -> str:
    """Bars beneath each other; with ``powers``, on a scale of powers of ten where values are far apart."""
    values = [row.value for row in rows if row.value > 0 and math.isfinite(row.value)]
    if not values:
        return ""
    high = max(values)
    low = max(min(values), high / FURTHEST)
    logarithmic = powers and high / low > 20
    first = 10 ** math.floor(math.log10(low) - 0.3) if logarithmic else 0.0
    room = WIDTH - LABEL - VALUE
    inner = []
    if logarithmic:
        for power in range(round(math.log10(first)), math.floor(math.log10(high)) + 1):
            x = LABEL + room * (power - math.log10(first)) / (math.log10(high) - math.log10(first))
            inner.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{len(rows) * ROW}"/>')
            inner.append(text(x, len(rows) * ROW + 16, _power(power), "axis", "middle"))
    for number, row in enumerate(rows):
        y = number * ROW
        value = max(row.value, low if logarithmic else 0.0)
        share = (
            (math.log10(value) - math.log10(first)) / (math.log10(high) - math.log10(first))
            if logarithmic else value / high
        )  # fmt: skip
        length = max(2.0, room * min(share, 1.0))
        inner.append(text(LABEL - 10, y + 19, row.name, "name", "end"))
        inner.append(
            f'<rect class="{safe(row.colour)}" x="{LABEL}" y="{y + 6}" width="{length:.1f}" '
            f'height="{ROW - 12}" rx="3"/>'
        )
        inner.append(text(LABEL + length + 8, y + 19, row.said, "value"))
    return svg(WIDTH, len(rows) * ROW + (24 if logarithmic else 4), inner, title)


def _power(power: int) -> str:
    """A power of ten, short.

    >>> _power(0), _power(4), _power(6)
    ('1', '10k', '1M')
    """
    if power < 0:
        return f"{10**power:g}"
    return f"{10 ** (power % 3)}{['', 'k', 'M', 'G', 'T'][min(power // 3, 4)]}"


def stacked(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], title: str) -> str:
    """Shares of a whole, a row each: names of parts are classes of colours too."""
    room = WIDTH - LABEL - 10
    inner = []
    for number, (name, parts) in enumerate(rows):
        y, x = number * ROW, float(LABEL)
        whole = max(sum(value for _, value in parts), 1e-12)
        inner.append(text(LABEL - 10, y + 19, name, "name", "end"))
        for part, value in parts:
            length = room * value / whole
            if length < 0.5:
                continue
            kind = safe(part.replace(" ", "-"))
            inner.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y + 6}" width="{max(length - 1, 0.5):.1f}" height="{ROW - 12}"/>'
            )
            if length > 90:
                inner.append(text(x + 6, y + 19, f"{part} {value / whole:.0%}", "on"))
            x += length
    return svg(WIDTH, len(rows) * ROW, inner, title)


def curves(series: Sequence[tuple[str, Sequence[tuple[float, float]]]], across: str, up: str, title: str) -> str:
    """Values by how many were at work at the same time; both from 0, the first in steps of equal width."""
    places = sorted({x for _, points in series for x, _ in points})
    top = max((y for _, points in series for _, y in points), default=0.0)
    if not top or not places:
        return ""
    height, left, right = 220, 70, 150
    room = WIDTH - left - right

    def at(x: float, y: float) -> tuple[float, float]:
        step = places.index(x) / max(1, len(places) - 1)
        return left + room * step, 20 + (height - 20) * (1 - y / top)

    inner = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = at(places[0], part * top)[1]
        inner.append(f'<line class="grid" x1="{left}" x2="{left + room}" y1="{y:.1f}" y2="{y:.1f}"/>')
        inner.append(text(left - 8, y + 4, _short(part * top), "axis", "end"))
    for place in places:
        inner.append(text(at(place, 0)[0], height + 18, f"{place:g}", "axis", "middle"))
    inner.append(text(left + room / 2, height + 36, across, "axis", "middle"))
    inner.append(text(left - 60, 10, up, "axis"))
    for number, (name, points) in enumerate(series):
        found = [at(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in found)
        inner.append(f'<polyline class="curve c{number}" points="{path}"/>')
        inner += [f'<circle class="c{number}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in found]
        inner.append(text(found[-1][0] + 10, found[-1][1] + 4, name, f"value c{number}"))
    return svg(WIDTH, height + 44, inner, title)


def _short(value: float) -> str:
    for unit in ("", "k", "M", "G"):
        if abs(value) < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}T"
