"""``--import``: commands that know a user's own types."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastloader as fl
from fastloader.fields import BY_TYPE_ID

from .conftest import Run, command, write

MODULE = """
from dataclasses import dataclass
import fastloader as fl

class UpperDecoder(fl.Decoder):
    def __call__(self, metadata, read):
        return bytes(read()).decode("ascii").upper()

@fl.register_type(4_300_000)
@dataclass(frozen=True)
class UpperField(fl.Field):
    mark: str = "!"

    def encode(self, value):
        return fl.Encoded(payload=value)

    def get_decoder_class(self):
        return UpperDecoder
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A dataset with a type of the user's own, beside the module that registers it; nothing of it is imported."""
    before, modules, paths = dict(BY_TYPE_ID), set(sys.modules), list(sys.path)
    (tmp_path / "upper_fields.py").write_text(MODULE)
    space: dict[str, type[fl.Field]] = {"__name__": __name__}  # type: ignore[dict-item]
    exec(MODULE, space)
    write(tmp_path / "x.fld", [{"word": b"one"}, {"word": b"tw\xff"}], {"word": space["UpperField"]()})
    BY_TYPE_ID.clear()
    BY_TYPE_ID.update(before)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "x.fld"
    BY_TYPE_ID.clear()
    BY_TYPE_ID.update(before)
    for name in set(sys.modules) - modules:
        if "upper_fields" in name:
            del sys.modules[name]
    sys.path[:] = paths


@pytest.mark.parametrize("module", ["upper_fields", "upper_fields.py", "./upper_fields.py"])
def test_every_command_knows_the_types_of_an_imported_module(run: Run, own: Path, module: str) -> None:
    assert "UpperField(mark='!')" not in run("info", own).stdout
    assert "UpperField(mark='!')" in run("--import", module, "info", own).stdout
    assert json.loads(run("--import", module, "cat", own, 0, "--json").stdout)["fields"]["word"]["value"] == "ONE"
    result = run("--import", module, "verify", "--decode", own)
    assert (result.exit_code, result.stderr) == (1, "")
    assert ": sample 1, field 'word': does not decode: " in result.stdout


def test_the_installed_command_finds_modules_of_the_current_folder(own: Path) -> None:
    program = "import sys; sys.path.pop(0); from fastloader.cli import main; main(prog_name='fastloader')"
    argv = [sys.executable, "-c", program, "--import", "upper_fields", "cat", own.name, "0"]
    done = subprocess.run(argv, cwd=own.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"ONE"' in done.stdout


def test_several_modules_are_imported_in_order(own: Path) -> None:
    (own.parent / "first.py").write_text("import sys; sys.stderr.write('first ')")
    (own.parent / "json.py").write_text("import sys; sys.stderr.write('second')")  # not the one of Python
    argv = command("--import", "first.py", "--import", "json.py", "info", "--json", own)
    done = subprocess.run(argv, cwd=own.parent / "..", capture_output=True, text=True, check=False)
    assert (done.returncode, "No such file" in done.stderr) == (2, True)
    argv = command("--import", own.parent / "first.py", "--import", own.parent / "json.py", "info", "--json", own)
    done = subprocess.run(argv, cwd=own.parent / "..", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "first second")
    assert json.loads(done.stdout)["samples"] == 2


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("nowhere.py", "FileNotFoundError: "),
        ("broken.py", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_can_not_be_imported_is_one_line_and_status_2(
    run: Run, own: Path, module: str, reason: str
) -> None:
    Path("broken.py").write_text("1 / 0")
    result = run("--import", module, "info", own)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"fastloader: can't import {module}: {reason}")
    assert len(result.stderr.splitlines()) == 1
