"""TensorFlow and JAX in a process of their own: JAX objects to every fork that follows, in whatever test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APART = Path(__file__).with_name("frameworks_apart.py")


@pytest.mark.timeout(1800)  # on a busy machine too
def test_tensorflow_and_jax(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'apart'}",
        APART,
    ]
    done = subprocess.run(command, cwd=APART.parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout
