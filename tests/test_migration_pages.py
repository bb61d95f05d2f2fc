"""Pages for those who come from other loaders: their programs and ours are run, and what they feed is compared.

Both halves are taken from the page: blocks marked ``py`` are theirs, those marked ``python`` ours. Theirs run first,
with the library itself, and leave the files that ours begin with. Both hand their batches to ``train`` and
``evaluate``, which keep them. What is shuffled and augmented agrees in its labels and shapes; what is evaluated agrees
in every value.
"""

from __future__ import annotations

import pickle
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from run_page import blocks, run

import fastloader as fl
from fastloader.cli import main

DOCS = Path(__file__).parents[1] / "docs" / "how-to"
PEERS = Path(sys.prefix) / "peers" / "bin" / "python"
"""The interpreter of an environment of its own: some of these libraries want other versions than ours do."""


@dataclass(frozen=True)
class Page:
    """Which interpreter runs the other half of a page, and of how many samples each pass consists."""

    own_environment: bool
    trained: int
    evaluated: int


PAGES = {
    "ffcv": Page(True, 60, 48),
    "webdataset": Page(True, 50, 50),
    "imagefolder": Page(True, 48, 24),
    "litdata": Page(True, 60, 61),
    "mosaicml": Page(True, 60, 60),
    "tfdata": Page(False, 60, 60),
    "barecat": Page(False, 20, 20),
}


@pytest.fixture(scope="module", params=PAGES)
def halves(request, tmp_path_factory):
    """The page's name, what both halves of it handed over, and the folder they ran in."""
    name = request.param
    page, folder = DOCS / f"migrate-from-{name}.md", tmp_path_factory.mktemp(name)
    if PAGES[name].own_environment and not PEERS.exists():
        pytest.skip(f"{PEERS} is missing; make setup brings it")
    python = PEERS if PAGES[name].own_environment else sys.executable
    options = ["--without-operators"] if PAGES[name].own_environment else []
    theirs = subprocess.run(
        [python, Path(__file__).with_name("run_page.py"), page, "py", folder / "theirs", *options],
        cwd=folder, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert theirs.returncode == 0, theirs.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return name, pickle.loads((folder / "theirs").read_bytes()), run(page, "python"), folder


def rows(calls):
    """Batches as samples: lists of their parts."""
    return [list(row) for call in calls for row in zip(*call, strict=True)]


def same(one, other):
    """Whether two values agree. Where pixels are normalised, one may subtract first and the other divide: the last bits
    of a float may differ, by far less than one step of a pixel.
    """
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    first, second = np.asarray(one), np.asarray(other)
    if first.dtype.kind == "f":
        return first.dtype == second.dtype and bool(np.allclose(first, second, rtol=1e-6, atol=1e-6))
    return (first.dtype.kind, first.shape) == (second.dtype.kind, second.shape) and bool((first == second).all())


def kinds(value):
    """What remains of a value that was drawn by chance."""
    return (np.asarray(value).shape, str(np.asarray(value).dtype)) if np.ndim(value) > 1 else repr(np.asarray(value))


def test_both_halves_train_on_the_same_samples(halves):
    name, theirs, ours, _ = halves
    wanted, found = ([tuple(map(kinds, row)) for row in rows(half["train"])] for half in (theirs, ours))
    assert len(wanted) == PAGES[name].trained
    assert sorted(found) == sorted(wanted)


def test_both_halves_evaluate_the_same_values_in_the_same_order(halves):
    name, theirs, ours, _ = halves
    wanted, found = rows(theirs["evaluate"]), rows(ours["evaluate"])
    assert len(found) == len(wanted) == PAGES[name].evaluated
    for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
        for part, (value, mine) in enumerate(zip(one, other, strict=True)):
            assert same(value, mine), f"sample {number}, part {part}: theirs {value!r}, ours {mine!r}"


def test_commands_do_what_the_page_shows(halves, monkeypatch):
    name, _, _, folder = halves
    monkeypatch.chdir(folder)
    commands = [
        (shlex.split(line.removeprefix("$ fastloader ")), block.partition(f"{line}\n")[2].partition("$ ")[0])
        for _, block in blocks(DOCS / f"migrate-from-{name}.md", "console")
        for line in block.splitlines()
        if line.startswith("$ fastloader ") and "://" not in line
    ]
    assert commands or name == "barecat"
    for arguments, shown in commands:
        result = CliRunner().invoke(main, [*arguments, "--dry-run"])
        assert result.exit_code == 0, result.output
        said = [line.rstrip() for line in result.stdout.splitlines()]
        assert [line for line in shown.splitlines() if line not in said] == []


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_is_there(name):
    text = (DOCS / f"migrate-from-{name}.md").read_text()
    for module, attribute in re.findall(r"`(fl|ops|fl\.ops|fl\.samplers)\.(\w+)", text):
        place = {"fl": fl, "fl.samplers": fl.samplers}.get(module, fl.ops)
        assert hasattr(place, attribute), f"{module}.{attribute}"


def test_every_page_has_both_halves():
    assert {path.stem.removeprefix("migrate-from-") for path in DOCS.glob("migrate-from-*.md")} == {*PAGES}
    for name in PAGES:
        page = DOCS / f"migrate-from-{name}.md"
        assert len(blocks(page, "py")) >= 2 <= len(blocks(page, "python")), name
