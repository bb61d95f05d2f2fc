from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest

import fastloader as fl
from fastloader.cli import show
from fastloader.fields import BY_TYPE_ID

from .conftest import FIELDS, HOSTILE_KEY, Run, command, run_on_terminal, spoil_payload, write


def test_a_sample_is_shown_readably(run: Run, everything: Path) -> None:
    result = run("cat", everything, 4)
    assert result.exit_code == 0
    size = {name: len(fl.open(everything).read_payload(4, name)) for name in ("image", "depth")}
    assert result.stdout.splitlines() == [
        "sample 4  e",
        f"  image   12x16x3, {size['image']} B",
        f"  depth   5x6x1 uint16, {size['depth']} B",
        "  pixels  2x3x3, 18 B",
        "  sound   float32[2,6]  min 4, max 15, [4, 5, 6, 7, 8, 9, 10, 11, ...]",
        "  label   40",
        "  weight  1.0",
        "  text    plain text 4",
        "  meta    {",
        '            "number": 4,',
        '            "words": [',
        '              "one",',
        '              "two"',
        "            ]",
        "          }",
    ]


def test_bytes_that_are_no_text_are_shown_in_hexadecimal_and_missing_values_as_missing(
    run: Run, everything: Path
) -> None:
    assert "  text    10 B: ff 00 fe 20 62 69 6e 61 72 79\n" in run("cat", everything, 0).stdout
    assert run("cat", everything, 2).stdout.endswith("  meta    missing\n")


def test_hostile_text_can_neither_steer_the_terminal_nor_forge_a_field(run: Run, tmp_path: Path) -> None:
    text = "one\x1b[2J\x9b31m\u202e[red]\n  label  7\r".encode()
    path = write(tmp_path / "x.fld", [[text, {"\x7f": "\u2028\x9b"}]], {"t": fl.BytesField(), "j": fl.JSONField()})
    assert run("cat", path, 0).stdout.splitlines() == [
        "sample 0",
        r"  t  one\x1b[2J\x9b31m\u202e[red]",
        r"       label  7\r",
        "  j  {",
        r'       "\x7f": "\u2028\x9b"',
        "     }",
    ]


def test_long_values_are_cut_with_a_note(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "x.fld", [[b"x" * 5000, b"\xff" * 5000]], {"t": fl.BytesField(), "b": fl.BytesField()})
    _, text, note, binary = run("cat", path, 0).stdout.splitlines()
    assert text == "  t  " + "x" * 4000
    assert note == "     ... 1,000 more characters; name the field to get all of it"
    assert binary == "  b  4.9 KiB: " + "ff " * 32 + "..."


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.array([[True, False]]), "bool[1,2]  min False, max True, [True, False]"),
        (np.array([np.nan, 2.5, -1]), "float64[3]  min -1, max 2.5, [nan, 2.5, -1]"),
        (np.array([np.nan]), "float64[1]  min nan, max nan, [nan]"),
        (np.array(123456789), "int64[]  min 123456789, max 123456789, [123456789]"),
        (np.zeros((0, 3), np.uint8), "uint8[0,3]  []"),
        (np.array([1 + 2j]), "complex128[1]  [(1+2j)]"),
        (np.array(["\x1b[m"], "U4"), r"<U4[1]  [\x1b[m]"),
        (np.array([(1, 2.0)], [("a", "<i4"), ("b", "<f4")]), "[('a', '<i4'), ('b', '<f4')][1]  [(1, 2.0)]"),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
)
def test_arrays_of_every_kind_are_told_in_a_line(run: Run, tmp_path: Path, array: np.ndarray, shown: str) -> None:
    path = write(tmp_path / "x.fld", [{"a": array}], {"a": fl.NDArrayField(array.dtype)})
    result = run("cat", path, 0)
    assert result.stdout == f"sample 0\n  a  {shown}\n"
    json.loads(run("cat", path, 0, "--json").stdout)


def test_boxes_are_shown_a_line_each(run: Run, tmp_path: Path) -> None:
    boxes = [[[1, 2, 30.5, 4], [100, 0, 0, 7]], [], [[n, n, n, n] for n in range(20)]]
    samples = [{"boxes": np.array(some, np.float32).reshape(-1, 4)} for some in boxes]
    path = write(tmp_path / "boxes.fld", samples, {"boxes": fl.BoxesField("xywh")})
    assert run("cat", path, 0).stdout.splitlines()[1:] == [
        "  boxes  2 boxes, xywh",
        "           1  2  30.5  4",
        "         100  0     0  7",
    ]
    assert run("cat", path, 1).stdout.splitlines()[1:] == ["  boxes  0 boxes, xywh"]
    many = run("cat", path, 2).stdout.splitlines()[1:]
    assert (many[0].strip(), many[16].strip(), many[17].strip()) == (
        "boxes  20 boxes, xywh",
        "15  15  15  15",
        "... 4 more",
    )
    told = json.loads(run("cat", path, 2, "--json").stdout)["fields"]["boxes"]
    assert (told["format"], told["boxes"]) == ("xywh", boxes[2])


