"""The scripts that set up a machine, on machines that lack something."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
LIBRARIES = {
    "jpeg": "libjpeg-dev",
    "png": "libpng-dev",
    "zstd": "libzstd-dev",
    "lz4": "liblz4-dev",
    "uring": "liburing-dev",
    "webp": "libwebp-dev",
}


@pytest.fixture
def machine(tmp_path):
    """A folder of programs that are all the scripts find, besides the plain ones of any system."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "cat", "date", "dirname", "mkdir", "mktemp", "rm", "sed", "tail"):
        (programs / name).symlink_to(shutil.which(name))
    return programs


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run(machine: Path, script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("CXX", "PYTHONPATH")}
    command = [str(SCRIPTS / script), *map(str, arguments)]
    return subprocess.run(
        command, env={**environment, "PATH": str(machine)}, cwd=machine.parent, capture_output=True, text=True
    )


def compiler_without(machine: Path, *libraries: str) -> None:
    """A compiler that fails to link these, unless a package of theirs has been installed since."""
    cases = "".join(
        f'*" -l{name} "*) [ -e {shlex.quote(f"{machine}/{LIBRARIES[name]}")} ] || exit 1 ;;\n' for name in libraries
    )
    program(machine, "c++", f'cat >/dev/null\ncase " $* " in\n{cases}esac')


def apt_that_installs(machine: Path) -> None:
    """Leaves a file named like each package, and its command lines in ``apt.calls``."""
    program(
        machine, "apt-get",
        f'echo "$DEBIAN_FRONTEND apt-get $*" >>{machine.parent}/apt.calls\n'
        f'[ "$1" = install ] || exit 0\nfor package; do : >"{machine}/$package"; done',
    )  # fmt: skip


def test_a_complete_machine_is_left_alone(machine):
    compiler_without(machine)
    apt_that_installs(machine)
    result = run(machine, "system_packages", sys.executable)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not (machine.parent / "apt.calls").exists()


def test_an_ordinary_user_gets_the_command_that_installs_what_is_missing(machine):
    compiler_without(machine, "jpeg", "lz4")
    apt_that_installs(machine)
    program(machine, "id", "echo 1000")
    result = run(machine, "system_packages", sys.executable)
    assert result.returncode == 1
    assert "Missing: libjpeg, lz4." in result.stderr
    assert (
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends libjpeg-dev liblz4-dev\n"
        in result.stderr
    )
    assert not (machine.parent / "apt.calls").exists()


def test_root_gets_what_is_missing_installed(machine):
    compiler_without(machine, "png", "zstd")
    apt_that_installs(machine)
    program(machine, "id", "echo 0")
    result = run(machine, "system_packages", sys.executable)
    assert result.returncode == 0, result.stderr
    assert (machine.parent / "apt.calls").read_text().splitlines() == [
        "noninteractive apt-get update",
        "noninteractive apt-get install -y --no-install-recommends libpng-dev libzstd-dev",
    ]


def test_what_is_only_useful_is_installed_by_root_and_mentioned_to_others(machine):
    compiler_without(machine, "uring", "webp")
    apt_that_installs(machine)
    program(machine, "id", "echo 1000")
    result = run(machine, "system_packages", sys.executable)
    assert result.returncode == 0
    assert result.stderr.startswith("Useful but not needed: liburing-dev libwebp-dev (")
    assert not (machine.parent / "apt.calls").exists()
    program(machine, "id", "echo 0")
    assert run(machine, "system_packages", sys.executable).returncode == 0
    assert "install -y --no-install-recommends liburing-dev libwebp-dev" in (machine.parent / "apt.calls").read_text()


def test_what_is_only_useful_holds_nobody_up(machine):
    compiler_without(machine, "uring")
    program(machine, "id", "echo 0")
    program(machine, "apt-get", "exit 100")
    assert run(machine, "system_packages", sys.executable).returncode == 0


