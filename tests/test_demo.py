"""The demo, in small, as a newcomer runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fastloader as fl

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """Where the demo, started in this test, makes its temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("COLUMNS", "160")
    return folder


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(DEMO), *arguments], capture_output=True, text=True, timeout=300)


def test_demo_compares_the_two_ways_and_leaves_nothing_behind(temporary):
    result = demo("--samples", "60")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no terminal, so no bars
    for row in ("writing, best of 2", "loading, best of 3", "samples/s loaded", "size on disk"):
        (line,) = [line for line in result.stdout.splitlines() if row in line]
        assert line.rstrip(" │").endswith("x")
    (files,) = [line for line in result.stdout.splitlines() if "│ files " in line]
    assert [cell.strip() for cell in files.split("│")[2:5]] == ["180", "1", "180x"]
    assert "sound, text and labels are identical" in result.stdout
    assert list(temporary.iterdir()) == []


def test_demo_keeps_its_data_when_asked_and_says_what_to_try(temporary, tmp_path):
    kept = tmp_path / "kept"
    result = demo("--samples", "60", "--keep", str(kept))
    assert result.returncode == 0, result.stderr
    assert f"fastloader info {kept}/demo.fld" in result.stdout
    with fl.open(kept / "demo.fld") as reader:
        assert len(reader) == 60
        assert reader.field_names == ["image", "sound", "text", "label"]
        assert reader[0]["image"].shape == (288, 384, 3)
    assert len(list((kept / "files").rglob("*.jpg"))) == 60

    again = demo("--samples", "60", "--keep", str(kept))
    assert again.returncode != 0
    assert "exists already" in again.stderr
    assert (kept / "demo.fld").exists()


@pytest.mark.parametrize("keep", [False, True])
def test_interrupted_demo_cleans_up(temporary, tmp_path, keep):
    kept = tmp_path / "kept"
    arguments = ["--samples", "1000000", *(["--keep", str(kept)] if keep else [])]
    process = subprocess.Popen(
        [sys.executable, str(DEMO), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("1000000 samples")
        folder = tmp_path if keep else temporary
        while not any(folder.glob("*/files/*/*.json")) and process.poll() is None:
            pass  # until it is in the middle of writing
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "Traceback" not in errors
    assert list(temporary.iterdir()) == []
    assert not kept.exists()
