"""``fastloader convert``."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tarfile
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastloader as fl
from fastloader.cli.convert import parse_field
from fastloader.formats.tar_entries import TarSink

from .conftest import command

VECTORS = Path(__file__).parents[1] / "vectors"


@pytest.fixture
def photos(tmp_path):
    for number, name in enumerate(("cat/a.jpg", "cat/b.jpg", "dog/c.jpg")):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((VECTORS / "images" / ("1-rgb-444.jpg" if number else "0-gray.jpg")).read_bytes())
    return tmp_path / "photos"


def test_a_folder_of_images_becomes_a_dataset(run, photos, tmp_path):
    result = run("convert", photos, tmp_path / "a.fld")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[:4] == [
        "field  stored as", "image  JPEGImageField()", "label  IntField()", "path   TextField()",
    ]  # fmt: skip
    assert "a.fld: 3 samples, " in result.output
    reader = fl.open(tmp_path / "a.fld")
    assert [sample["label"] for sample in reader] == [0, 0, 1]
    assert bytes(reader.read_payload(2, "image")) == (photos / "dog" / "c.jpg").read_bytes()


def test_and_back_without_decoding(run, photos, tmp_path):
    run("convert", photos, tmp_path / "a.fld")
    assert run("convert", "-q", tmp_path / "a.fld", tmp_path / "a.tar").output == ""
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.extractfile("000000002.image.jpg").read() == (photos / "dog" / "c.jpg").read_bytes()
    assert run("convert", "-q", tmp_path / "a.fld", tmp_path / "a.parquet").exit_code == 0
    assert fl.open(tmp_path / "a.parquet")[2]["image"] == (photos / "dog" / "c.jpg").read_bytes()


def test_fields_can_be_named_and_left_out(run, photos, tmp_path):
    result = run("convert", "--fields", "image,label", "--field", "image=BytesField", photos, tmp_path / "a.fld")
    assert result.exit_code == 0, result.output
    assert fl.open(tmp_path / "a.fld").fields == {"image": fl.BytesField(), "label": fl.IntField()}


def test_several_sources_come_one_after_the_other(run, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"x": "{name}"}}\n')
    assert run("convert", tmp_path / "b.jsonl", tmp_path / "a.jsonl", tmp_path / "c.fld").exit_code == 0
    assert [sample["x"] for sample in fl.open(tmp_path / "c.fld")] == ["b", "a"]


def test_a_dry_run_writes_nothing(run, photos, tmp_path):
    result = run("convert", "--dry-run", photos, tmp_path / "a.fld")
    assert (result.exit_code, "JPEGImageField()" in result.output) == (0, True)
    assert not (tmp_path / "a.fld").exists()


def test_tars_by_number_are_not_replaced_unasked(run, photos, tmp_path):
    (tmp_path / "t-000001.tar").write_bytes(b"mine")
    (tmp_path / "t-other.tar").write_bytes(b"mine too")
    line = ("convert", photos, tmp_path / "t-%06d.tar", "--shard-samples", "1")
    result = run(*line)
    assert (result.exit_code, "is there already; --force replaces it" in result.output) == (2, True)
    assert (tmp_path / "t-000001.tar").read_bytes() == b"mine"
    assert run(*line, "--force").exit_code == 0
    assert sum(len(fl.open(tmp_path / f"t-00000{i}.tar")) for i in range(3)) == 3
    assert (tmp_path / "t-other.tar").read_bytes() == b"mine too"


def test_fewer_tars_take_the_place_of_more(run, photos, tmp_path):
    """Nothing of the row that is replaced is left behind its end, where it would be read as a part of the new one."""
    line = ("convert", photos, tmp_path / "t-%d.tar", "--force")
    assert run(*line, "--shard-samples", "1").exit_code == 0
    (tmp_path / "t-9.tar").write_bytes(b"mine")
    assert run(*line, "--shard-samples", "2").exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("t-*.tar")) == ["t-0.tar", "t-1.tar", "t-9.tar"]
    assert len(fl.open(tmp_path / "t-[01].tar")) == 3


def test_who_interrupts_tars_by_number_is_told_what_there_is(run, photos, tmp_path, monkeypatch):
    closed = TarSink.close

    def interrupted(sink):
        if "t-1" in sink.path.name:
            raise KeyboardInterrupt
        closed(sink)

    monkeypatch.setattr(TarSink, "close", interrupted)
    result = run("convert", photos, tmp_path / "t-%d.tar", "--shard-samples", "1")
    assert (result.exit_code, "tars that were whole have taken their places" in result.output) == (130, True)
    assert [path.name for path in tmp_path.glob("*t-*.tar*")] == ["t-0.tar"]


def test_what_is_there_is_not_replaced_unasked(run, photos, tmp_path):
    (tmp_path / "a.fld").write_bytes(b"mine")
    result = run("convert", photos, tmp_path / "a.fld")
    assert result.exit_code == 2
    assert "is there already; --force replaces it" in result.output
    assert (tmp_path / "a.fld").read_bytes() == b"mine"
    assert run("convert", "--force", photos, tmp_path / "a.fld").exit_code == 0
    assert len(fl.open(tmp_path / "a.fld")) == 3


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nowhere", "a.fld"], 2, "nowhere: there is no such file or folder; check the path"),
        (["nowhere/*.jpg", "a.fld"], 2, "no file fits the pattern"),
        (["photos", "ftp://host/a.fld"], 2, "no store for ftp://"),
        (["photos", "s3://bucket/a.zip"], 2, "archives are copied from where the environment leads to local files"),
        (["--endpoint", "http://x", "photos", "a.fld"], 2, "neither SRC nor DST is a URL"),
        (["-o", "x", "photos", "s3://bucket/a.fld"], 2, "give NAME=VALUE"),
        (["photos", "a.txt"], 2, "the name ends with .fld, .tar, .tar.gz"),
        (["--include", "*.jpg", "photos", "a.fld"], 2, "--include and --exclude are for archives"),
        (["--fields", "x", "photos", "a.zip"], 2, "archives are copied one by one"),
        (["--shard-size", "1MB", "photos", "a.zip"], 2, "shard_size is for .fld and Barecat archives"),
        (["bad.jsonl", "a.barecat"], 1, "bad.jsonl: is no archive; a tar, a zip"),
        (["nowhere", "a.zip"], 2, "nowhere: there is no such file or folder"),
        (["--format", "xml", "photos", "a.fld"], 2, "format='xml': one of"),
        (["--field", "x=Int", "photos", "a.fld"], 2, "no field Int; there are IntField"),
        (["--field", "x=IntField(", "photos", "a.fld"], 2, "write it as in Python"),
        (["--field", "x=JPEGImageField(quality=200)", "photos", "a.fld"], 2, "from 1 to 100"),
        (["--field", "x", "photos", "a.fld"], 2, "write it like label=IntField"),
        (["--field", "x=IntField", "photos", "a.fld"], 2, "there is no field 'x'; there are image"),
        (["--fields", "x", "photos", "a.fld"], 2, "unknown 'x'"),
        (["--shard-size", "lots", "photos", "a.fld"], 2, "is not a size"),
        (["--compression", "zip", "photos", "a.fld"], 2, "unknown compression"),
        (["--shard-size", "1MB", "photos", "a.tar"], 2, "several tars need a place for their number"),
        (["bad.jsonl", "a.fld"], 1, "record 1 at offset 9"),
        (["--engine", "ray", "photos", "a.fld"], 2, "--engine ray makes every shard a task: give --shard-size"),
        (["--address", "h:1", "photos", "a.fld"], 2, "--address is for --engine ray"),
        (["--engine", "ray", "--shard-size", "1MB", "photos", "a.zip"], 2, "--engine ray converts samples"),
        (["--engine", "ray", "--shard-size", "1MB", "photos", "a-%d.tar"], 2, "--engine ray writes .fld alone"),
    ],
)
def test_mistakes_are_told_in_a_line(run, photos, tmp_path, monkeypatch, arguments, status, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n{"x": \n')
    result = run("convert", *arguments)
    assert result.exit_code == status, result.output
    assert said in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "photos"]


def test_an_interrupted_conversion_goes_on(tmp_path):
    with (tmp_path / "a.jsonl").open("w") as file:
        for i in range(60_000):
            file.write(f'{{"i": {i}, "text": "{"x" * 100}"}}\n')
    arguments = ("convert", "--shard-size", "200KB", tmp_path / "a.jsonl", tmp_path / "a.fld")
    with subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        shard = tmp_path / ".a.fld.converting" / "data.fld" / "shard-00000.fld"
        while not shard.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 130
    assert said == "fastloader: interrupted; the same command goes on where this was\n"
    assert not (tmp_path / "a.fld").exists()
    written = shard.stat().st_ino
    assert subprocess.run(command(*arguments), capture_output=True, check=False).returncode == 0
    assert (tmp_path / "a.fld" / "shard-00000.fld").stat().st_ino == written
    reader = fl.open(tmp_path / "a.fld")
    assert reader.read_batch(range(60_000), ["i"])["i"].tolist() == list(range(60_000))


@pytest.mark.parametrize("arguments", [("a.fld",), ("a.tar",), ("a.parquet",), ("--shard-size", "4MB", "a.fld")])
def test_a_target_that_takes_no_more_is_told_and_left_as_it_was(tmp_path, arguments):
    """As on a full disk: the system refuses to write on."""
    with (tmp_path / "x.jsonl").open("w") as file:
        for i in range(2000):
            file.write(f'{{"t": "{os.urandom(300).hex()}", "i": {i}}}\n')
    done = subprocess.run(
        command("convert", "-q", "x.jsonl", *arguments), cwd=tmp_path, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )  # fmt: skip
    assert done.returncode == 2, done
    assert done.stderr.startswith("fastloader: ")
    assert "File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".converting")] == ["x.jsonl"]


def test_what_is_shown_and_hinted_at_can_be_given(run, tmp_path):
    pq.write_table(
        pa.table({"day": [date(2024, 1, 2)], "words": [[b"cat", b"dog"]], "id": pa.array([2**63], pa.uint64())}),
        tmp_path / "a.parquet",
    )
    result = run("convert", tmp_path / "a.parquet", tmp_path / "a.fld")
    shown = dict(line.split(maxsplit=1) for line in result.stdout.splitlines()[1:4])
    assert shown["day"] == "TextField()"
    assert shown["words"] == "ListField(field=BytesField())"
    named = [f"--field={name}={field}" for name, field in shown.items()]
    assert run("convert", *named, tmp_path / "a.parquet", tmp_path / "b.fld").exit_code == 0
    for name in "ab":
        assert fl.open(tmp_path / f"{name}.fld")[0] == {"day": "2024-01-02", "words": [b"cat", b"dog"], "id": 2**63}
    (tmp_path / "c.jsonl").write_text('{"n": 18446744073709551616, "m": 1}\n{"n": -1, "m": 2}\n')
    result = run("convert", tmp_path / "c.jsonl", tmp_path / "c.fld")
    assert result.exit_code == 2
    assert "--field n=JSONField; --fields chooses those to take" in result.output
    assert run("convert", "--field", "n=JSONField", tmp_path / "c.jsonl", tmp_path / "c.fld").exit_code == 0
    assert [sample["n"] for sample in fl.open(tmp_path / "c.fld")] == [2**64, -1]


def test_fields_are_written_as_in_python():
    assert parse_field("ListField(TextField(dictionary=1024))") == fl.ListField(fl.TextField(dictionary=1024))
    assert parse_field('NDArrayField("float32", (None, 3))') == fl.NDArrayField("float32", (None, 3))
    assert parse_field("IntField") == parse_field("IntField()") == fl.IntField()
