from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fastloader as fl

from .conftest import Run, buffered, command, run_on_terminal, spoil_byte, write


def test_an_intact_dataset_gives_one_line_and_status_0(run: Run, everything: Path, shards: Path, empty: Path) -> None:
    size = fl.verify(everything).data_bytes
    result = run("verify", everything)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{everything}: 5 samples, {size / 1024:.1f} KiB of data: all good\n"
    assert ": 20 samples in 4 shards, " in run("verify", shards).stdout
    assert run("verify", empty).stdout == f"{empty}: 0 samples, 0 B of data: all good\n"


def test_every_problem_has_its_line_and_the_status_is_1(run: Run, damaged: Path, tmp_path: Path) -> None:
    reader = fl.open(damaged)
    payloads = reader.dataset.file(0).payloads(reader.field_names.index("sound"))
    assert payloads is not None
    twice = spoil_byte(damaged, tmp_path / "twice.fld", payloads.extent(1)[0])
    result = run("verify", twice)
    assert (result.exit_code, result.stderr) == (1, "")
    first, second, summary = result.stdout.splitlines()
    assert first.startswith(f"{twice}: sample 1, field 'sound': ")
    assert second.startswith(f"{twice}: sample 3, field 'text': ")
    assert summary.endswith(": damaged, 2 problems in 2 samples")


def test_many_datasets_are_all_checked_and_counted(run: Run, everything: Path, damaged: Path, numbers: Path) -> None:
    nowhere = damaged.with_name("nowhere.fld")
    result = run("verify", damaged, nowhere, everything, numbers)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "2 of 4 datasets all good, 1 damaged, 1 not checked"
    assert result.stderr == f"fastloader: {nowhere}: there is no such file or folder; check the path\n"
    assert f"{numbers}: 60 samples" in result.stdout


def test_a_dataset_that_is_not_there_is_status_2(run: Run, everything: Path, tmp_path: Path) -> None:
    assert run("verify", tmp_path / "nowhere.fld").exit_code == 2
    assert run("verify", everything, tmp_path / "nowhere.fld").exit_code == 2
    assert run("verify").exit_code == 2


def test_what_can_not_be_opened_is_damaged(run: Run, everything: Path, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no dataset")
    folder = tmp_path / "folder"
    folder.mkdir()
    header = spoil_byte(everything, tmp_path / "x.fld", 30)
    for path, what in ((text, "is no .fld file"), (folder, "is a folder without manifest.json"), (header, "crc32c")):
        result = run("verify", path)
        assert (result.exit_code, result.stderr) == (1, "")
        problem, summary = result.stdout.splitlines()
        assert problem.startswith(f"{path}: ")
        assert what in problem
        assert summary == f"{path}: damaged, can't be opened"
        assert json.loads(run("verify", path, "--json").stdout)["ok"] is False


def test_a_lost_shard_is_damage_to_every_command(run: Run, tmp_path: Path) -> None:
    samples = [{"data": bytes(3000)} for _ in range(20)]
    path = write(tmp_path / "x.fld", samples, {"data": fl.BytesField()}, shard_size=16384, page_size=4096)
    sorted(path.glob("*.fld"))[1].unlink()
    result = run("verify", path)
    assert result.exit_code == 1
    assert "are lost" in result.stdout
    for args in (("info",), ("ls",), ("cat", 6)):
        failed = run(args[0], path, *args[1:])
        assert failed.exit_code == 1
        assert failed.stderr.startswith(f"fastloader: {path}")


def test_only_decode_finds_what_was_stored_broken(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fl.JSONField, "prepare", lambda self, value: value)
    path = write(tmp_path / "x.fld", [[b"[1]"], [b"[1"]], {"j": fl.JSONField()})
    assert run("verify", path).exit_code == 0
    result = run("verify", path, "--decode")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{path}: sample 1, field 'j': does not decode")


def test_json_has_an_object_a_dataset(run: Run, everything: Path, damaged: Path) -> None:
    result = run("verify", "--json", everything, damaged)
    assert result.exit_code == 1
    good, bad = (json.loads(line) for line in result.stdout.splitlines())
    assert (good["path"], good["ok"], good["samples"], good["shards"], good["problems"]) == (
        str(everything), True, 5, 1, [],
    )  # fmt: skip
    assert (bad["ok"], bad["bad_samples"], len(bad["problems"])) == (False, [3], 1)
    problem = bad["problems"][0]
    assert (problem["path"], problem["sample"], problem["field"]) == (str(damaged), 3, "text")
    assert "crc32c" in problem["message"]


def test_quiet_tells_of_damage_only(run: Run, everything: Path, damaged: Path) -> None:
    result = run("verify", "--quiet", everything)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    result = run("verify", "-q", everything, damaged)
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"{damaged}: sample 3, field 'text': ")
    assert json.loads(run("verify", "-q", "--json", everything, damaged).stdout)["path"] == str(damaged)


