from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fastloader as fl
from fastloader.cli import bench
from fastloader.loader import advise

from .conftest import Run, buffered, command, run_on_terminal, spoil_payload


def test_a_table_by_field_and_advice_with_status_0(run: Run, everything: Path) -> None:
    result = run("bench", everything, "--batches", 6, "--batch-size", 2)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{everything}: 10 samples in 6 batches, 2.00 epochs, ")
    assert lines[0].endswith(" s, as it is in memory")
    told = {line.split()[0]: line for line in lines[1:] if line}
    assert told["speed"].endswith(" samples/s")
    assert {"bytes", "first", "CPUs", "threads", "consumer", "field"} <= set(told)
    names = fl.open(everything).field_names
    header = next(i for i, line in enumerate(lines) if line.startswith("field "))
    assert [line.split()[0] for line in lines[header + 1 : header + 1 + len(names)]] == names
    assert lines[header + 1 + len(names)] == ""
    assert lines[-1]


def test_json_has_the_loaders_statistics_and_the_advice_that_follows(run: Run, everything: Path) -> None:
    result = run("bench", everything, "--batches", 5, "--batch-size", 5, "--json", "--fields", "image,label", "-j", 3)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert list(told) == list(bench.Measured.__slots__)
    assert (told["path"], told["epochs"], told["interrupted"], told["cold"]) == (str(everything), 5.0, False, False)
    stats = told["stats"]
    assert (stats["batches"], stats["samples"], stats["threads"]["native"]) == (5, 25, 3)
    assert list(stats["fields"]) == ["image", "label"]
    assert told["advice"] == advise(stats)
    assert told["samples_per_second"] == pytest.approx(25 / told["seconds"])
    assert 0 < told["first_batch"] < told["seconds"]


def test_it_stops_when_the_time_is_over(run: Run, numbers: Path) -> None:
    told = json.loads(run("bench", numbers, "--seconds", 0.05, "--json").stdout)
    assert told["seconds"] >= 0.05
    assert told["epochs"] >= 1


def test_order_and_tuning_reach_the_loader(run: Run, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Watched(fl.DataLoader):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            made.append(self.options)

    monkeypatch.setattr("fastloader.loader.DataLoader", Watched)
    for order in ("sequential", "random", "quasi_random"):
        assert run("bench", shards, "--batches", 1, "--order", order, "--tune", "--batch-size", 7).exit_code == 0
        assert (made[-1].order, made[-1].auto_tune, made[-1].batch_size) == (order, True, 7)
    assert run("bench", shards, "--batches", 1, "--order", "zigzag").exit_code == 2


def test_cold_drops_every_file_first_and_loads_each_sample_once(
    run: Run, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[str] = []
    monkeypatch.setattr("fastloader.doctor.disk.forget", lambda path: dropped.append(path.name))
    monkeypatch.setattr("fastloader.doctor.disk.resident_bytes", lambda path: 0)
    result = run("bench", shards, "--cold", "--batch-size", 2, "--json", "--seconds", 60)
    told = json.loads(result.stdout)
    assert sorted(dropped) == sorted(path.name for path in shards.glob("*.fld"))
    assert (told["stats"]["samples"], told["epochs"], told["cold"]) == (20, 1.0, True)
    assert result.stderr == ""
    monkeypatch.setattr("fastloader.doctor.disk.resident_bytes", lambda path: path.stat().st_size // 2)
    assert f"{shards}: 50% of it stays in memory" in run("bench", shards, "--cold").stderr


def test_what_is_not_there_is_status_2(run: Run, everything: Path, empty: Path, tmp_path: Path) -> None:
    for args, message in (
        ((tmp_path / "nowhere.fld",), "there is no such file or folder"),
        ((tmp_path / "nowhere.fld", "--cold"), "there is no such file or folder"),
        ((everything, "--fields", "image,nope"), "no field 'nope'; there are image, depth"),
        ((empty,), "there are no samples to load"),
    ):
        result = run("bench", *args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr
    for wrong in (("--batch-size", 0), ("--workers", 0), ("--seconds", 0), ("--batches", 0)):
        assert run("bench", everything, *wrong).exit_code == 2


def test_damage_ends_it_with_status_1(run: Run, damaged: Path) -> None:
    result = run("bench", damaged, "--batches", 3)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "sample 3, field 'text'" in result.stderr
    assert run("bench", damaged, "--batches", 3, "--fields", "label,image").exit_code == 0


def test_a_type_that_nobody_knows_is_status_2(run: Run, unregistered: Path) -> None:
    assert run("bench", unregistered, "--batches", 1).exit_code == 2
    assert run("bench", unregistered, "--batches", 1, "--fields", "n").exit_code == 0


def test_a_terminal_gets_a_progress_bar_unless_quiet(everything: Path) -> None:
    program = (
        "import sys, fastloader.progress; fastloader.progress.DELAY = -1.0; from fastloader.cli import main;"
        "main(sys.argv[1:], prog_name='fastloader')"
    )
    argv = [sys.executable, "-c", program, "bench", str(everything), "--batches", "300"]
    status, shown = run_on_terminal(argv)
    assert status == 0
    assert "loading" in shown
    status, shown = run_on_terminal([*argv, "--quiet"])
    assert status == 0
    assert "loading" not in shown.split("\n\n")[0]


def test_ctrl_c_prints_what_was_measured_so_far(tmp_path: Path, everything: Path) -> None:
    # The decoder says when it runs, so the signal comes in the middle of loading.
    module = tmp_path / "loud.py"
    module.write_text(
        "import os\nimport fastloader.loader.runner as runner\nmade = runner.Counters.made\n"
        "def loud(self, laps):\n    made(self, laps)\n    os.write(2, b'made\\n')\nrunner.Counters.made = loud\n"
    )
    argv = command("--import", module, "bench", everything, "--seconds", 600, "--json")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(3):
            assert process.stderr.readline() == b"made\n"
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=300)[0]
    assert process.returncode == 130
    measured = json.loads(told)
    assert measured["interrupted"] is True
    assert measured["stats"]["samples"] >= 5


def test_hostile_names_are_escaped(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2Jb.fld"
    with fl.DatasetWriter(path, {"\x1b[31mred [bold]": fl.IntField()}) as writer:
        writer.write_many([[1], [2]])
    result = run("bench", path, "--batches", 1)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert r"\x1b[31mred [bold]" in result.stdout


def test_a_damaged_payload_of_another_field_is_not_read(run: Run, everything: Path, tmp_path: Path) -> None:
    spoiled = spoil_payload(everything, tmp_path / "spoiled.fld", 1, "sound")
    assert run("bench", spoiled, "--batches", 2, "--fields", "sound").exit_code == 1
    assert run("bench", spoiled, "--batches", 2, "--fields", "text").exit_code == 0
