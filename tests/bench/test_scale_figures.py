"""The figures of docs/explanation/scale.md are those that bench/scale/figures.py writes: in form, as tried in small."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def figures(monkeypatch):
    for path in (ROOT / "bench", ROOT / "bench" / "scale"):
        monkeypatch.syspath_prepend(str(path))
    sys.modules.pop("figures", None)
    import figures

    yield figures
    sys.modules.pop("figures", None)


def form(text):
    """What is left of the figures when numbers, and the machine, are taken away."""
    text = re.sub(r"Machine: .*", "Machine", text)
    return re.sub(r"\d[\d,]*(\.\d+)?(e[+-]\d+)?", "N", text)


def test_the_page_has_what_the_script_would_write(figures):
    world = figures.World(shards=40, samples_per_shard=200, sample_bytes=20_000, ranks=4, batch_size=8)
    found = figures.render(world)
    page = figures.PAGE.read_text()
    written = page[page.index(figures.BEGIN) : page.index(figures.END) + len(figures.END)]
    assert form(found) == form(written)
    assert "| `quasi_random`, window N |" in form(written)
    whole = figures.World()
    assert f"{whole.shards:,} shards, {whole.ranks:,} ranks" in written
    assert whole.shards * whole.samples_per_shard == 10**9
    assert figures.written(page, written) == page
    assert figures.written(page, found) != page


def test_figures_have_three_digits_that_count(figures):
    assert [figures.number(value) for value in (0, 3, 0.012345, 1.2345, 99.951, 1234.5, 10**9)] == [
        "0", "3", "0.0123", "1.23", "100", "1,234", "1,000,000,000",
    ]  # fmt: skip
    assert figures.number(2.5e9, 1e9) == "2.5"
