"""Archives of Barecat: what the package writes is read here; what is written here it lists and verifies."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys

import barecat
import numpy as np
import pytest

import fastloader as fl
from fastloader.archive.conversion import sink_at
from fastloader.formats.barecat_entries import BarecatSink, BarecatSource, Fault, faults_of
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.tar_entries import TarSource
from fastloader.testing import FormatContract, identical


def content(number):
    return b"%d and so on, " % number * number


def theirs(path, count=12, shard_size=300):
    """An archive by the package."""
    with barecat.Barecat(path, readonly=False, shard_size_limit=shard_size) as archive:
        for i in range(count):
            archive[f"{'cat' if i % 2 else 'dog/größe'}/{i}.txt"] = content(i)
    return path


def ours(path, entries, shard_size=None):
    with BarecatSink(path, shard_size) as sink:
        for entry in entries:
            sink.add(entry)
    return path


def wanted(count=12):
    return [
        {"path": f"{'cat' if i % 2 else 'dog/größe'}/{i}.txt", "data": content(i), "label": int(i % 2 == 0)}
        for i in range(count)
    ]


class TestBarecat(FormatContract):
    def write(self, folder):
        return theirs(folder / "a.barecat")

    def samples(self):
        return wanted()

    def last_file(self, folder):
        return max(path for path in folder.iterdir() if "-shard-" in path.name)

    def bad_files(self, folder):
        for name, change, said in (
            (
                "far",
                "UPDATE files SET offset = 290 WHERE path = 'cat/5.txt'",
                r"-shard-00000: offset 290: 'cat/5\.txt'",
            ),
            ("minus", "UPDATE files SET offset = -5 WHERE path = 'cat/5.txt'", r"'cat/5\.txt' that it lies at \(0, -5"),
            ("text", "UPDATE files SET size = 'big' WHERE path = 'cat/5.txt'", r"'cat/5\.txt' that it lies at \(0, "),
            ("shard", "UPDATE files SET shard = 77 WHERE path = 'cat/5.txt'", r"-shard-00077: there is no such file"),
            (
                "sum",
                "UPDATE files SET crc32c = 7 WHERE path = 'cat/5.txt'",
                r"field 'data': payload damaged: crc32c stored 0x00000007, computed",
            ),
            ("old", "UPDATE config SET value_int = 2 WHERE key = 'schema_version_minor'", r"schema version 0\.2"),
            (
                "view",
                "DROP TABLE config; CREATE VIEW config AS SELECT 1",
                r"it lacks the tables files, dirs and config",
            ),
            ("none", "DELETE FROM files", r"holds no files"),
        ):
            path = theirs(folder / f"{name}.barecat")
            with sqlite3.connect(path) as connection:
                connection.executescript(f"UPDATE config SET value_int = 0 WHERE key = 'use_triggers'; {change}")
            connection.close()
            yield path, said


def test_what_is_written_here_is_listed_verified_and_read_there(tmp_path):
    when = 1_700_000_000_123_456_789
    entries = [
        Entry(b"empty/folder", EntryKind.DIRECTORY, 0o750, when),
        *(Entry.of(f"a/{i % 3}/{i}.bin", content(i), 0o640, when + i) for i in range(30)),
        Entry(b"a/hard.bin", EntryKind.HARDLINK, 0o600, when, 0, b"a/1/7.bin"),
        Entry.of("größe \n.txt", b""),
    ]
    path = ours(tmp_path / "x.barecat", entries, 900)
    assert len(list(tmp_path.iterdir())) > 4
    with barecat.Barecat(path) as archive:
        assert archive.verify_integrity()
        assert len(archive) == 32
        for i in range(30):
            assert archive[f"a/{i % 3}/{i}.bin"] == content(i)
        assert archive["a/hard.bin"] == content(7)
        assert archive["größe \n.txt"] == b""
        info = archive.index.lookup_file("a/1/7.bin")
        assert (stat.S_IMODE(info.mode), info.mtime_ns) == (0o640, when + 7)
        folder = archive.index.lookup_dir("a")
        assert (folder.num_subdirs, folder.num_files, folder.num_files_tree) == (3, 1, 31)
        assert folder.size_tree == sum(len(content(i)) for i in range(30)) + len(content(7))
        assert stat.S_IMODE(archive.index.lookup_dir("empty/folder").mode) == 0o750
    assert [one for one in faults_of(str(path)) if isinstance(one, Fault)] == []
    out = tmp_path / "out"
    command = [sys.executable, "-m", "barecat", "extract", str(path), "-C", str(out)]
    out.mkdir()
    subprocess.run(command, check=True, capture_output=True)
    assert (out / "a" / "2" / "29.bin").read_bytes() == content(29)


def test_the_package_goes_on_with_what_was_written_here(tmp_path):
    path = ours(tmp_path / "x.barecat", [Entry.of(f"a/{i}.bin", content(i)) for i in range(20)], 1000)
    with barecat.Barecat(path, readonly=False, append_only=False) as archive:
        archive["a/new/file.txt"] = b"new"
        for i in range(0, 20, 2):
            del archive[f"a/{i}.bin"]
        archive.index.rename("a/3.bin", "b.bin")
    subprocess.run([sys.executable, "-m", "barecat", "defrag", str(path)], check=True, capture_output=True)
    with barecat.Barecat(path) as archive:
        assert archive.verify_integrity()
    found = {one["path"]: one["data"] for one in fl.open(path)}
    assert found == {
        **{f"a/{i}.bin": content(i) for i in range(1, 20, 2) if i != 3}, "a/new/file.txt": b"new", "b.bin": content(3),
    }  # fmt: skip
    assert [one for one in faults_of(str(path)) if isinstance(one, Fault)] == []


def test_what_the_package_wrote_is_read_after_deletes_and_defrag(tmp_path):
    path = theirs(tmp_path / "a.barecat", 30, 2000)
    with barecat.Barecat(path, readonly=False, append_only=False) as archive:
        for one in wanted(30)[::3]:
            del archive[one["path"]]
    left = {one["path"]: one["data"] for number, one in enumerate(wanted(30)) if number % 3}
    for quick in ([], ["--quick"]):
        subprocess.run([sys.executable, "-m", "barecat", "defrag", *quick, str(path)], check=True, capture_output=True)
        assert {one["path"]: one["data"] for one in fl.open(path)} == left
        assert [one for one in faults_of(str(path)) if isinstance(one, Fault)] == []
        assert {e.name: bytes(e.read()) for e in BarecatSource(path).entries() if e.is_file} == left


@pytest.mark.parametrize("defrag", [False, True])
def test_empty_files_behind_what_the_package_deleted_are_read(tmp_path, defrag):
    path = theirs(tmp_path / "a.barecat", 5, 1000)
    with barecat.Barecat(path, readonly=False, append_only=False) as archive:
        archive["last"] = bytes(900)
        archive["empty/1"] = archive["empty/2"] = b""
        del archive["last"]  # cuts the shard, and the empty files keep their offset
        if defrag:
            archive.defrag()
        left = {name: bytes(archive[name]) for name in archive}
    assert {one["path"]: one["data"] for one in fl.open(path)} == left
    loader = fl.DataLoader(fl.open(path), 3, shuffle=False, fields=["data"])
    assert sorted(bytes(one) for batch in loader for one in batch["data"]) == sorted(left.values())
    assert [one for one in faults_of(str(path)) if isinstance(one, Fault)] == []
    entries = [entry for entry in BarecatSource(path).entries() if entry.is_file]
    assert {entry.name: bytes(entry.read()) for entry in entries} == left
    assert {entry.name: bytes(entry.part(0, entry.size)) for entry in entries} == left


def test_the_older_names_are_found(tmp_path):
    path = theirs(tmp_path / "a.barecat")
    path.rename(tmp_path / "a.barecat-sqlite-index")
    for name in ("a.barecat", "a.barecat-sqlite-index"):
        assert identical(list(fl.open(tmp_path / name)), wanted())
    assert identical(list(fl.open(tmp_path)), wanted())


def test_a_folder_holds_archives_with_their_shards(tmp_path):
    for name in "ab":
        theirs(tmp_path / f"{name}.barecat")
    dataset = fl.open(tmp_path)
    assert len(dataset) == 24
    assert dataset.classes == ("cat", "dog")


def test_an_archive_goes_into_a_loader_in_two_lines(tmp_path):
    from make_pictures import pictures

    ours(tmp_path / "x.barecat", [Entry.of(f"{'cat' if i % 2 else 'dog'}/{i}.jpg", jpeg)
                                  for i, (jpeg, _) in enumerate(pictures(10))], 9000)  # fmt: skip
    dataset = fl.open(tmp_path / "x.barecat", decode=True)
    loader = fl.DataLoader(
        dataset, 4, seed=1, pipelines={"data": [fl.ops.RandomResizedCrop(24), fl.ops.HorizontalFlip()]}
    )
    batches = list(loader)
    assert batches[0]["data"].shape == (4, 24, 24, 3)
    assert dataset.classes == ("cat", "dog")
    labels = {
        path: label for batch in batches for path, label in zip(batch["path"], batch["label"].tolist(), strict=True)
    }
    assert labels == {f"{'cat' if i % 2 else 'dog'}/{i}.jpg": int(i % 2 == 0) for i in range(10)}


def test_verifying_finds_what_the_package_finds(tmp_path):
    path = theirs(tmp_path / "a.barecat", 20, 10**6)
    shard = tmp_path / "a.barecat-shard-00000"
    data = bytearray(shard.read_bytes())
    data[200] ^= 1
    shard.write_bytes(data)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE config SET value_int = 0 WHERE key = 'use_triggers'")
        connection.execute("UPDATE dirs SET num_files_tree = 99 WHERE path = 'cat'")
    connection.close()
    told = [one.message for one in faults_of(str(path)) if isinstance(one, Fault)]
    assert len(told) == 2
    assert "is damaged: crc32c stored 0x" in told[0]
    assert told[1].startswith("the folder 'cat' has (subdirs, files, files below, bytes below) (0, 10, 10, ")
    with barecat.Barecat(path) as archive:
        assert not archive.verify_integrity()


def test_what_has_no_place_in_an_archive_is_refused_and_leaves_nothing(tmp_path):
    for entries, said in (
        ([Entry(b"a", EntryKind.SYMLINK, target=b"b")], "'a' is a symbolic link, and Barecat keeps none"),
        ([Entry.of(b"\xff", b"x")], "is no UTF-8"),
        ([Entry.of("a", b"x"), Entry.of("a", b"y")], "two entries have the same path"),
        ([Entry.of("a", b"x"), Entry.of("a/b", b"y")], "'a' is both a file and a folder"),
        ([Entry.of("a", b"x" * 101)], "'a' has 101 bytes, and a shard 100"),
        ([Entry(b"a", EntryKind.HARDLINK, target=b"b")], "hard link to what does not come before it"),
    ):
        with pytest.raises(fl.FormatError, match=said):
            ours(tmp_path / "x.barecat", entries, 100)
        assert list(tmp_path.iterdir()) == []


def test_paths_that_lead_out_are_refused(tmp_path):
    path = theirs(tmp_path / "a.barecat", 3)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE config SET value_int = 0 WHERE key = 'use_triggers'")
        connection.execute("UPDATE files SET path = '../../out.txt' WHERE path = 'cat/1.txt'")
    connection.close()
    with pytest.raises(fl.FormatError, match=r"a\.barecat: the path '\.\./\.\./out\.txt' leads out of its folder"):
        list(BarecatSource(path).entries())


def test_a_tar_becomes_an_archive_and_the_same_files_come_out(tmp_path):
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    for i in range(9):
        (folder / "deep" / f"{i}.bin").write_bytes(np.random.default_rng(i).bytes(i * 100))
    subprocess.run(["tar", "-cf", tmp_path / "a.tar", "-C", folder, "deep"], check=True)
    path = ours(tmp_path / "a.barecat", TarSource(tmp_path / "a.tar").entries())
    with barecat.Barecat(path) as archive:
        assert archive.verify_integrity()
        assert {name: archive[name] for name in archive} == {
            f"deep/{i}.bin": (folder / "deep" / f"{i}.bin").read_bytes() for i in range(9)
        }
    shutil.rmtree(folder)
    assert os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE files SET size = 'abc' WHERE path = 'a/1'", r"'a/1' that its size is b'abc'"),
        ("UPDATE files SET shard = NULL WHERE path = 'a/1'", r"'a/1' that its shard is None"),
        ("UPDATE files SET offset = -1 WHERE path = 'a/1'", r"'a/1' that its offset is -1"),
        ("UPDATE files SET crc32c = 1.5 WHERE path = 'a/1'", r"'a/1' that its crc32c is 1\.5"),
        ("UPDATE files SET mode = -1 WHERE path = 'a/1'", r"'a/1' that its mode is -1"),
        ("UPDATE files SET mtime_ns = 9e30 WHERE path = 'a/1'", r"'a/1' that its mtime_ns is 9e\+30"),
        ("UPDATE files SET path = NULL WHERE path = 'a/1'", r"a path that is None"),
        ("UPDATE dirs SET mtime_ns = 9e30 WHERE path = 'a'", r"'a' that its mtime_ns is 9e\+30"),
        ("UPDATE dirs SET mode = 'rwx' WHERE path = 'a'", r"'a' that its mode is b'rwx'"),
    ],
)
def test_rows_that_say_what_can_not_be(tmp_path, change, said):
    path = str(ours(tmp_path / "x.barecat", [Entry.of("a/1", b"1"), Entry.of("b", b"2")]))
    with sqlite3.connect(path) as connection:
        connection.executescript(  # without the constraints of the schema, which a stranger need not keep
            "CREATE TEMP TABLE kept AS SELECT * FROM files; DROP TABLE files; CREATE TABLE files AS SELECT * FROM kept;"
            f"UPDATE config SET value_int = 0 WHERE key = 'use_triggers'; {change}"
        )
    connection.close()
    faults = [one.message for one in faults_of(path) if isinstance(one, Fault)]
    assert any(re.search(said, one) for one in faults), faults
    with pytest.raises(fl.FormatError, match=rf"x\.barecat: .*{said}"):
        list(BarecatSource(path).entries())


class Failing:
    """A connection that fails at some statements."""

    def __init__(self, connection, word, code):
        self._connection, self._word, self._code = connection, word, code

    def __getattr__(self, name):
        method = getattr(self._connection, name)
        if name == "close":
            return method

        def call(statement, *rest):
            if self._word in statement:
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = self._code
                raise error
            return method(statement, *rest)

        return call


@pytest.mark.parametrize("word", ["journal_mode", "INTO files", "INTO dirs", "COMMIT"])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (sqlite3.SQLITE_FULL, "the disk is full"),
        (sqlite3.SQLITE_IOERR, "the index can't be written: .*; check its folder"),
    ],
)
def test_an_index_that_can_not_be_written_is_an_error_of_files(tmp_path, monkeypatch, word, code, said):
    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: Failing(plain(*args, **options), word, code))
    with pytest.raises(fl.StoreError, match=rf"x\.barecat: .*{said}"):
        ours(tmp_path / "x.barecat", [Entry.of("a/1", b"1")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.barecat", "x.zip", "x.tar", "x.tar.gz", "x.tar.zst"])
def test_a_full_disk_is_told_with_the_path(tmp_path, name):
    sink = sink_at(str(tmp_path / name))
    full = open("/dev/full", "wb")  # noqa: SIM115
    aside = sink._shards[0] if name == "x.barecat" else sink._aside
    place = aside.file.fileno()
    os.dup2(full.fileno(), place)
    full.close()
    entries = [Entry.of(f"{i}", np.random.default_rng(i).bytes(2 << 20)) for i in range(3)]
    with pytest.raises(fl.StoreError, match=rf"{name}.*: No space left on device; the disk is full"), sink:
        [sink.add(entry) for entry in entries]
    assert list(tmp_path.iterdir()) == []
