from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import fastloader as fl
from fastloader.fields import BY_TYPE_ID
from fastloader.formats.fld.layout import Kind

from .conftest import FIELDS, HOSTILE_KEY, HOSTILE_NAME, Run, buffered, command, run_on_terminal, spoil_byte, write


def test_a_line_tells_number_key_and_a_word_about_each_field(run: Run, everything: Path) -> None:
    result = run("ls", everything)
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert len(lines) == 5
    words = lines[4].split("  ")
    size = len(fl.open(everything).read_payload(4, "meta"))
    assert words == [
        "4", "e", "image=12x16x3", "depth=5x6x1 uint16", "pixels=2x3x3", "sound=float32[2,6]", "label=40", "weight=1.0",
        "text=12 B", f"meta={size} B",
    ]  # fmt: skip
    assert lines[2].endswith("meta=missing")


def test_hostile_keys_and_names_stay_on_their_line(run: Run, everything: Path, tmp_path: Path) -> None:
    assert run("ls", everything).stdout.splitlines()[1].startswith(r"1  new\nline\x1b[2J\x07  image=")
    path = write(tmp_path / "x.fld", [{HOSTILE_NAME: 1}], {HOSTILE_NAME: fl.IntField()})
    assert run("ls", path).stdout == "0  te\\x1b[31mxt [bold]=1\n"


def test_fifty_samples_are_listed_and_a_note_says_that_there_are_more(run: Run, numbers: Path) -> None:
    result = run("ls", numbers)
    lines = result.stdout.splitlines()
    assert len(lines) == 50
    assert lines[7] == " 7  n=7  square=49"
    assert result.stderr.splitlines() == [
        "fastloader: listed 50 of 60 samples; --start 50 goes on, --limit 0 lists all"
    ]


def test_start_and_limit_choose_the_samples(run: Run, numbers: Path) -> None:
    def listed(*options: object) -> list[int]:
        return [json.loads(line)["sample"] for line in run("ls", numbers, "--json", *options).stdout.splitlines()]

    assert listed("--start", 58) == [58, 59]
    assert listed("--start", -2) == [58, 59]
    assert listed("--start", -100, "--limit", 2) == [0, 1]
    assert listed("--start", 10, "--limit", 3) == [10, 11, 12]
    assert listed("--limit", 0) == list(range(60))


def test_nothing_is_noted_when_the_end_is_reached(run: Run, numbers: Path) -> None:
    assert run("ls", numbers, "--limit", 0).stderr == ""
    assert run("ls", numbers, "--start", 10).stderr == ""


def test_starting_behind_the_end_lists_nothing_and_says_why(run: Run, numbers: Path) -> None:
    result = run("ls", numbers, "--start", 60)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "fastloader: there is no sample 60; the last is 59\n"


def test_a_negative_limit_is_wrong_usage(run: Run, numbers: Path) -> None:
    assert run("ls", numbers, "--limit", -1).exit_code == 2


def test_fields_chooses_and_orders(run: Run, numbers: Path) -> None:
    assert run("ls", numbers, "--fields", "square,n", "--limit", 1).stdout == "0  square=0  n=0\n"
    assert run("ls", numbers, "--fields", "n", "--limit", 1).stdout == "0  n=0\n"


def test_a_field_with_a_comma_in_its_name_can_be_chosen(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "x.fld", [{"a,b": 1, "c": 2}], {"a,b": fl.IntField(), "c": fl.IntField()})
    assert run("ls", path, "--fields", "a,b").stdout == "0  a,b=1\n"


def test_an_unknown_field_is_named_with_those_there_are(run: Run, numbers: Path) -> None:
    result = run("ls", numbers, "--fields", "n,nope")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"fastloader: {numbers}: no field 'nope'; there are n, square\n"


def test_json_tells_shapes_sizes_and_missing_values(run: Run, everything: Path) -> None:
    told = [json.loads(line) for line in run("ls", everything, "--json").stdout.splitlines()]
    assert [line["key"] for line in told] == ["a/0.jpg", HOSTILE_KEY, "c", "4", "e"]
    fields = told[3]["fields"]
    assert list(fields) == list(FIELDS)
    assert fields["label"] == {"value": 30}
    assert fields["text"]["bytes"] == 1000
    assert fields["text"]["stored_bytes"] < 100
    assert fields["sound"] == {"dtype": "float32", "shape": [2, 6], "bytes": 48, "stored_bytes": 48}
    image = fields["image"]
    assert (image["height"], image["width"], image["channels"], image["dtype"]) == (11, 16, 3, "uint8")
    assert told[2]["fields"]["meta"] is None


