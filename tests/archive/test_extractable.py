"""``verify`` calls good what can be extracted, and nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sqlite3
import tarfile
import zipfile

import pytest
from forged import forge, hard, link

import fastloader as fl
from fastloader.archive import Archive, ArchiveWriter, FolderSink
from fastloader.archive.checking import verify_archive
from fastloader.archive.conversion import sink_at, source_at
from fastloader.archive.editing import remove
from fastloader.formats.entries import Entry, EntryKind, copy_entries
from fastloader.verification import Problem, Report

FILE = Entry.of("f", b"x")
BAD = {
    "below a link": ([link(b"d", b"e"), Entry.of("d/evil", b"x")], "'d/evil' lies below 'd', which is no folder"),
    "below a file": ([Entry.of("a", b"x"), Entry.of("a-b", b""), Entry.of("a/b", b"x")], "'a/b' lies below 'a'"),
    "absolute": ([FILE, hard(b"g", b"/etc/hostname")], "'g' is a hard link to '/etc/hostname', which leads out"),
    "up": ([FILE, hard(b"g", b"../f")], r"'g' is a hard link to '../f', which leads out"),
    "circle": ([FILE, hard(b"g", b"h"), hard(b"h", b"g")], "'g' is a hard link to 'h', which leads back to itself"),
    "dangling": ([FILE, hard(b"g", b"gone")], "'g' is a hard link to 'gone', which is no file in the archive"),
    "to a link": ([link(b"f", b"x"), hard(b"g", b"f")], "'g' is a hard link to 'f', which is no file in the archive"),
    "empty": ([FILE, link(b"l", b"")], "the link 'l' has no target"),
    "up and out": ([FILE, Entry.of("../evil", b"x")], "the path '../evil' is not one that can be extracted"),
}  # fmt: skip
GOOD = {
    "name of a name": [FILE, hard(b"g", b"f"), hard(b"h", b"g")],
    "beside": [Entry.of("a", b"x"), Entry.of("a-b/c", b"x"), Entry.of("a.b", b"x"), Entry.of("b/a", b"")],
    "link to a folder": [Entry(b"d", EntryKind.DIRECTORY, 0o755), Entry.of("d/f", b"x"), link(b"l", b"d")],
}  # fmt: skip


def as_tar(path, entries):
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as made:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            kinds = {EntryKind.HARDLINK: tarfile.LNKTYPE, EntryKind.SYMLINK: tarfile.SYMTYPE}
            kinds |= {EntryKind.FILE: tarfile.REGTYPE, EntryKind.DIRECTORY: tarfile.DIRTYPE}
            info.type, info.linkname, info.size = kinds[entry.kind], entry.target.decode(), entry.size
            info.mode = 0o755
            made.addfile(info, io.BytesIO(bytes(entry.read())))
    return path


def extracts(path, folder, *, any_links=False):
    try:
        with FolderSink(folder, any_links=any_links) as sink:
            copy_entries(source_at(str(path)), sink)
    except (fl.FastLoaderError, OSError):
        return False
    return True


def report_of(path):
    try:
        return fl.verify(path) if path.suffix == ".fld" else verify_archive(str(path), False)
    except fl.FormatError as error:  # a tar with a hard link to what does not come before it is none
        return Report(problems=[Problem("", error.message)])


def made(path, entries):
    return forge(path, *entries) if path.suffix == ".fld" else as_tar(path, entries)


@pytest.mark.parametrize("ending", ["fld", "tar", "tar.gz"])
@pytest.mark.parametrize("case", BAD)
def test_what_can_not_be_extracted_is_a_problem(tmp_path, case, ending):
    entries, said = BAD[case]
    path = made(tmp_path / f"x.{ending}", entries)
    report = report_of(path)
    assert not report.ok
    if ending == "fld" or not any(entry.kind is EntryKind.HARDLINK for entry in entries):
        assert any(said in str(problem) for problem in report.problems), report.problems
    assert not extracts(path, tmp_path / "out", any_links=True)


@pytest.mark.parametrize("ending", ["fld", "tar", "tar.gz"])
@pytest.mark.parametrize("case", GOOD)
def test_what_can_be_is_none(tmp_path, case, ending):
    path = made(tmp_path / f"x.{ending}", GOOD[case])
    report = report_of(path)
    assert (report.problems, report.notes) == ([], [])
    assert extracts(path, tmp_path / "out")


@pytest.mark.parametrize("ending", ["fld", "tar", "tar.gz"])
def test_links_that_lead_out_are_noted(tmp_path, ending):
    entries = [FILE, link(b"out", b"/etc"), link(b"up", b"../x")]
    path = made(tmp_path / f"x.{ending}", entries)
    report = report_of(path)
    assert report.ok
    assert [note.message for note in report.notes] == [
        "the link 'out' leads out of the folder, to '/etc'", "the link 'up' leads out of the folder, to '../x'",
    ]  # fmt: skip
    assert not extracts(path, tmp_path / "out")
    assert extracts(path, tmp_path / "out2", any_links=True)


def test_zips_and_barecat_archives(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        for name in ("a", "a/b", "../evil"):
            made.writestr(name, b"x")
    said = [problem.message for problem in verify_archive(str(tmp_path / "a.zip"), False).problems]
    assert said == [
        "the path '../evil' is not one that can be extracted", "the path 'a/b' lies below 'a', which is no folder",
    ]  # fmt: skip
    sink_at(str(tmp_path / "a.barecat")).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "a.barecat")) as made, made:
        made.execute("INSERT INTO files (path, shard, offset, size, crc32c) VALUES ('../evil', 0, 0, 0, 0)")
    said = [problem.message for problem in verify_archive(str(tmp_path / "a.barecat"), False).problems]
    assert "the path '../evil' is not one that can be extracted" in said


def test_shards_are_looked_at_together_and_what_is_removed_is_not(tmp_path):
    path = tmp_path / "x.fld"
    for entry in (Entry.of("a", b"1"), Entry.of("b", b"2"), Entry.of("a/c", b"3"), hard(b"d", b"b")):
        with ArchiveWriter(path, append=path.exists(), workers=0) as writer:
            writer.add(entry)
    (problem,) = fl.verify(path).problems
    assert problem.message == "the path 'a/c' lies below 'a', which is no folder"
    remove(path, None, [b"a/c"])
    assert fl.verify(path).ok
    assert Archive(path)["d"] == b"2"


def test_an_index_of_barecat_under_its_old_name(tmp_path):
    with sink_at(str(tmp_path / "a.barecat")) as sink:
        sink.add(FILE)
    shutil.move(tmp_path / "a.barecat", tmp_path / "a.barecat-sqlite-index")
    report = verify_archive(os.fspath(tmp_path / "a.barecat"), False)
    assert (report.ok, report.num_samples) == (True, 1)
