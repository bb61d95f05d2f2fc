"""What is published: a wheel that needs nothing of the machine it is installed on, and an sdist that builds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import fastloader

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.timeout(2400)  # on a busy machine too: the wheel is built here

USE = """
import json
from pathlib import Path

import numpy as np

import fastloader as fl

rng = np.random.default_rng(0)
image = np.add.outer(np.arange(40), np.arange(60))[:, :, None].repeat(3, axis=2).astype(np.uint8)
zeros = np.zeros(5000, np.float32)
fields = {
    "photo": fl.JPEGImageField(quality=95),
    "drawing": fl.PNGImageField(),
    "picture": fl.WebPImageField(lossless=True),
    "wave": fl.NDArrayField("float32", (5000,)),
    "text": fl.JSONField(),
}
with fl.DatasetWriter("set.fld", fields, compression={"wave": "zstd", "text": "lz4"}) as writer:
    for i in range(20):
        images = {"photo": image, "drawing": image + i, "picture": image}
        writer.write_sample({**images, "wave": zeros + i, "text": ["again"] * 500})
assert Path("set.fld").stat().st_size < 20 * zeros.nbytes, "nothing was compressed"
with fl.open("set.fld") as reader:
    for batch in fl.DataLoader(reader, 5, shuffle=False, num_workers=2):
        assert batch["photo"].shape == (5, 40, 60, 3)
        assert abs(batch["photo"][0].astype(int) - image).max() < 16
        assert batch["text"] == [["again"] * 500] * 5
    assert (reader[7]["drawing"] == image + 7).all()
    assert (reader[7]["picture"] == image).all()
    assert (reader[7]["wave"] == 7).all()
maps = Path("/proc/self/maps").read_text().splitlines()
print(json.dumps({"package": fl.__file__, "mapped": sorted({line.split()[-1] for line in maps if "/" in line})}))
"""


def run(*command: object, cwd: Path) -> str:
    """The command's output; nothing of this checkout is on its path."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    arguments = [str(part) for part in command]
    result = subprocess.run(arguments, cwd=cwd, env=env, capture_output=True, text=True, timeout=1200)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, ROOT / "scripts" / "build_wheel.py", folder, cwd=ROOT)
    (built,) = folder.iterdir()
    return built


@pytest.mark.long
def test_wheel_is_a_manylinux_wheel_with_its_libraries_and_no_sources(wheel):
    assert "manylinux" in wheel.name
    assert wheel.name.startswith(f"fastloader-{fastloader.__version__}-")
    names = zipfile.ZipFile(wheel).namelist()
    for library in ("libjpeg", "libpng", "libwebp", "libzstd", "liblz4"):
        assert [name for name in names if name.startswith(f"fastloader.libs/{library}")], names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fastloader", "fastloader.libs"}
    assert "fastloader/py.typed" in names
    assert not [name for name in names if name.endswith((".cc", ".h", ".a"))]


@pytest.mark.long
def test_wheel_works_in_a_clean_environment_with_its_own_libraries(wheel, tmp_path):
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", environment, cwd=empty)
    run(environment / "bin" / "python", "-m", "pip", "install", "--only-binary", ":all:", wheel, cwd=empty)

    seen = json.loads(run(environment / "bin" / "python", "-I", "-W", "error", "-c", USE, cwd=empty))
    assert Path(seen["package"]).is_relative_to(environment)
    for library in ("libjpeg", "libpng", "libwebp", "libzstd", "liblz4"):
        mapped = [Path(path) for path in seen["mapped"] if Path(path).name.startswith(library)]
        assert mapped, f"{library} is not in use: {seen['mapped']}"
        assert [path for path in mapped if path.parent.name != "fastloader.libs"] == []
        assert [path for path in mapped if not path.is_relative_to(environment)] == []

    assert fastloader.__version__ in run(environment / "bin" / "fastloader", "--version", cwd=empty)


@pytest.mark.long
def test_sdist_holds_all_that_a_build_needs_and_nothing_built(tmp_path):
    run(sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (sdist,) = tmp_path.glob("fastloader-*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    needed = [ROOT / "CMakeLists.txt", ROOT / "pyproject.toml", ROOT / "README.md", *ROOT.glob("native/**/*.[ch]*")]
    assert len(needed) > 10
    assert {str(path.relative_to(ROOT)) for path in needed} <= inside
    assert not [name for name in inside if name.endswith((".so", ".o")) or name.split("/")[0] in (".venv", "build")]
