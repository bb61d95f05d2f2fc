"""What README.md and its neighbours say is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastloader as fl

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ARCHITECTURE.md")


def test_the_program_in_the_readme_runs_and_prints_what_its_comment_says(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (promised,) = re.findall(r"print\(.*\)  # (.*)", program)
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [promised] * 4


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
