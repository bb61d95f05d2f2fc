"""Commands that look at datasets, given URLs; conversions from stores and into them."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from http_server import web_server

import fastloader as fl
from fastloader.cli import main
from fastloader.stores import open_store
from fastloader.testing import identical
from fastloader.testing.seaweed import ACCESS, PUBLIC, SECRET, S3Server

Run = Callable[..., Result]
BUCKET = "s3://commands"
JPEG = Path(__file__).parents[1] / "vectors" / "images" / "1-rgb-444.jpg"


@pytest.fixture
def run(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command; where the server is and who we are is said by the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    def call(*arguments: object, fails: int = 0) -> Result:
        result = CliRunner().invoke(main, [str(one) for one in arguments])
        assert result.exit_code == fails, result.output
        return result

    return call


@pytest.fixture(scope="module")
def urls(s3: S3Server) -> dict[str, str]:
    """A dataset as one object, and the same as shards."""
    fields = {"image": fl.JPEGImageField(), "n": fl.IntField(), "text": fl.TextField()}
    found = {"file": f"{BUCKET}/look/one.fld", "folder": f"{BUCKET}/look/shards"}
    for kind, url in found.items():
        more = {} if kind == "file" else {"shard_size": "10KB"}
        options = s3.storage_options()
        with fl.DatasetWriter(url, fields, "4KiB", keys=True, storage_options=options, **more) as writer:
            for i in range(30):
                writer.write_sample([JPEG.read_bytes(), i, f"text {i}"], key=f"key {i}")
    return found


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_info_ls_and_cat(run: Run, urls: dict[str, str], kind: str) -> None:
    told = json.loads(run("info", "--json", urls[kind]).stdout)
    assert (told["path"], told["kind"], told["samples"]) == (urls[kind], kind, 30)
    assert (told["shards"] > 1) == (kind == "folder")
    assert run("info", urls[kind]).stdout.startswith(f"{urls[kind]}: a ")
    assert run("ls", "--limit", 2, "--start", 4, urls[kind]).stdout.splitlines()[1].startswith("5  key 5  image=")
    assert run("ls", "--keys", urls[kind]).stdout.split("\n")[29] == "key 29"
    assert run("cat", urls[kind], "-1", "n").stdout == "29\n"
    assert run("cat", urls[kind], "key 3", "image").stdout_bytes == JPEG.read_bytes()
    assert "text 3" in run("cat", urls[kind], "key 3").stdout


def test_ls_tells_of_compressed_values_that_are_not_here(tmp_path: Path) -> None:
    fields = {"blob": fl.BytesField(), "text": fl.TextField()}
    rng = np.random.default_rng(0)
    with fl.DatasetWriter(tmp_path / "x.fld", fields, compression="zstd") as writer:
        for _ in range(20):  # more than is fetched on opening
            writer.write_sample({"blob": rng.bytes(100_000), "text": "again " * 500})
    with web_server(tmp_path) as url:
        result = CliRunner().invoke(main, ["ls", "--json", "--start", "10", "--limit", "1", f"{url}/x.fld"])
    told = json.loads(result.stdout)["fields"]["text"]
    assert told["bytes"] == 3000 > told["stored_bytes"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_verify_reads_all_and_finds_damage(run: Run, urls: dict[str, str], kind: str, s3: S3Server) -> None:
    assert "30 samples" in run("verify", "--decode", urls[kind]).stdout
    store, key = open_store(urls[kind], s3.storage_options())
    copy = f"look/damaged-{kind}"
    for one in list(store.list(key)):
        data = bytearray(store.read(one.key))
        if data.count(JPEG.read_bytes()[300:340]) > 2:
            data[data.index(JPEG.read_bytes()[300:340]) + 3] ^= 1
        store.put(one.key.replace(key, copy), data)
    said = run("verify", f"{BUCKET}/{copy}", fails=1).stdout
    assert "the payload is damaged: crc32c stored" in said
    assert f"{BUCKET}/{copy}" in said
    if kind == "folder":
        doomed = next(one.key for one in store.list(copy) if one.key.endswith(".fld"))
        store.delete(doomed)
        assert "are lost" in run("verify", f"{BUCKET}/{copy}", fails=1).stdout


def test_bench(run: Run, urls: dict[str, str]) -> None:
    told = json.loads(run("bench", "--json", "--batches", 3, "--batch-size", 8, urls["folder"]).stdout)
    assert told["stats"]["batches"] == 3
    assert "from the store" in run("bench", "-q", "--batches", 2, urls["file"]).stdout
    assert "--cold is for local files" in run("bench", "--cold", urls["file"], fails=2).output
    assert "io='pread' is for local files" in run("bench", "--io", "pread", urls["file"], fails=2).output


@pytest.mark.parametrize("command", ["info", "ls", "cat", "verify", "bench", "convert"])
def test_what_lets_us_in_may_be_given(
    run: Run, command: str, urls: dict[str, str], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = {"cat": ["0"], "convert": [tmp_path / "a.tar"]}.get(command, [])
    before = ["--batches", 1] if command == "bench" else []
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    keys = ["-o", f"access_key_id={ACCESS}", "--storage-option", f"secret_access_key={SECRET}"]
    run(command, *before, "--endpoint", s3.endpoint, *keys, urls["file"], *behind)
    store, _ = open_store(f"s3://{PUBLIC}", s3.storage_options())
    from_, key = open_store(urls["file"], s3.storage_options())
    store.put("look/one.fld", from_.read(key))
    behind = {"convert": [tmp_path / "b.tar"]}.get(command, behind)
    run(command, *before, "--endpoint", s3.endpoint, "--anonymous", f"s3://{PUBLIC}/look/one.fld", *behind)
    (tmp_path / "credentials").write_text(f"[team]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    behind = {"convert": [tmp_path / "c.tar"]}.get(command, behind)
    run(command, *before, "--endpoint", s3.endpoint, "--profile", "team", urls["file"], *behind)


@pytest.mark.parametrize("command", ["info", "ls", "cat", "verify", "bench", "convert"])
def test_mistakes_are_told_in_a_line(run: Run, command: str, tmp_path: Path, urls: dict[str, str]) -> None:
    behind = {"cat": ["0"], "convert": [tmp_path / "a.fld"]}.get(command, [])
    said = run(command, f"{BUCKET}/nowhere.fld", *behind, fails=2).stderr
    assert said.startswith(f"fastloader: {BUCKET}/nowhere.fld: there is no such")
    assert said.count("\n") == 1
    assert "no store for ftp://" in run(command, "ftp://host/x.fld", *behind, fails=2).output
    assert "give NAME=VALUE" in run(command, "-o", "colour", urls["file"], *behind, fails=2).output
    assert "not understood" in run(command, "-o", "colour=red", urls["file"], *behind, fails=2).output
    (tmp_path / "x.fld").write_bytes(b"")
    assert "URL" in run(command, "--profile", "team", tmp_path / "x.fld", *behind, fails=2).output


@pytest.fixture
def lines(s3: S3Server) -> str:
    """Two objects of JSONL."""
    store, key = open_store(f"{BUCKET}/lines", s3.storage_options())
    for part in range(2):
        data = "".join(f'{{"i": {100 * part + i}, "text": "{"x" * i}"}}\n' for i in range(100))
        store.put(f"{key}/{part}.jsonl", data.encode())
    return f"{BUCKET}/lines"


def test_conversions_come_from_stores_and_go_into_them(run: Run, lines: str, s3: S3Server, tmp_path: Path) -> None:
    wanted = list(fl.open(lines, s3.storage_options()))
    into = f"{BUCKET}/converted"
    result = run("convert", f"{lines}/*.jsonl", f"{into}/a.fld")
    assert "text   TextField()" in result.stdout
    assert f"{into}/a.fld: 200 samples, " in result.stdout
    assert identical(list(fl.open(f"{into}/a.fld", s3.storage_options())), wanted)
    for name in ("a.parquet", "a.tar"):
        assert f"{into}/{name}: " in run("convert", f"{into}/a.fld", f"{into}/{name}").stdout
        run("convert", f"{into}/a.fld", tmp_path / name)
        run("store", "get", f"{into}/{name}", tmp_path / f"got-{name}")
    assert identical(list(fl.open(f"{into}/a.parquet", s3.storage_options())), wanted)
    with tarfile.open(tmp_path / "a.tar") as local, tarfile.open(tmp_path / "got-a.tar") as remote:
        assert local.getnames() == remote.getnames()
    assert "is there already; --force replaces it" in run("convert", lines, f"{into}/a.fld", fails=2).output
    run("convert", "--force", f"{lines}/0.jsonl", f"{into}/a.fld")
    assert len(fl.open(f"{into}/a.fld", s3.storage_options())) == 100
    run("convert", "--dry-run", lines, f"{into}/never.fld")
    assert "no such" in run("info", f"{into}/never.fld", fails=2).output


def test_tars_by_number_in_a_store_are_replaced_as_a_row(run: Run, lines: str, s3: S3Server) -> None:
    into = f"{BUCKET}/numbered/t-%02d.tar"
    store, folder = open_store(f"{BUCKET}/numbered", s3.storage_options())
    store.put(f"{folder}/t-09.tar", b"of others")
    run("convert", lines, into, "--shard-samples", "50")
    refused = run("convert", lines, into, "--shard-samples", "150", fails=2)
    assert "t-%02d.tar is there already; --force replaces it" in refused.output
    assert len(list(store.list(folder))) == 5
    run("convert", "--force", lines, into, "--shard-samples", "150")
    assert [one.key.rpartition("/")[2] for one in store.list(folder)] == ["t-00.tar", "t-01.tar", "t-09.tar"]
    assert len(fl.open(f"{BUCKET}/numbered/t-0[01].tar", s3.storage_options())) == 200


def test_shards_go_into_a_store(run: Run, lines: str, s3: S3Server) -> None:
    options = s3.storage_options()
    into = f"{BUCKET}/shards/a.fld"
    wanted = list(fl.open(lines, options))
    assert " shards, " in run("convert", "--shard-size", "2KB", lines, into).stdout
    store, key = open_store(into, options)
    first = {one.key for one in store.list(key)}
    with fl.open(into, options) as reader:
        assert identical(list(reader), wanted)
        assert len(reader.dataset.shards) > 3
        assert len(first) == len(reader.dataset.shards) + 1  # and the manifest, and nothing else
    assert "is there already" in run("convert", "--shard-size", "2KB", lines, into, fails=2).output
    run("convert", "--force", "--shard-size", "2KB", f"{lines}/1.jsonl", into)
    assert identical(list(fl.open(into, options)), wanted[100:])
    again = {one.key for one in store.list(key)}
    assert again & first == {f"{key}/manifest.json"}  # what was replaced is gone
    with fl.DatasetWriter(into, None, mode="a", storage_options=options) as writer:
        writer.write_sample({"i": 7, "text": "more"})
    assert len(fl.open(into, options)) == 101
    with fl.DatasetWriter(into, {"i": fl.IntField()}, shard_size="1MB", storage_options=options) as writer:
        writer.write_sample([1])
    assert len(list(store.list(key))) == 2


class Interrupted:
    """Gives samples, and fails at one of them as long as it is told to."""

    def __init__(self) -> None:
        self.fails_at: int | None = None
        self.read: list[int] = []

    def __len__(self) -> int:
        return 400

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i == self.fails_at:
            raise KeyboardInterrupt
        self.read.append(i)
        return {"i": i, "data": bytes([i % 256]) * 100}


def test_an_interrupted_conversion_into_a_store_goes_on(s3: S3Server) -> None:
    options, source, into = s3.storage_options(), Interrupted(), f"{BUCKET}/interrupted/a.fld"
    dataset = fl.Dataset.from_sequence(source)
    for fails_at in (150, 285):
        source.fails_at = fails_at
        with pytest.raises(KeyboardInterrupt):
            dataset.write(into, shard_size=3000, storage_options=options)
        with pytest.raises(fl.FastLoaderError):
            fl.open(into, options)  # nobody sees half a dataset
    with pytest.raises(fl.StoreError, match=r"conversion\.json: holds what another conversion has left"):
        dataset.take(100).write(into, shard_size=3000, storage_options=options)
    source.fails_at = None
    source.read.clear()
    dataset.write(into, shard_size=3000, storage_options=options)
    assert min(source.read[128 + 16 :]) > 200  # what is there is not read again but to tell the fields
    assert [sample["i"] for sample in fl.open(into, options)] == list(range(400))
    assert fl.verify(into, options, decode=True).ok
    store, key = open_store(into, options)
    assert {one.key.rpartition("/")[2][:5] for one in store.list(key)} == {"manif", "shard"}


def test_ctrl_c_in_the_command_says_how_to_go_on(s3: S3Server, tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("w") as file:
        for i in range(60_000):
            file.write(f'{{"i": {i}, "text": "{"x" * 100}"}}\n')
    into = f"{BUCKET}/ctrl-c/a.fld"
    options = [f"-oaccess_key_id={ACCESS}", f"-osecret_access_key={SECRET}", "--endpoint", s3.endpoint]
    words = [sys.executable, "-m", "fastloader", "convert", *options, "--shard-size", "200KB"]
    store, key = open_store(into, s3.storage_options())
    store.put("first", b"so that there is a bucket")
    with subprocess.Popen(
        [*words, str(tmp_path / "a.jsonl"), into], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        while sum(one.key.endswith(".fld") for one in store.list(key)) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert (process.returncode, said) == (130, "fastloader: interrupted; the same command goes on where this was\n")
    done = subprocess.run([*words, str(tmp_path / "a.jsonl"), into], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    with fl.open(into, s3.storage_options()) as reader:
        assert reader.read_batch(range(60_000), ["i"])["i"].tolist() == list(range(60_000))


def test_datasets_in_a_bucket_become_one_without_copying(urls: dict[str, str], s3: S3Server) -> None:
    options = s3.storage_options()
    whole = f"{BUCKET}/joined/all"
    fl.concatenate(whole, [urls["folder"], urls["file"]], storage_options=options)
    store, key = open_store(whole, options)
    assert [one.key for one in store.list(key)] == [f"{key}/manifest.json"]
    with fl.open(whole, options) as reader:
        assert [sample["n"] for sample in reader] == [*range(30), *range(30)]
        numbers = [int(n) for batch in fl.DataLoader(reader, batch_size=7, seed=1) for n in batch["n"]]
        assert sorted(numbers) == sorted([*range(30), *range(30)])
    fl.concatenate(whole, [urls["file"]], storage_options=options)
    assert len(fl.open(whole, options)) == 30
    with pytest.raises(fl.StoreError, match="would be replaced"):
        fl.concatenate(urls["folder"], [urls["folder"]], storage_options=options)
    with pytest.raises(ValueError, match="in another store"):
        fl.concatenate("s3://other/all", [urls["file"]], storage_options=options)
    with pytest.raises(ValueError, match=r"store|URL"):
        fl.concatenate(whole, [str(JPEG)], storage_options=options)


def test_an_npz_object_becomes_fld_and_npy_of_a_value(run: Run, s3: S3Server, tmp_path: Path) -> None:
    file = io.BytesIO()
    np.savez(file, x=np.arange(12).reshape(4, 3))
    open_store(BUCKET, s3.storage_options())[0].put("npz/a.npz", file.getvalue())
    run("convert", f"{BUCKET}/npz/a.npz", tmp_path / "a.fld")
    data = run("cat", "--npy", tmp_path / "a.fld", 2, "x").stdout_bytes
    assert np.load(io.BytesIO(data)).tolist() == [6, 7, 8]


def test_what_a_killed_writer_left_is_removed_once_it_is_old(run: Run, urls: dict[str, str], s3: S3Server) -> None:
    store, at = open_store(urls["folder"], s3.storage_options())
    store.put(f"{at}/shard-0badcafe-00000.fld", b"x" * 1024)
    assert "0 snapshots forgotten, 0 B given back" in run("gc", urls["folder"], "--unnamed", "0.5").output
    assert json.loads(run("gc", urls["folder"], "--unnamed", 0, "--json").output)["bytes"] == 1024
    assert "30 samples" in run("verify", urls["folder"]).output
