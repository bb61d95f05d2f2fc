from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import fastloader as fl
from fastloader.cli import info
from fastloader.formats.fld.layout import Kind

from .conftest import FIELDS, HOSTILE_NAME, Run, command, run_on_terminal, spoil_byte, write


def test_info_names_kind_version_samples_size_pages_and_flags(run: Run, everything: Path) -> None:
    result = run("info", everything)
    assert result.exit_code == 0
    first, *lines = result.stdout.splitlines()
    assert first == f"{everything}: a file, format version 1.0"
    told = dict(line.split(None, 1) for line in lines[: lines.index("")])
    assert told["samples"] == "5"
    assert told["size"].endswith(f"({everything.stat().st_size:,} bytes)")
    assert told["pages"] == "1 of 2.0 MiB"
    assert told["keys"] == told["checksummed"] == told["compressed"] == "yes"
    assert "% padding" in told["data"]


def test_info_tabulates_every_field_with_its_options(run: Run, everything: Path) -> None:
    lines = run("info", everything).stdout.splitlines()
    rows = lines[lines.index("") + 2 :]
    assert [row.split()[0] for row in rows] == list(FIELDS)
    for row, field in zip(rows, FIELDS.values(), strict=True):
        assert row.endswith(repr(field))
    by_name = {row.split()[0]: row.split() for row in rows}
    assert by_name["image"][1:5] == ["IMAGE_JPEG", "11", "no", "none"]
    assert by_name["meta"][1:4] == ["JSON", "5", "1"]
    assert by_name["text"][4] == "zstd:9"


def test_on_a_narrow_terminal_options_come_in_a_table_of_their_own(everything: Path, tmp_path: Path) -> None:
    status, shown = run_on_terminal(command("info", everything))  # a hundred columns
    assert status == 0
    _, fields, options = shown.split("\n\n")
    assert "JPEGImageField" not in fields
    assert "IMAGE_JPEG" in fields
    assert "JPEGImageField(quality=" in options

    narrow = write(tmp_path / "narrow.fld", [{"n": 1}], {"n": fl.IntField()})
    _, shown = run_on_terminal(command("info", narrow))
    assert shown.count("\n\n") == 1
    assert "IntField()" in shown


def test_info_json_says_the_same_to_programs(run: Run, everything: Path) -> None:
    told = json.loads(run("info", everything, "--json").stdout)
    assert (told["path"], told["kind"], told["shards"]) == (str(everything), "file", 1)
    assert (told["samples"], told["version"], told["size"]) == (5, "1.0", everything.stat().st_size)
    assert (told["page_sizes"], told["pages"]) == ([2 << 20], 1)
    assert (told["keys"], told["checksummed"], told["compressed"]) == (True, True, True)
    fields = {field["name"]: field for field in told["fields"]}
    reader = fl.open(everything)
    file = reader.dataset.file(0)
    for name in ("text", "sound", "image", "meta"):
        number = reader.field_names.index(name)
        raw = sum(len(file.payload(number, i)) for i in range(5) if not file.is_missing(number, i))
        assert fields[name]["raw_bytes"] == raw
    assert fields["text"]["stored_bytes"] < fields["text"]["raw_bytes"] - 900
    assert fields["label"]["stored_bytes"] == 5 * 8
    assert (fields["meta"]["has_missing"], fields["meta"]["missing"]) == (True, 1)
    assert (fields["text"]["has_missing"], fields["text"]["missing"]) == (False, 0)
    stored = sum(field["stored_bytes"] for field in told["fields"] if field["name"] not in ("label", "weight"))
    assert told["padding"] == pytest.approx(1 - stored / told["data_bytes"])


def test_missing_values_are_counted_beyond_the_first_byte_of_the_table(run: Run, tmp_path: Path) -> None:
    samples = [{"n": None if i % 3 == 0 else i} for i in range(50)]
    path = write(tmp_path / "gaps.fld", samples, {"n": fl.IntField()})
    assert json.loads(run("info", path, "--json").stdout)["fields"][0]["missing"] == 17


