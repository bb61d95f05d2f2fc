"""Ray in a process of its own: a cluster of several nodes, which starts slowly and must end with the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APART = Path(__file__).with_name("ray_apart.py")


@pytest.mark.timeout(1800)  # on a busy machine too
def test_ray(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        f"--basetemp={tmp_path / 'a'}",
    ]
    done = subprocess.run([*words, APART], cwd=APART.parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout
