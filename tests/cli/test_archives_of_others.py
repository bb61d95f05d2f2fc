"""``convert`` between archives, ``index``, and ``verify`` of what others wrote."""

from __future__ import annotations

import filecmp
import gc
import gzip
import json
import os
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zstandard
from tar_files import all_samples, tar, write_tars

import fastloader as fl

ENDINGS = ("tar", "tar.gz", "tar.zst", "zip", "barecat", "fld")


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("FASTLOADER_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def folder(tmp_path):
    """Odd names, empty files and folders, modes, a hard link."""
    made = tmp_path / "in"
    (made / "deep" / "empty").mkdir(parents=True)
    (made / "a b\nc.txt").write_bytes(b"odd name")
    (made / "deep" / "größe.bin").write_bytes(bytes(range(256)) * 20)
    (made / "deep" / "nothing").write_bytes(b"")
    (made / "deep" / "script.sh").write_bytes(b"#!/bin/sh\n")
    (made / "deep" / "script.sh").chmod(0o755)
    os.link(made / "deep" / "größe.bin", made / "hard.bin")
    os.utime(made / "deep" / "nothing", ns=(10**18, 10**18 + 2 * 10**9))
    return made


def same(one, other):
    """Whether two folders hold the same, with modes and times to the second zips keep."""
    compared = filecmp.dircmp(one, other)
    assert not compared.left_only
    assert not compared.right_only
    assert not compared.funny_files
    for name in compared.common_files:
        assert (one / name).read_bytes() == (other / name).read_bytes()
        assert (one / name).stat().st_mode == (other / name).stat().st_mode
        assert abs((one / name).stat().st_mtime - (other / name).stat().st_mtime) <= 2
    for name in compared.common_dirs:
        same(one / name, other / name)


@pytest.mark.parametrize("first", ENDINGS)
def test_a_folder_goes_through_any_archive_and_any_other_and_comes_out_the_same(run, folder, tmp_path, first):
    assert run("convert", "-q", "--archive", folder, tmp_path / f"a.{first}").exit_code == 0
    for second in ENDINGS:
        result = run("convert", "--archive", tmp_path / f"a.{first}", tmp_path / f"b.{second}")
        assert result.exit_code == 0, result.output
        assert f"b.{second}: 7 entries, " in result.output
        result = run("convert", "-q", "--archive", tmp_path / f"b.{second}", tmp_path / f"out-{second}")
        assert (result.exit_code, result.output) == (0, "")
        same(folder, tmp_path / f"out-{second}")
        assert run("verify", "-q", tmp_path / f"b.{second}").exit_code == 0


def test_what_is_an_archive_is_copied_without_asking(run, folder, tmp_path):
    subprocess.run(["tar", "-czf", tmp_path / "a.tgz", "-C", folder, "."], check=True)
    for name in ("b.tar", "b.zip", "b.barecat", "out/"):
        assert run("convert", "-q", tmp_path / "a.tgz", f"{tmp_path}/{name}").exit_code == 0
    same(folder, tmp_path / "out")
    assert run("convert", folder, tmp_path / "c.zip", "--exclude", "*.bin").exit_code == 0
    with zipfile.ZipFile(tmp_path / "c.zip") as archive:
        assert sorted(archive.namelist()) == ["a b\nc.txt", "deep/", "deep/empty/", "deep/nothing", "deep/script.sh"]
    again = run("convert", tmp_path / "a.tgz", tmp_path / "b.zip")
    assert (again.exit_code, "is there already; --force replaces it" in again.output) == (2, True)
    assert run("convert", "-q", "--force", tmp_path / "a.tgz", tmp_path / "b.zip").exit_code == 0


def test_the_same_entries_give_the_same_bytes(run, folder, tmp_path):
    for ending in ("tar", "tar.gz", "tar.zst", "zip", "barecat"):
        for name in "ab":
            assert run("convert", "-q", "--archive", folder, tmp_path / f"{name}.{ending}").exit_code == 0
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_gnu_tar_and_zipfile_unpack_what_was_written(run, folder, tmp_path):
    for ending in ("tar", "tar.gz", "tar.zst"):
        run("convert", "-q", "--archive", folder, tmp_path / f"a.{ending}")
        out = tmp_path / f"out-{ending}"
        out.mkdir()
        subprocess.run(["tar", "-xf", tmp_path / f"a.{ending}", "-C", out], check=True)
        same(folder, out)
        assert (out / "hard.bin").stat().st_nlink == 2


def test_a_path_that_leads_out_is_refused(run, tmp_path):
    (tmp_path / "a.tar").write_bytes(tar([("ok.txt", b"1"), ("../out.txt", b"2")]))
    for name in ("out/", "b.zip", "b.barecat", "b.tar"):
        result = run("convert", tmp_path / "a.tar", f"{tmp_path}/{name}")
        assert result.exit_code == 1
        assert "a.tar: the path '../out.txt' leads out of its folder" in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "out"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset leaves files open
def test_samples_become_tars_that_webdataset_reads(run, tmp_path):
    import webdataset

    samples = [{"__key__": f"s/{i:03d}", "jpg": b"\xff\xd8%d" % i, "txt": f"text {i}", "cls": i, "json": {"n": i}}
               for i in range(25)]  # fmt: skip
    fl.Dataset.from_sequence(samples).write(tmp_path / "t-%03d.tar", {"jpg": fl.BytesField()}, shard_samples=10)
    paths = sorted(map(str, tmp_path.glob("*.tar")))
    assert [os.path.basename(path) for path in paths] == ["t-000.tar", "t-001.tar", "t-002.tar"]
    theirs = list(webdataset.WebDataset(paths, shardshuffle=False, empty_check=False).decode())
    gc.collect()
    assert [(one["__key__"], one["txt"], one["cls"], one["json"]) for one in theirs] == [
        (one["__key__"], one["txt"], one["cls"], one["json"]) for one in samples
    ]
    mine = fl.open(f"{tmp_path}/t-*.tar", decode={"txt": True, "cls": True, "json": True})
    assert list(mine) == samples
    before = [Path(path).read_bytes() for path in paths]
    mine.write(tmp_path / "t-%03d.tar", {"jpg": fl.BytesField(), "cls": fl.IntField()}, shard_samples=10)
    assert [Path(path).read_bytes() for path in paths] == before
    result = run("convert", "--shard-size", "20KB", *paths, tmp_path / "u-%d.tar.gz")
    assert result.exit_code == 0, result.output
    assert "u-%d.tar.gz: " in result.output
    assert " in 5 files" in result.output
    assert [one["__key__"] for one in fl.open(f"{tmp_path}/u-*.tar.gz")] == [one["__key__"] for one in samples]


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tar.zst"])
def test_pipes_of_a_tar_are_left_out_and_told(run, tmp_path, ending):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a")
    os.mkfifo(tmp_path / "in" / "pipe")
    subprocess.run(["tar", "-cf", tmp_path / "x.tar", "-C", tmp_path / "in", "a.txt", "pipe"], check=True)
    pack = {"tar": bytes, "tar.gz": gzip.compress, "tar.zst": zstandard.compress}[ending]
    (tmp_path / f"x.{ending}").write_bytes(pack((tmp_path / "x.tar").read_bytes()))
    result = run("convert", "--json", "--exclude", "nothing", tmp_path / f"x.{ending}", tmp_path / "x.zip")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("'pipe' is a device or a pipe, which archives do not hold; left out") == 1
    assert json.loads(result.stdout)["left_out"] == 1
    assert zipfile.ZipFile(tmp_path / "x.zip").namelist() == ["a.txt"]
    result = run("verify", tmp_path / f"x.{ending}")
    assert (result.exit_code, "1 sample, 1 B of data: all good" in result.stdout) == (0, True)
    assert f"x.{ending}: 'pipe' is a device or a pipe" in result.stderr


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset leaves files open
def test_values_become_what_their_names_say(tmp_path):
    import webdataset

    pixels = np.random.default_rng(0).integers(0, 255, (6, 7, 3), np.uint8)
    samples = [
        {"__key__": f"{i}", "jpg": pixels, "left.png": pixels[::-1], "json": value}
        for i, value in enumerate(["text", 5, 1.5, [1, 2], {"a": None}, True])
    ]
    ds = fl.Dataset.from_sequence(samples).map(dict)  # of which only its values tell what they are
    ds.write(tmp_path / "a.tar", {"json": fl.JSONField()})
    mine = list(fl.open(tmp_path / "a.tar", decode=True))
    theirs = list(webdataset.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False, empty_check=False).decode("rgb8"))
    gc.collect()
    for one, his, wanted in zip(mine, theirs, samples, strict=True):
        assert one["json"] == his["json"] == wanted["json"]
        assert np.array_equal(one["left.png"], wanted["left.png"])
        assert np.array_equal(his["left.png"], wanted["left.png"])
        assert one["jpg"].shape == his["jpg"].shape == (6, 7, 3)
    with pytest.raises(fl.FastLoaderError, match=r"field 'jpg'.*no pixels of a file \.jpg: .*float32"):
        fl.Dataset.from_sequence([{"__key__": "a", "jpg": pixels.astype("float32")}]).write(tmp_path / "b.tar")


