"""What README.md and its neighbours say is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fastloader as fl

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ARCHITECTURE.md")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_targets_that_are_named_exist(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / page).read_text(), re.MULTILINE))
    assert named
    assert named <= targets


def test_every_field_is_in_the_readme():
    text = (ROOT / "README.md").read_text()
    names = [name for name in fl.__all__ if name.endswith("Field") and name != "Field"]
    assert len(names) > 5
    assert [name for name in names if f"`{name}`" not in text] == []