def test_samples_are_named_by_number_from_either_end(run: Run, everything: Path) -> None:
    assert run("cat", everything, 0, "label").stdout == "0\n"
    assert run("cat", everything, -1, "label").stdout == "40\n"
    assert run("cat", everything, "-5", "label").stdout == "0\n"
    assert run("cat", everything, "-1").stdout.startswith("sample 4  e\n")
    assert run("cat", "--json", everything, "-2").stdout.startswith('{"sample": 3')
    assert run("cat", "--", everything, "-1", "label").stdout == "40\n"


def test_samples_are_named_by_key(run: Run, everything: Path) -> None:
    assert run("cat", everything, "a/0.jpg", "label").stdout == "0\n"
    assert run("cat", everything, HOSTILE_KEY, "label").stdout == "10\n"


def test_key_makes_a_number_a_key(run: Run, everything: Path) -> None:
    assert run("cat", everything, "4", "label").stdout == "40\n"
    assert run("cat", everything, "4", "label", "--key").stdout == "30\n"
    assert run("cat", everything, "0", "label", "--key").exit_code == 2


def test_keys_and_fields_that_begin_with_a_dash_go_behind_two(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "x.fld", [[1], [2]], {"-f": fl.IntField()}, keys=["-k", "--json"])
    assert run("cat", path, "--", "-k", "-f").stdout == "1\n"
    assert run("cat", path, "--", "--json", "-f").stdout == "2\n"
    assert run("cat", path, "--key", "--", "--json", "-f").stdout == "2\n"
    assert run("cat", path, "-k", "-f").exit_code == 2


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ("5", "no sample has the number 5; they are numbered 0 to 4"),
        ("-6", "no sample has the number -6; they are numbered 0 to 4"),
        ("9" * 5000, f"no sample has the key '{'9' * 5000}'"),
        ("zzz", "no sample has the key 'zzz'"),
    ],
    ids=["5", "-6", "endless", "zzz"],
)
def test_a_sample_that_is_not_there(run: Run, everything: Path, sample: str, message: str) -> None:
    result = run("cat", everything, sample)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"fastloader: {everything}: {message}\n"


def test_an_empty_dataset_has_no_sample(run: Run, empty: Path) -> None:
    result = run("cat", empty, 0)
    assert (result.exit_code, result.stderr) == (
        2,
        f"fastloader: {empty}: no sample has the number 0; there are none\n",
    )


def test_a_key_where_there_are_no_keys(run: Run, numbers: Path) -> None:
    result = run("cat", numbers, "name")
    assert result.exit_code == 2
    assert "the samples have no keys" in result.stderr


def test_a_field_is_written_exactly_as_stored(run: Run, everything: Path) -> None:
    image = run("cat", everything, 3, "image").stdout_bytes
    assert image == bytes(fl.open(everything).read_payload(3, "image"))
    assert image.startswith(b"\xff\xd8")
    assert run("cat", everything, 3, "text").stdout_bytes == b"very " * 200
    assert run("cat", everything, 3, "sound").stdout_bytes == (np.arange(12, dtype="<f4") + 3).tobytes()
    assert run("cat", everything, 3, "weight").stdout_bytes == b"0.75\n"


def test_a_missing_value_is_not_an_empty_one(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "x.fld", [[b"", 1], [None, None]], {"t": fl.BytesField(), "n": fl.IntField()})
    assert (run("cat", path, 0, "t").exit_code, run("cat", path, 0, "t").stdout_bytes) == (0, b"")
    for field in ("t", "n"):
        result = run("cat", path, 1, field)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"fastloader: {path}: sample 1, field '{field}': the value is missing\n"


def test_an_unknown_field(run: Run, numbers: Path) -> None:
    result = run("cat", numbers, 0, "nope")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"fastloader: {numbers}: no field 'nope'; there are n, square\n"


@pytest.mark.parametrize("field", ["image", "depth", "pixels", "sound", "label", "weight"])
def test_npy_writes_the_decoded_array(run: Run, everything: Path, field: str) -> None:
    written = np.load(io.BytesIO(run("cat", everything, 3, field, "--npy").stdout_bytes))
    expected = np.asarray(fl.open(everything)[3][field])
    assert written.dtype == expected.dtype
    np.testing.assert_array_equal(written, expected)


def test_npy_is_for_arrays(run: Run, everything: Path) -> None:
    result = run("cat", everything, 3, "meta", "--npy")
    assert (result.exit_code, result.stdout_bytes) == (2, b"")
    assert "field 'meta' holds dict, no array" in result.stderr


@pytest.mark.parametrize("options", [("--npy",), ("--force",), ("text", "--json")], ids=" ".join)
def test_options_without_effect_are_refused(run: Run, everything: Path, options: tuple[str, ...]) -> None:
    assert run("cat", everything, 0, *options).exit_code == 2


def test_a_misspelt_option_is_no_sample(run: Run, everything: Path) -> None:
    result = run("cat", everything, "--josn")
    assert result.exit_code == 2
    assert "--josn" in result.stderr