def test_keys_that_no_file_can_have_are_told(tmp_path):
    for key in ("a.b", "", 7):
        with pytest.raises(fl.FastLoaderError, match="is no name without a dot"):
            fl.Dataset.from_sequence([{"__key__": key, "txt": "x"}]).write(
                tmp_path / "a.tar", {"__key__": fl.JSONField()}
            )
    with pytest.raises(fl.FastLoaderError, match=r"field 'cls'.*a dict is no content of a file \.cls"):
        fl.Dataset.from_sequence([{"__key__": "a", "cls": {"n": 1}}]).write(tmp_path / "a.tar")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["a", "b", "a"], r"sample 2: has the key 'a' of sample 0.*leave __key__ out"),
        (["a", "./a"], r"sample 1: has the key '\./a' of sample 0"),
        (["a", "../x"], r"sample 1: the path '\.\./x' leads out of its folder; give other keys"),
        (["/x"], r"sample 0: the path '/x' is absolute"),
    ],
)
def test_keys_that_would_merge_samples_or_lead_out_are_refused(tmp_path, keys, said):
    samples = [{"__key__": key, "txt": "x"} for key in keys]
    with pytest.raises(fl.FastLoaderError, match=said):
        fl.Dataset.from_sequence(samples).write(tmp_path / "a.tar")
    assert list(tmp_path.iterdir()) == []


