"""The native module under AddressSanitizer and UndefinedBehaviorSanitizer: how it is built and how it is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import overlay

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "sanitize"
LARGEST_MB = 64
"""An allocation above this ends the process."""


def build() -> Path:
    """Build what has changed; returns the folder from which fastloader is to be imported."""
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    configure = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", "-DFASTLOADER_SANITIZE=ON"]
    configure += ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (configure, ["cmake", "--build", str(BUILD)]):
        done = subprocess.run(command, env=tools, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    (native,) = BUILD.glob("_native*.so")
    overlay.lay(BUILD / "overlay", native, ROOT / "src" / "fastloader")
    return BUILD / "overlay"


def _library(name: str) -> str:
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    asked = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = asked.stdout.strip()
    if not os.path.isabs(path):
        raise RuntimeError(f"{compiler} has no {name}; install the sanitizer libraries of gcc")
    return path


def environment(folder: Path) -> dict[str, str]:
    """Variables for a process that imports the sanitized module. It ends at the first report."""
    return {
        **os.environ,
        overlay.VARIABLE: str(folder),
        "LD_PRELOAD": " ".join(map(_library, ("libasan.so", "libubsan.so", "libstdc++.so"))),
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb={LARGEST_MB}",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m tests.bad_input`` with the sanitized module."""
    command = [sys.executable, "-m", "tests.bad_input", "--heap", "--spare-mb", "0", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(folder), capture_output=True, text=True, check=False)