def test_programs_that_only_tests_need_are_asked_for_by_tests_alone(machine):
    compiler_without(machine)
    apt_that_installs(machine)
    program(machine, "sox", "exit 0")
    program(machine, "id", "echo 1000")
    assert run(machine, "system_packages", sys.executable).returncode == 0
    result = run(machine, "system_packages", sys.executable, "tests")
    assert result.returncode == 1
    assert "Missing: chromium, ffmpeg, espeak-ng, npm, FUSE, OpenCV." in result.stderr
    packages = "chromium ffmpeg espeak-ng npm fuse3 pkg-config libopencv-dev libturbojpeg0-dev"
    assert f"sudo apt-get install -y --no-install-recommends {packages}\n" in result.stderr
    for name in ("chromium", "ffmpeg", "sox", "espeak-ng", "npm", "fusermount3", "pkg-config"):
        program(machine, name, "exit 0")
    assert run(machine, "system_packages", sys.executable, "tests").returncode == 0


def test_a_failing_installation_shows_the_end_of_its_log(machine):
    compiler_without(machine, "png")
    program(machine, "apt-get", "echo 'E: no such mirror'; exit 100")
    program(machine, "id", "echo 0")
    result = run(machine, "system_packages", sys.executable)
    assert result.returncode == 1
    assert "E: no such mirror" in result.stdout
    assert "build/log/apt.log" in result.stdout


def test_an_installation_without_effect_is_an_error(machine):
    compiler_without(machine, "png")
    program(machine, "apt-get", "exit 0")
    program(machine, "id", "echo 0")
    result = run(machine, "system_packages", sys.executable)
    assert result.returncode == 1
    assert "Still missing after installing: libpng" in result.stderr


def test_without_a_compiler_the_libraries_are_asked_for_too(machine):
    apt_that_installs(machine)
    program(machine, "id", "echo 1000")
    result = run(machine, "system_packages", sys.executable)
    assert result.returncode == 1
    assert " ".join(["--no-install-recommends g++", *LIBRARIES.values()]) in result.stderr


def test_a_system_without_apt_is_told_what_is_missing(machine):
    compiler_without(machine, "jpeg")
    result = run(machine, "system_packages", sys.executable)
    assert result.returncode == 1
    assert "Missing: libjpeg. Install them with this system's package manager" in result.stderr


@pytest.mark.parametrize(("missing", "package"), [("ensurepip", "venv"), ("Python.h", "dev")])
@pytest.mark.parametrize("prefix", ["/usr", "/opt/python"])
def test_the_parts_debian_splits_from_its_python_are_named(machine, missing, package, prefix):
    compiler_without(machine)
    apt_that_installs(machine)
    program(machine, "id", "echo 1000")
    python = program(
        machine, "python3.11",
        f'case "$2" in *{missing}*) exit 1 ;; *base_prefix*) echo {prefix} ;; *version_info*) echo python3.11 ;; esac',
    )  # fmt: skip
    result = run(machine, "system_packages", python)
    assert result.returncode == 1
    if prefix == "/usr":
        assert f"--no-install-recommends python3.11-{package}\n" in result.stderr
    else:
        assert "make PYTHON=" in result.stderr
        assert "apt-get" not in result.stderr


def test_the_first_python_that_is_new_enough_is_found(machine):
    program(machine, "python3", "exit 1")
    program(machine, "python3.13", "exit 127")
    program(machine, "python3.12", f'exec {sys.executable} "$@"')
    result = run(machine, "find_python")
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).samefile(sys.executable)


def test_no_python_that_is_new_enough_is_an_error_that_says_how_to_name_one(machine):
    program(machine, "python3", "exit 1")
    result = run(machine, "find_python")
    assert (result.returncode, result.stdout) == (1, "")
    assert "make PYTHON=" in result.stderr


def test_the_python_asked_for_is_used_or_refused_never_replaced(machine):
    program(machine, "python3", f'exec {sys.executable} "$@"')
    old = program(machine, "python3.9", "exit 1")
    result = run(machine, "find_python", old)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"PYTHON={old} is no Python 3.11 or newer." in result.stderr


def test_a_step_that_works_is_one_line(machine, tmp_path):
    noisy = program(machine, "noisy", "echo noise")
    result = run(machine, "quietly", tmp_path / "log" / "step.log", "Doing it", noisy)
    assert result.returncode == 0
    assert result.stdout.startswith("Doing it ... done (")
    assert result.stdout.count("\n") == 1
    assert (tmp_path / "log" / "step.log").read_text() == "noise\n"