def test_a_key_may_come_again_in_another_tar(tmp_path):
    samples = [{"__key__": key, "txt": key} for key in ("a", "b", "a", "b")]
    fl.Dataset.from_sequence(samples).write(tmp_path / "a-%d.tar", shard_samples=2)
    assert [one["__key__"] for one in fl.open(tmp_path / "a-1.tar")] == ["a", "b"]


def test_indexes_are_made_for_many_files(run, tmp_path):
    paths = write_tars(tmp_path)
    result = run("index", *paths)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0].endswith("shard-0.tar: 4 samples of 12 members")
    assert run("index", "-q", "--beside", "--utix", f"{tmp_path}/*.tar").output == ""
    assert sorted(path.name for path in tmp_path.iterdir())[:3] == [
        "shard-0.tar", "shard-0.tar.index", "shard-0.tar.utix",
    ]  # fmt: skip
    assert list(fl.open(f"{tmp_path}/*.utix")) == list(fl.open(f"{tmp_path}/*.tar")) == all_samples()
    told = run("index", "--json", "--jsonl", paths[0])
    assert json.loads(told.output) == {"path": str(paths[0]), "samples": 4, "members": 12}
    assert json.loads((tmp_path / "shard-0.tar.utix").read_text().splitlines()[1])["iidx"] == 1
    (tmp_path / "cut.tar").write_bytes(paths[0].read_bytes()[:2000])
    (tmp_path / "no.txt").write_bytes(b"no tar")
    result = run("index", tmp_path / "cut.tar", tmp_path / "no.txt", paths[1])
    assert result.exit_code == 1
    assert "shard-1.tar: 4 samples" in result.output
    assert "cut.tar: offset" in result.output
    assert "no.txt: is no tar" in result.output
    for ending in ("tar.gz", "tar.zst"):
        run("convert", "-q", paths[0], tmp_path / f"packed.{ending}")
        assert f"packed.{ending}: 4 samples of 12 members" in run("index", tmp_path / f"packed.{ending}").output
        assert "only the index of a plain tar" in run("index", "--beside", tmp_path / f"packed.{ending}").output
    (tmp_path / "one.tar.zst").write_bytes(zstandard.compress(paths[0].read_bytes()))
    assert "has no frames to go to" in run("index", tmp_path / "one.tar.zst").output
    assert run("index", "--utix", "--jsonl", paths[0]).exit_code == 2
    assert run("index", f"{tmp_path}/*.nothing").exit_code == 2


