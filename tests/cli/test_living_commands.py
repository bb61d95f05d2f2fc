"""``fastloader columns``, ``delete``, ``update``, ``log``, ``compact`` and ``gc``, as a new user would try them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastloader as fl


@pytest.fixture
def run(run: Any) -> Any:
    """The program, known to end with this status."""

    def invoke(*arguments: object, status: int = 0) -> Any:
        result = run(*arguments)
        assert result.exit_code == status, result.output
        return result

    return invoke


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.fld"
    fields = {"label": fl.IntField(), "text": fl.TextField()}
    with fl.DatasetWriter(path, fields, keys=True, shard_size=100) as writer:
        for i in range(12):
            writer.write_sample({"label": i % 4, "text": f"text {i}" * 3}, f"k{i}")
    return path


def labels(path: Path, **options: Any) -> list[int]:
    return [sample["label"] for sample in fl.open(path, **options)]


def test_samples_are_deleted(run: Any, train: Path) -> None:
    assert run("delete", train, "-n", "--where", "label == 3").stdout.split() == ["3", "7", "11"]
    assert "snapshot 2: 3 of 12 samples deleted" in run("delete", train, "--where", "label == 3").stdout
    assert json.loads(run("delete", train, "k0", "-i", "1", "--json").stdout)["samples"] == 7
    assert run("delete", train, "--where", "label in [1, 2]", "--where", "text != x", "-q").stdout == ""
    assert labels(train) == [0, 0]
    assert "nothing was changed" not in run("delete", train, "k4").stdout


def test_what_is_wrong_is_said(run: Any, train: Path) -> None:
    before = (train / "manifest.json").read_bytes()
    for arguments, said in (
        ((), "say which samples"), (("nobody",), "no sample has the key 'nobody'"), (("-i", "99"), "sample 99"),
        (("-w", "label"), "FIELD OP VALUE"), (("-w", "label < text"), "where, field 'label'"),
    ):  # fmt: skip
        result = run("delete", train, *arguments, status=2)
        assert said in result.stderr, result.stderr
    assert "there is no such" in run("log", train / "nowhere", status=2).stderr
    assert "say what to update" in run("update", train, status=2).stderr
    assert "FIELD=VALUE" in run("update", train, "-w", "label == 1", "-s", "label", status=2).stderr
    assert "no field 'x'" in run("columns", "rename", train, "x", "y", status=2).stderr
    assert (train / "manifest.json").read_bytes() == before


def test_columns_come_from_files(run: Any, train: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "scores.npy", np.arange(12) / 4)
    np.save(tmp_path / "boxes.npy", np.arange(24, dtype=np.float32).reshape(12, 2))
    (tmp_path / "lines.jsonl").write_text("\n".join(json.dumps({"n": i}) for i in range(12)))
    (tmp_path / "some.json").write_text(json.dumps({"k3": "drei", "k5": None}))
    run("columns", "add", train, "score", tmp_path / "scores.npy", "--type", "float")
    run("columns", "add", train, "box", tmp_path / "boxes.npy", "--type", "ndarray")
    run("columns", "add", train, "line", tmp_path / "lines.jsonl", "--type", "json", "--compression", "zstd")
    run("columns", "add", train, "word", tmp_path / "some.json", "--type", "bytes")
    assert "'text' is 'caption' now" in run("columns", "rename", train, "text", "caption").stdout
    run("columns", "drop", train, "label")
    sample = fl.open(train)["k3"]
    assert sample["box"].tolist() == [6, 7]
    del sample["box"]
    assert sample == {"caption": "text 3" * 3, "score": 0.75, "line": {"n": 3}, "word": b"drei"}
    (tmp_path / "x.txt").write_text("1")
    assert "give a .npy" in run("columns", "add", train, "x", tmp_path / "x.txt", "-t", "int", status=2).stderr
    short = run("columns", "add", train, "x", tmp_path / "some.json", "-t", "int", status=2)
    assert "field 'x'" in short.stderr


def test_samples_are_updated(run: Any, train: Path, tmp_path: Path) -> None:
    (tmp_path / "fix.json").write_text(json.dumps({"k1": {"label": 9}, "k2": {"text": "other"}}))
    (tmp_path / "fix.jsonl").write_text('{"index": 0, "label": 5}\n{"key": "k4", "label": null}\n')
    run("update", train, tmp_path / "fix.json")
    run("update", train, tmp_path / "fix.jsonl")
    run("update", train, "--where", "label == 3", "--set", "label=-3", "--set", "text=three")
    assert labels(train)[:8] == [5, 9, 2, -3, None, 1, 2, -3]
    assert fl.open(train)["k2"]["text"] == "other"
    assert fl.open(train)["k7"]["text"] == "three"


def test_the_log_lists_what_can_be_opened(run: Any, train: Path) -> None:
    run("delete", train, "k1")
    run("columns", "rename", train, "text", "a\x1b[31mb")
    lines = run("log", train).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["snapshot", "3", "2", "1"]
    assert "\x1b" not in "".join(lines)
    told = json.loads(run("log", train, "--json").stdout)
    assert [(one["snapshot"], one["samples"]) for one in told] == [(3, 11), (2, 11), (1, 12)]
    for one in told:
        assert len(fl.open(train, snapshot=one["id"])) == one["samples"]
    facts = json.loads(run("info", train, "--json").stdout)
    assert (facts["snapshot"], facts["samples"], facts["removed"]) == (3, 11, 1)
    assert "11 (1 row removed)" in run("info", train).stdout
    assert "all good" in run("verify", train).stdout
    assert len(run("ls", train).stdout.splitlines()) == 11


@pytest.mark.parametrize("by", ["snapshot", "id"])
def test_commands_read_what_was(run: Any, train: Path, by: str) -> None:
    run("delete", train, "k1")
    now, before = json.loads(run("log", train, "--json").stdout)
    old, new = ["--snapshot", str(before[by])], ["--snapshot", str(now[by])]
    for which, count in ((old, 12), (new, 11), ([], 11)):
        assert len(run("ls", train, "--keys", *which).stdout.splitlines()) == count
        assert json.loads(run("info", train, "--json", *which).stdout)["samples"] == count
        assert json.loads(run("verify", train, "--json", *which).stdout)["samples"] == count
    assert "k1" in run("cat", train, "k1", *old).stdout
    run("cat", train, "k1", status=2)
    run("cat", train, "k1", *new, status=2)
    for command in ("ls", "info", "verify"):
        assert "has no snapshot 77" in run(command, train, "--snapshot", "77", status=2).stderr
        assert "a number, or a name" in run(command, train, "--snapshot", "x", status=2).stderr


def test_room_is_given_back_when_asked_for(run: Any, train: Path) -> None:
    run("delete", train, "k1", "k2")
    assert "nothing to do" not in run("compact", train).stdout
    assert "nothing to do" in run("compact", train).stdout
    assert len(labels(train, snapshot=1)) == 12
    told = json.loads(run("gc", train, "--keep", "2", "--json").stdout)
    assert told["dropped"] == [1]
    assert json.loads(run("compact", train, "-s", "1MB", "--drop-snapshots", "--json").stdout)["bytes"] > 0
    assert len(json.loads(run("log", train, "--json").stdout)) == 1
    assert len(fl.open(train).dataset.shards) == 1
    assert len(labels(train)) == 10


def test_an_archive_has_a_log_too(run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.txt").write_text(name * 2000)
    run("create", tmp_path / "a.fld", folder)
    run("rm", tmp_path / "a.fld", "b.txt")
    told = json.loads(run("log", tmp_path / "a.fld", "--json").stdout)
    assert [(one["snapshot"], one["samples"]) for one in told] == [(2, 2), (1, 3)]
    assert "given back" in run("compact", tmp_path / "a.fld").stdout
    assert len(json.loads(run("log", tmp_path / "a.fld", "--json").stdout)) == 1
    assert "reshard" in run("compact", tmp_path / "a.fld", "-s", "1MB", status=2).stderr
