"""What all commands share: help, version, completion, and how they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

import fastloader as fl
from fastloader.cli import main

from .conftest import Run, buffered, command

COMMANDS = ["cat", "info", "ls", "verify"]


def test_version(run: Run) -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"fastloader {fl.__version__}\n")


def test_help_names_every_command_with_an_example(run: Run) -> None:
    for option in ("--help", "-h"):
        result = run(option)
        assert result.exit_code == 0
        for name in COMMANDS:
            assert f"fastloader {name} train.fld" in result.stdout
    assert run().exit_code == 2


REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
FOR_ALL = REFERENCE.split("## Datasets in stores\n")[1].split("\n## ")[0]


def section(name: str) -> str:
    """What the reference says of a command."""
    return REFERENCE.split(f"## fastloader {name}\n")[1].split("\n## ")[0]


def spellings(command: click.Command) -> set[str]:
    """Of all its options, and of those of its commands."""
    own = {one for option in command.params if isinstance(option, click.Option) for one in option.opts}
    return own.union(*(map(spellings, command.commands.values()) if isinstance(command, click.Group) else ()))


@pytest.mark.parametrize("name", sorted(main.commands))
def test_the_reference_describes_every_option(name: str) -> None:
    text = section(name)
    assert f"$ fastloader {name}" in text
    assert {one for one in spellings(main.commands[name]) if f"`{one}" not in text + FOR_ALL} == set()


@pytest.mark.parametrize("name", sorted(main.commands))
def test_the_reference_describes_no_option_that_is_not_there(name: str) -> None:
    told = {
        one for row in re.findall(r"^\| (`-.*?) \|", section(name), re.M) for one in re.findall(r"`(--?[\w-]+)", row)
    }
    assert told <= spellings(main.commands[name])


def test_the_reference_describes_the_options_of_all_commands() -> None:
    text = REFERENCE.split("\n## ")[0]
    for parameter in main.params:
        assert f"`fastloader {parameter.opts[0]}" in text


def test_help_loads_neither_rich_nor_the_commands_tools() -> None:
    code = (
        "import sys, fastloader.cli; print({'rich', 'fastloader.cli.glance', 'fastloader.cli.show'} & {*sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set()\n"


def test_the_module_runs_as_the_command() -> None:
    result = subprocess.run(command("--version"), capture_output=True, text=True, check=True)
    assert result.stdout == f"fastloader {fl.__version__}\n"
    usage = subprocess.run(command("--help"), capture_output=True, text=True, check=True).stdout
    assert usage.startswith("Usage: fastloader ")


def test_the_installed_command_is_this_program() -> None:
    (script,) = entry_points(group="console_scripts", name="fastloader")
    assert script.load() is main


def test_shells_can_complete_commands_and_options() -> None:
    environment = os.environ | {"_FASTLOADER_COMPLETE": "bash_complete"}
    for words, number, expected in (
        ("fastloader ver", "1", "plain,verify"),
        ("fastloader ls --li", "2", "plain,--limit"),
    ):
        result = subprocess.run(
            command(), env=environment | {"COMP_WORDS": words, "COMP_CWORD": number}, capture_output=True, text=True
        )
        assert result.stdout.splitlines() == [expected]


@pytest.mark.parametrize("args", [("info",), ("ls",), ("cat", "0"), ("verify",)], ids=lambda args: args[0])
def test_a_path_that_is_not_there_is_one_line_and_status_2(args: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "no\x1b[2Jwhere.fld"
    result = subprocess.run(command(args[0], path, *args[1:]), capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert (
        result.stderr
        == f"fastloader: {tmp_path}/no\\x1b[2Jwhere.fld: there is no such file or folder; check the path\n"
    )


@pytest.mark.parametrize("args", [("info",), ("ls",), ("cat", "0")], ids=lambda args: args[0])
def test_what_is_no_dataset_is_one_line_and_status_1(run: Run, args: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no dataset")
    result = run(args[0], path, *args[1:])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"fastloader: {path}: is no .fld file; ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("args", [("info",), ("ls",), ("cat", "0"), ("verify",)], ids=lambda args: args[0])
def test_a_file_one_may_not_read_is_status_2(
    run: Run, args: tuple[str, ...], numbers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("fastloader.formats.fld.file.MappedFile", refuse)
    result = run(args[0], numbers, *args[1:])
    assert result.exit_code == 2
    assert result.stderr == f"fastloader: {numbers}: Permission denied\n"


def test_an_interrupt_anywhere_is_status_130(run: Run, numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fl.DatasetReader, "__init__", interrupt)
    result = run("ls", numbers)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


def test_output_that_closed_before_the_first_line_is_no_error(numbers: Path) -> None:
    for args in (("info", numbers), ("ls", numbers), ("cat", numbers, 0), ("verify", numbers)):
        read, write = os.pipe()
        os.close(read)
        process = subprocess.run(command(*args), stdout=write, stderr=subprocess.PIPE, env=buffered())
        os.close(write)
        # A note that more samples follow is still due.
        assert [line for line in process.stderr.splitlines() if not line.startswith(b"fastloader: listed")] == []
        assert process.returncode == 141


def test_a_full_disk_is_one_line(numbers: Path) -> None:
    with open("/dev/full", "wb") as full:
        argv = command("ls", numbers, "--limit", 0)
        process = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, env=buffered())
    assert process.stderr == b"fastloader: No space left on device\n"
    assert process.returncode == 2


def test_a_command_is_imported_when_it_is_asked_for() -> None:
    code = """
import sys
from fastloader.cli import main
assert "create" in main.commands and "numpy" not in sys.modules
main.get_command(None, "create")
loaded = sorted(name for name in sys.modules if name.startswith("fastloader.cli."))
assert "fastloader.cli.create" in loaded and "fastloader.cli.view" not in loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_module_has_the_commands_that_are_said_of_it() -> None:
    assert len(main.commands) == len(list(main.commands)) > 25
    for name in main.commands:
        assert main.commands[name].name == name
    with pytest.raises(KeyError):
        main.commands["no-such"]


def test_create_imports_what_it_needs_alone():
    """A short command is mostly its imports."""
    code = "import sys, fastloader.cli.create, fastloader.archive.writer; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"fastloader.dataset", "fastloader.loader", "fastloader.reader"} & set(ran.stdout.split())