@pytest.mark.parametrize("option", ["-j", "--jobs"])
def test_jobs_is_the_number_of_threads(
    run: Run, everything: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    used = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers: int, *args: Any) -> None:
            used.append(workers)
            super().__init__(workers, *args)

    monkeypatch.setattr(sys.modules["fastloader.verification"], "ThreadPoolExecutor", Pool)
    assert run("verify", everything, option, 3).exit_code == 0
    assert run("verify", everything, option, 0).exit_code == 0
    assert used == [3]
    assert run("verify", everything, option, -1).exit_code == 2


def test_hostile_names_are_escaped_in_problems(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a\x1b[2Jb.fld", [[b"x" * 100]], {"\x1b[31mred": fl.BytesField()})
    payloads = fl.open(path).dataset.file(0).payloads(0)
    assert payloads is not None
    spoil_byte(path, path, payloads.extent(0)[0])
    result = run("verify", path)
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert r"a\x1b[2Jb.fld: sample 0, field '\x1b[31mred': " in result.stdout


_WITHOUT_DELAY = """
import sys, fastloader.progress
fastloader.progress.DELAY = -1.0
from fastloader.cli import main
main(sys.argv[1:], prog_name="fastloader")
"""


def test_a_terminal_gets_a_progress_bar_unless_quiet(everything: Path) -> None:
    argv = [sys.executable, "-c", _WITHOUT_DELAY, "verify", str(everything)]
    status, shown = run_on_terminal(argv)
    assert status == 0
    assert "verifying" in shown
    assert shown.endswith(": all good\n")
    assert run_on_terminal([*argv, "--quiet"]) == (0, "")


def test_ctrl_c_ends_it_quietly_with_status_130(everything: Path, large: Path) -> None:
    # The first dataset's line says that the second is under way; it takes long enough to be caught in the middle.
    argv = command("verify", "--decode", everything, large, large, large)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().endswith(b"all good\n")
        process.send_signal(signal.SIGINT)
        assert b"4 of 4" not in process.stdout.read()
        assert process.stderr.read() == b""
    assert process.returncode == 130


def test_a_type_that_nobody_knows_is_not_decoded_and_no_damage(run: Run, unregistered: Path) -> None:
    message = "not decoded (type id 4321 is not registered; use --import)"
    result = run("verify", "--decode", unregistered)
    assert result.exit_code == 0
    assert result.stderr == f"fastloader: {unregistered}: field 'foreign': {message}\n"
    assert result.stdout.endswith(": all good\n")
    told = json.loads(run("verify", "--decode", "--json", unregistered).stdout)
    assert (told["ok"], told["problems"]) == (True, [])
    assert told["not_decoded"] == [{"field": "foreign", "type_id": 4321, "message": message}]
    plain = run("verify", unregistered)
    assert (plain.exit_code, plain.stderr) == (0, "")
    assert json.loads(run("verify", "--json", unregistered).stdout)["not_decoded"] == []
