"""Without Ray, all that needs it says how to get it, and all else works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CURE = 'Ray is not installed; pip install "fastloader[ray]" brings it'


def without(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code where Ray can't be imported."""
    code = f"import sys; sys.modules['ray'] = None; {code}"
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "code",
    [
        "import fastloader.ray",
        "from fastloader.cli import main; main(['create', '--engine', 'ray', '-s', '1M', 'x.fld', 'in'])",
        "from fastloader.cli import main; main(['convert', '--engine', 'ray', '--shard-size', '1M', 'in', 'x.fld'])",
    ],
)
def test_the_cure_is_told(tmp_path: Path, code: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(b"a")
    done = without(code, tmp_path)
    assert done.returncode != 0
    assert CURE in done.stderr
    assert os.listdir(tmp_path) == ["in"]


def test_neither_the_package_nor_its_loader_imports_ray(tmp_path: Path) -> None:
    done = without("import fastloader as fl; fl.DataLoader; import fastloader.simulation", tmp_path)
    assert done.returncode == 0, done.stderr
    code = "import sys, fastloader as fl; fl.DataLoader; import fastloader.cli.create; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_ray_client_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    words = ["create", "--engine", "ray", "--address", "ray://head:10001", "-s", "1M", "x.fld", "in"]
    done = subprocess.run(
        [sys.executable, "-m", "fastloader", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "run this on a machine of the cluster, and give host:port" in done.stderr
    assert os.listdir(tmp_path) == ["in"]