def test_json_has_texts_for_numbers_it_lacks(run: Run, tmp_path: Path) -> None:
    values = [float("nan"), float("inf"), float("-inf")]
    path = write(tmp_path / "x.fld", [{"x": value} for value in values], {"x": fl.FloatField()})
    lines = run("ls", path, "--json").stdout.splitlines()
    assert [json.loads(line)["fields"]["x"]["value"] for line in lines] == ["NaN", "Infinity", "-Infinity"]


def test_a_field_that_is_all_metadata_is_told_by_its_columns(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PointField(fl.IntField):
        type_id = 4322

        @property
        def metadata_type(self) -> np.dtype:
            return np.dtype([("x", "<i4"), ("name", "S8")])

        def encode(self, value: tuple[int, bytes]) -> fl.Encoded:
            return fl.Encoded(value)

    monkeypatch.setitem(BY_TYPE_ID, 4322, PointField)
    path = write(tmp_path / "x.fld", [{"p": (3, b"\x1b[m")}], {"p": PointField()})
    assert run("ls", path).stdout == "0  p=x=3 name=b'\\x1b[m'\n"


def test_an_unregistered_type_is_told_by_its_size(run: Run, unregistered: Path) -> None:
    assert run("ls", unregistered).stdout == "0  foreign=3 B  n=1\n1  foreign=missing  n=2\n"


def test_a_folder_of_shards_is_numbered_throughout(run: Run, shards: Path) -> None:
    lines = run("ls", shards).stdout.splitlines()
    assert lines == [f"{i:>2}  n={i}  data=2.9 KiB" for i in range(20)]


def test_an_empty_dataset_lists_nothing(run: Run, empty: Path) -> None:
    result = run("ls", empty)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert run("ls", empty, "--keys").stdout == ""


def test_keys_are_all_printed_as_they_are(run: Run, tmp_path: Path) -> None:
    keys = [f"k{i}" for i in range(70)] + ["\udcff.jpg"]
    path = write(tmp_path / "x.fld", [{"n": i} for i in range(71)], {"n": fl.IntField()}, keys=keys)
    assert run("ls", path, "--keys").stdout_bytes == b"".join(b"k%d\n" % i for i in range(70)) + b"\xff.jpg\n"
    assert run("ls", path, "--keys", "--start", 3, "--limit", 2).stdout == "k3\nk4\n"


def test_null_ends_keys_so_that_newlines_in_them_are_no_trouble(run: Run, everything: Path) -> None:
    shown = run("ls", everything, "--keys", "-0").stdout_bytes
    assert shown.split(b"\0") == [b"a/0.jpg", HOSTILE_KEY.encode(), b"c", b"4", b"e", b""]
    assert run("ls", everything, "--keys", "--null").stdout_bytes == shown


def test_keys_as_json_are_a_text_a_line(run: Run, everything: Path) -> None:
    lines = run("ls", everything, "--keys", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == ["a/0.jpg", HOSTILE_KEY, "c", "4", "e"]


def test_keys_on_a_terminal_are_escaped(everything: Path) -> None:
    for options in ((), ("-0",)):
        status, shown = run_on_terminal(command("ls", everything, "--keys", *options))
        assert (status, shown) == (0, "a/0.jpg\nnew\\nline\\x1b[2J\\x07\nc\n4\ne\n")


def test_asking_for_keys_where_there_are_none(run: Run, numbers: Path) -> None:
    result = run("ls", numbers, "--keys")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"fastloader: {numbers}: the samples have no keys; leave out --keys\n"


@pytest.mark.parametrize(
    "options", [("-0",), ("--keys", "-0", "--json"), ("--keys", "--fields", "n")], ids=" ".join
)  # fmt: skip
def test_options_without_effect_are_refused(run: Run, everything: Path, options: tuple[str, ...]) -> None:
    assert run("ls", everything, *options).exit_code == 2


def test_a_damaged_table_ends_the_listing_with_one_line(run: Run, everything: Path, tmp_path: Path) -> None:
    number = list(FIELDS).index("label")
    offset = fl.open(everything).dataset.file(0).directory[Kind.METADATA, number].offset
    path = spoil_byte(everything, tmp_path / "x.fld", offset)
    result = run("ls", path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"fastloader: {path}: sample 0, field 'label': ")
    assert result.stderr.endswith(f'run "fastloader verify {path}"\n')


def test_a_reader_that_stops_early_is_no_error(large: Path) -> None:
    argv = command("ls", large, "--limit", "0")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"    0  a=0  b=0  c=0  d=0  e=0  f=0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