def test_json_has_the_whole_sample(run: Run, everything: Path) -> None:
    told = json.loads(run("cat", everything, 1, "--json").stdout)
    assert (told["sample"], told["key"], list(told["fields"])) == (1, HOSTILE_KEY, list(FIELDS))
    fields = told["fields"]
    assert fields["label"] == {"value": 10}
    assert fields["meta"]["value"] == {"number": 1, "words": ["one", "two"]}
    assert fields["text"]["text"] == "plain text 1"
    assert (fields["sound"]["min"], fields["sound"]["max"], fields["sound"]["first"][:2]) == (1, 12, [1, 2])
    assert fields["image"]["height"] == 9
    binary = json.loads(run("cat", everything, 0, "--json").stdout)["fields"]["text"]
    assert base64.b64decode(binary["base64"]) == b"\xff\x00\xfe binary"
    assert json.loads(run("cat", everything, 2, "--json").stdout)["fields"]["meta"] is None


def test_a_terminal_gets_text_but_no_binary_unless_forced(everything: Path) -> None:
    assert run_on_terminal(command("cat", everything, 1, "text")) == (0, "plain text 1")
    status, shown = run_on_terminal(command("cat", everything, 0, "text"))
    assert status == 2
    assert "--force" in shown
    assert "binary data" in shown
    status, _ = run_on_terminal(command("cat", everything, 3, "sound", "--npy"))
    assert status == 2
    status, shown = run_on_terminal(command("cat", everything, 3, "sound", "--npy", "--force"))
    assert status == 0
    assert "NUMPY" in shown


def test_text_with_escape_codes_counts_as_binary_on_a_terminal(tmp_path: Path) -> None:
    path = write(tmp_path / "x.fld", [[b"\x1b[2J"]], {"t": fl.BytesField()})
    status, shown = run_on_terminal(command("cat", path, 0, "t"))
    assert status == 2
    assert "\x1b" not in shown


def test_an_unregistered_type_is_shown_and_written_as_bytes(run: Run, unregistered: Path) -> None:
    result = run("cat", unregistered, 0)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "sample 0",
        "  foreign  type 4321 is not registered",
        "           3 B: 00 01 02",
        "  n        1",
    ]
    assert run("cat", unregistered, 0, "foreign").stdout_bytes == b"\x00\x01\x02"
    decoded = run("cat", unregistered, 0, "foreign", "--npy")
    assert (decoded.exit_code, decoded.stdout) == (2, "")
    assert "no field class is registered for type id 4321" in decoded.stderr


def test_an_unregistered_type_without_payloads_is_shown_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ForeignNumber(fl.IntField):
        type_id = 4322

    with monkeypatch.context() as patch:
        patch.setitem(BY_TYPE_ID, 4322, ForeignNumber)
        path = write(tmp_path / "x.fld", [{"foreign": 5, "n": 1}], {"foreign": ForeignNumber(), "n": fl.IntField()})
    result = run("cat", path, 0)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1] == "  foreign  type 4322 is not registered"
    one = run("cat", path, 0, "foreign")
    assert (one.exit_code, one.stdout) == (2, "")
    assert "type id 4322" in one.stderr


def test_damage_in_one_field_leaves_the_others_readable(run: Run, damaged: Path) -> None:
    result = run("cat", damaged, 3)
    assert result.exit_code == 1
    assert "  label   30\n" in result.stdout
    assert "  text    unreadable: payload damaged" in result.stdout
    assert result.stderr.startswith(f"fastloader: {damaged}: sample 3, field 'text': payload damaged")
    assert len(result.stderr.splitlines()) == 1
    told = json.loads(run("cat", damaged, 3, "--json").stdout)
    assert "payload damaged" in told["fields"]["text"]["error"]
    assert run("cat", damaged, 2).exit_code == 0


def test_a_damaged_value_is_not_written(run: Run, damaged: Path) -> None:
    result = run("cat", damaged, 3, "text")
    assert (result.exit_code, result.stdout_bytes) == (1, b"")


def test_a_damaged_image_is_noticed_though_it_is_not_decoded(run: Run, everything: Path, tmp_path: Path) -> None:
    path = spoil_payload(everything, tmp_path / "x.fld", 1, "image")
    assert run("cat", path, 1).exit_code == 1


def test_samples_of_later_shards(run: Run, shards: Path) -> None:
    assert run("cat", shards, 17, "data").stdout_bytes == bytes([17]) * 3000
    assert run("cat", shards, -1, "n").stdout == "19\n"


def test_deeply_nested_json_is_refused_in_words(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: object, **__: object) -> str:
        raise RecursionError

    path = write(tmp_path / "x.fld", [[[1]]], {"j": fl.JSONField()})
    monkeypatch.setattr(show.json, "dumps", too_deep)
    assert "nested too deeply to be shown" in run("cat", path, 0).stdout
    result = run("cat", path, 0, "--json")
    assert result.exit_code == 1
    assert result.stderr.startswith("fastloader: a value is nested too deeply")