def test_info_sums_over_the_shards_of_a_folder(run: Run, shards: Path) -> None:
    told = json.loads(run("info", shards, "--json").stdout)
    files = sorted(shards.glob("*.fld"))
    assert (told["kind"], told["shards"], told["samples"]) == ("folder", len(files), 20)
    assert len(files) > 1
    assert told["size"] == sum(file.stat().st_size for file in files)
    assert told["fields"][1]["raw_bytes"] == 20 * 3000
    assert f"{shards}: a folder of {len(files)} shards" in run("info", shards).stdout


def test_info_of_an_empty_dataset(run: Run, empty: Path) -> None:
    told = json.loads(run("info", empty, "--json").stdout)
    assert (told["samples"], told["padding"], told["data_bytes"]) == (0, 0.0, 0)
    assert all(field["stored_bytes"] == 0 for field in told["fields"])
    assert run("info", empty).exit_code == 0


def test_only_full_sums_up_huge_datasets(run: Run, everything: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "SUMMED_SAMPLES", 4)
    quick = run("info", everything, "--json")
    assert quick.exit_code == 0
    assert "--full" in quick.stderr
    told = json.loads(quick.stdout)
    assert told["padding"] is None
    fields = {field["name"]: field for field in told["fields"]}
    assert fields["text"]["stored_bytes"] is fields["text"]["raw_bytes"] is fields["meta"]["missing"] is None
    assert fields["meta"]["has_missing"]
    rows = {line.split()[0]: line for line in run("info", everything).stdout.splitlines()[10:]}
    assert " some " in rows["meta"]
    full = run("info", everything, "--json", "--full")
    assert full.stderr == ""
    assert all(field["stored_bytes"] is not None for field in json.loads(full.stdout)["fields"])


def test_a_field_of_an_unregistered_type_is_listed_with_its_stored_options(run: Run, unregistered: Path) -> None:
    result = run("info", unregistered)
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if line.startswith("foreign"))
    assert row.split()[1:4] == ["unregistered", "4321", "1"]
    assert row.endswith(r'{"secret":"\x1b[0m"}')
    told = json.loads(run("info", unregistered, "--json").stdout)["fields"]
    assert [field["registered"] for field in told] == [False, True]


def test_names_are_escaped_and_markup_in_them_means_nothing(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "x.fld", [], {HOSTILE_NAME: fl.IntField(), "[red]b": fl.IntField()})
    shown = run("info", path).stdout
    assert r"te\x1b[31mxt [bold]" in shown
    assert "[red]b" in shown
    assert "\x1b" not in shown


def test_info_tells_the_rest_when_a_table_is_damaged(run: Run, everything: Path, tmp_path: Path) -> None:
    number = list(FIELDS).index("text")
    offset = fl.open(everything).dataset.file(0).directory[Kind.EXTENTS, number].offset
    path = spoil_byte(everything, tmp_path / "x.fld", offset)
    result = run("info", path)
    assert result.exit_code == 1
    assert "JPEGImageField(quality=80" in result.stdout
    assert result.stderr.startswith(f"fastloader: {path}: field 'text': ")
    assert len(result.stderr.splitlines()) == 1


def test_on_a_terminal_the_table_keeps_to_its_width(everything: Path) -> None:
    status, shown = run_on_terminal(command("info", everything))
    assert status == 0
    table = shown.split("\n\n", 1)[1]
    assert "JPEGImageField(quality=80," in table
    plain = [line for line in table.splitlines() if "\x1b" not in line]
    assert len(plain) > len(FIELDS)
    assert all(len(line) <= 100 for line in plain)


def test_letters_the_terminal_lacks_do_not_fail(tmp_path: Path) -> None:
    path = write(tmp_path / "x.fld", [], {"größe": fl.IntField()})
    result = subprocess.run(
        command("info", path),
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        check=True,
    )
    assert rb"gr\xf6\xdfe" in result.stdout