def test_verify_reads_every_file(run, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", b"some text")
        archive.writestr("b.txt", b"more text")
    assert "a.zip: 2 samples, 18 B of data: all good" in run("verify", tmp_path / "a.zip").output
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[36] ^= 1
    (tmp_path / "a.zip").write_bytes(data)
    result = run("verify", tmp_path / "a.zip")
    assert result.exit_code == 1
    assert "a.zip: offset 35: 'a.txt' is damaged: crc32 stored 0x" in result.output
    (tmp_path / "a.tar").write_bytes(tar([("a.txt", b"x" * 2000)])[:2048])
    result = run("verify", tmp_path / "a.tar")
    assert result.exit_code == 1
    assert "a.tar: offset 0: 'a.txt' has 2000 bytes, and 1536 follow: the tar was cut short" in result.output


def test_a_path_that_leads_out_is_left_out_on_demand(run, tmp_path):
    (tmp_path / "a.tar").write_bytes(tar([("ok.txt", b"1"), ("../out.txt", b"2"), ("/abs.txt", b"3")]))
    for pattern in ("../out.txt", "../**"):
        told = run(
            "convert", "-q", "--exclude", pattern, "--exclude", "/abs.txt", tmp_path / "a.tar", f"{tmp_path}/b.zip"
        )
        assert (told.exit_code, told.output) == (0, "")
        with zipfile.ZipFile(tmp_path / "b.zip") as made:
            assert made.namelist() == ["ok.txt"]
        (tmp_path / "b.zip").unlink()


def test_links_that_lead_out_are_made_on_demand(run, tmp_path):
    (tmp_path / "in").mkdir()
    os.symlink("/etc", tmp_path / "in" / "etc")
    subprocess.run(["tar", "-cf", tmp_path / "a.tar", "-C", tmp_path / "in", "."], check=True)
    told = run("convert", tmp_path / "a.tar", f"{tmp_path}/out/")
    assert (told.exit_code, "make it with --any-links" in told.output) == (1, True)
    assert run("convert", "-q", "--any-links", tmp_path / "a.tar", f"{tmp_path}/out2/").exit_code == 0
    assert os.readlink(tmp_path / "out2" / "etc") == "/etc"
    assert run("convert", "--any-links", tmp_path / "a.tar", tmp_path / "a.zip").exit_code == 2


@pytest.mark.parametrize("name", ["out/", "b.fld", "b.zip", "b.barecat"])
def test_of_entries_with_one_path_one_is_taken_on_demand(run, tmp_path, name):
    (tmp_path / "a.tar").write_bytes(tar([("a", b"old"), ("b", b"1"), ("a", b"new")]))
    told = run("convert", "--archive", tmp_path / "a.tar", f"{tmp_path}/{name}")
    assert told.exit_code == 2
    assert "a.tar: 'a' is there more than once; --duplicates last takes the last, as tar does" in told.output
    for which, expected in (("first", b"old"), ("last", b"new")):
        to = ("convert", "-q", "--archive", "--force")
        assert run(*to, "--duplicates", which, tmp_path / "a.tar", f"{tmp_path}/{name}").exit_code == 0
        assert run(*to, f"{tmp_path}/{name}".rstrip("/"), f"{tmp_path}/{which}/").exit_code == 0
        assert (tmp_path / which / "a").read_bytes() == expected


def test_an_index_of_barecat_under_its_old_name_is_an_archive(run, folder, tmp_path):
    assert run("convert", "-q", folder, tmp_path / "old.barecat").exit_code == 0
    (tmp_path / "old.barecat").rename(tmp_path / "old.barecat-sqlite-index")
    assert "old.barecat-sqlite-index: 5 samples" in run("verify", tmp_path / "old.barecat").output.replace(
        "old.barecat:", "old.barecat-sqlite-index:"
    )
    assert run("convert", "-q", tmp_path / "old.barecat", tmp_path / "x.tar").exit_code == 0
    for source, to in (("x.tar", "out"), ("old.barecat", "out2")):
        assert run("convert", "-q", tmp_path / source, f"{tmp_path}/{to}/").exit_code == 0
        same(folder, tmp_path / to)


@pytest.mark.parametrize("to", ["out/", "b.tar", "b.zip", "b.fld", "b.parquet"])
def test_what_is_not_there_is_told_as_such(run, tmp_path, to):
    told = run("convert", tmp_path / "nope.zip", f"{tmp_path}/{to}")
    assert (told.exit_code, "nope.zip: there is no such file or folder" in told.output) == (2, True)


def test_what_was_copied_is_told_in_json(run, folder, tmp_path):
    told = json.loads(run("convert", "--json", "--exclude", "*.sh", folder, tmp_path / "a.zip").output)
    assert told.pop("seconds") >= 0
    expected = {"path": str(tmp_path / "a.zip"), "sources": [str(folder)], "entries": 6, "files": 3}
    assert told == {**expected, "bytes": 5128, "left_out": 1}
    (tmp_path / "x.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    told = json.loads(run("convert", "--json", tmp_path / "x.jsonl", tmp_path / "x.fld").output)
    size = (tmp_path / "x.fld").stat().st_size
    assert (told["samples"], told["size"], told["parts"], told["fields"]) == (2, size, 1, {"n": "IntField()"})
    told = json.loads(run("convert", "--json", "--dry-run", tmp_path / "x.jsonl", tmp_path / "y.fld").output)
    assert told == {"sources": [str(tmp_path / "x.jsonl")], "fields": {"n": "IntField()"}}


def test_a_pattern_that_fits_nothing_makes_no_archive(run, folder, tmp_path):
    told = run("convert", "--include", "*.none", folder, tmp_path / "a.zip")
    assert (told.exit_code, "nothing fits" in told.output) == (2, True)
    assert not (tmp_path / "a.zip").exists()
