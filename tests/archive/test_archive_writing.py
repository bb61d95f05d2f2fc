"""What goes into archives, and comes out as it was."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

import fastloader as fl
from fastloader import kernels
from fastloader.archive import Archive, ArchiveWriter, Choice, FolderSink, FolderSource, folders
from fastloader.archive.conversion import sink_at
from fastloader.archive.editing import extract
from fastloader.archive.encoding import DATA
from fastloader.formats.entries import Entry, EntryKind, UnsafePathError, copy_entries
from fastloader.formats.fld import builder as building

from .conftest import facts, jpeg


def create(path: Path, source: FolderSource, **options: object) -> Archive:
    with ArchiveWriter(path, **options) as writer:
        writer.add_folder(source)
    return Archive(path)


def add_all(sink: ArchiveWriter | FolderSink, *entries: Entry) -> None:
    with sink:
        for entry in entries:
            sink.add(entry)


def restore(archive: Archive, where: Path, **options: object) -> Path:
    with FolderSink(where, set_ids=True) as sink:
        extract(archive, sink, **options)
    return where


def test_a_folder_comes_back_as_it_was(folder, archive, tmp_path):
    before = facts(folder)
    os.chmod(tmp_path, 0o755)
    assert facts(restore(archive, tmp_path / "out")) == before


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"workers": 3},
        {"compression": "zstd:19"},
        {"shard_size": 1000},
        {"compression": "lz4", "workers": 0},
    ],
)
def test_so_it_does_however_it_is_written(folder, tmp_path, options):
    archive = create(tmp_path / "x.fld", FolderSource(folder), **options)
    assert facts(restore(archive, tmp_path / "out")) == facts(folder)
    assert fl.verify(tmp_path / "x.fld").ok
    if "compression" in options:
        info = archive.dataset.file(0)
        *_, codec = info.payloads(DATA).extent(info.find(b"a-b"))  # a hundred times the same letter
        assert codec == kernels.codec_id(options["compression"])[0]


def test_the_bytes_do_not_depend_on_workers_chunks_or_the_way_in(folder, tmp_path, monkeypatch):
    def made(name: str, **options: object) -> dict[str, bytes]:
        create(tmp_path / name, FolderSource(folder), **options)
        place = tmp_path / name
        return {one.name: one.read_bytes() for one in place.iterdir()} if place.is_dir() else {"": place.read_bytes()}

    for options in ({}, {"shard_size": 700}):
        name = "sharded" if options else "one"
        first = made(name, workers=0, **options)
        assert made(f"{name}-2", workers=3, **options) == first
        monkeypatch.setattr("fastloader.archive.writer.CHUNK_FILES", 2)
        assert made(f"{name}-3", workers=2, **options) == first
        monkeypatch.undo()
        with ArchiveWriter(tmp_path / f"{name}-4", workers=1, **options) as writer:
            copy_entries(FolderSource(folder), writer)
        place = tmp_path / f"{name}-4"
        assert (
            {one.name: one.read_bytes() for one in place.iterdir()} if options else {"": place.read_bytes()}
        ) == first


def test_a_large_file_is_written_piece_by_piece(tmp_path, monkeypatch):
    """What is laid out in memory at once and what goes piece by piece is the same file."""
    (tmp_path / "in").mkdir()
    for number, size in enumerate((10, 5 << 20, 0, 123_457, 9 << 20)):
        (tmp_path / "in" / f"{number}").write_bytes(np.random.default_rng(number).bytes(size))
    whole = create(tmp_path / "whole.fld", FolderSource(tmp_path / "in"))
    monkeypatch.setattr(building, "_AT_ONCE", 100_000)
    pieces = create(tmp_path / "pieces.fld", FolderSource(tmp_path / "in"))
    assert (tmp_path / "pieces.fld").read_bytes() == (tmp_path / "whole.fld").read_bytes()
    assert all(pieces[path] == whole[path] == (tmp_path / "in" / path).read_bytes() for path in whole)


def test_patterns_choose_what_goes_in(folder, tmp_path):
    photos = create(tmp_path / "a.fld", FolderSource(folder, Choice(("*.jpg", "empty"), ("cut*",))))
    assert [entry.path for entry in photos.entries()] == [b"a", b"a/b", b"a/b/1.jpg", b"a/b/fake.jpg", b"empty"]
    others = create(tmp_path / "b.fld", FolderSource(folder, Choice((), ("a/b", "large", "*.bin"))))
    assert [entry.path for entry in others.entries()] == [
        b"a-b", b"a.b", b"a", b"a/link", b"a/x.txt", b"dangling", b"empty", b"folder-link", b"new\nline and space",
        b"y-hard.txt",
    ]  # fmt: skip


def test_a_list_is_sorted_and_may_name_what_find_names(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "SORTED_AT_ONCE", 2)
    names = [b"./new\nline and space", b"a/x.txt", os.fsencode(folder) + b"/a-b", b"a/b", b"./a/link", b"a/x.txt", b"."]
    archive = create(tmp_path / "x.fld", FolderSource(folder, names=names))
    assert [entry.path for entry in archive.entries()] == [
        b"a-b",
        b"a/b",
        b"a/link",
        b"a/x.txt",
        b"new\nline and space",
    ]
    with pytest.raises(fl.StoreError, match="nothing"):
        create(tmp_path / "y.fld", FolderSource(folder, names=[b"nothing"]))
    with pytest.raises(UnsafePathError):
        create(tmp_path / "y.fld", FolderSource(folder, names=[b"../x"]))
    assert not (tmp_path / "y.fld").exists()


def test_what_is_neither_file_nor_folder_nor_link_is_left_out_and_told(folder, tmp_path):
    os.mkfifo(folder / "pipe")
    told: list[str] = []
    archive = create(tmp_path / "x.fld", FolderSource(folder, warn=told.append))
    assert "pipe" not in archive.listdir()
    assert len(told) == 1
    assert "pipe" in told[0]


def test_a_file_that_goes_away_is_an_error_that_names_it(folder, tmp_path, monkeypatch):
    source = FolderSource(folder)
    found = list(source.found())
    monkeypatch.setattr(FolderSource, "found", lambda self: iter([*found, b"gone"]))
    with pytest.raises(fl.StoreError, match=r"gone: No such file or directory; leave it out with --exclude"):
        create(tmp_path / "x.fld", source, workers=2)
    assert list(tmp_path.glob("*x.fld*")) == []


def test_unsafe_paths_do_not_get_in(tmp_path):
    for path in (b"../x", b"/x", b"a/../../x", b"a\0b", b""):
        with pytest.raises(UnsafePathError), ArchiveWriter(tmp_path / "x.fld", workers=0) as writer:
            writer.add(Entry.of(path, b""))
    with pytest.raises(UnsafePathError), ArchiveWriter(tmp_path / "x.fld", workers=0) as writer:
        writer.add(Entry(b"a", EntryKind.HARDLINK, target=b"../b"))
    assert not (tmp_path / "x.fld").exists()


def test_a_path_given_twice_is_refused(tmp_path):
    with pytest.raises(fl.SampleError, match="'a'"):
        add_all(ArchiveWriter(tmp_path / "x.fld", workers=0), Entry.of(b"a", b"1"), Entry.of(b"a", b"2"))


def test_an_archive_that_is_empty_is_one(tmp_path):
    with ArchiveWriter(tmp_path / "x.fld"):
        pass
    archive = Archive(tmp_path / "x.fld")
    assert (len(archive), list(archive), archive.listdir(), list(archive.walk())) == (0, [], [], [("", [], [])])
    assert fl.verify(tmp_path / "x.fld").ok


@pytest.mark.parametrize(
    "entry",
    [
        Entry(b"../out", read=lambda: b"x"),
        Entry(b"/tmp/out", read=lambda: b"x"),
        Entry(b"a/../../out", read=lambda: b"x"),
        Entry(b"a//b", read=lambda: b"x"),
        Entry(b"link/out", read=lambda: b"x"),
        Entry(b"link/folder", EntryKind.DIRECTORY),
        Entry(b"out", EntryKind.SYMLINK, target=b"../out"),
        Entry(b"out", EntryKind.SYMLINK, target=b"/etc"),
        Entry(b"out", EntryKind.SYMLINK, target=b"folder/../../out"),
        Entry(b"folder/out", EntryKind.SYMLINK, target=b"../../out"),
        Entry(b"out", EntryKind.HARDLINK, target=b"../secret"),
        Entry(b"out", EntryKind.HARDLINK, target=b"link/secret"),
        Entry(b"out", EntryKind.HARDLINK, target=b"link"),
    ],
    ids=lambda entry: f"{entry.kind.name} {entry.path!r} {entry.target!r}",
)  # fmt: skip
@pytest.mark.parametrize("any_links", [False, True])
def test_nothing_is_written_outside_of_the_folder(tmp_path, entry, any_links):
    if any_links and entry.kind is EntryKind.SYMLINK:
        return  # that is what the option is for
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "out").mkdir()
    os.symlink("..", tmp_path / "out" / "link")
    before = {path.name for path in tmp_path.iterdir()}
    sink = FolderSink(tmp_path / "out", overwrite=True, any_links=any_links)
    with pytest.raises(UnsafePathError):
        add_all(sink, Entry(b"folder", EntryKind.DIRECTORY), entry)
    assert {path.name for path in tmp_path.iterdir()} == before
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "out" / "out").exists()


def test_a_link_of_the_archive_is_not_written_through(tmp_path):
    """First a link where a folder was, then a file in it."""
    link = Entry(b"a", EntryKind.SYMLINK, target=os.fsencode(tmp_path))
    with pytest.raises(UnsafePathError, match="is a link"):
        add_all(FolderSink(tmp_path / "out", any_links=True), link, Entry.of(b"a/evil", b"x"))
    assert not (tmp_path / "evil").exists()


def test_links_out_are_made_when_asked_for(tmp_path):
    with FolderSink(tmp_path / "out", any_links=True) as sink:
        sink.add(Entry(b"a", EntryKind.SYMLINK, target=b"/etc"))
    assert os.readlink(tmp_path / "out" / "a") == "/etc"


def test_files_that_are_there_stay_unless_told_otherwise(archive, folder, tmp_path):
    out = restore(archive, tmp_path / "out")
    (out / "a" / "x.txt").write_text("mine")
    with pytest.raises(fl.StoreError, match="--overwrite"):
        restore(archive, out)
    assert (out / "a" / "x.txt").read_text() == "mine"
    with FolderSink(out, overwrite=True, set_ids=True) as sink:
        extract(archive, sink)
    assert facts(out) == facts(folder)


def test_what_fits_is_extracted_and_a_link_without_its_file_becomes_one(archive, tmp_path):
    out = restore(archive, tmp_path / "out", choice=Choice(("y-*", "*.jpg")))
    assert sorted(os.listdir(out)) == ["a", "y-hard.txt"]
    assert (out / "y-hard.txt").read_text() == "hello"
    assert sorted(os.listdir(out / "a" / "b")) == ["1.jpg", "cut.jpg", "fake.jpg"]
    below = restore(archive, tmp_path / "below", top=b"a/b")
    assert os.listdir(below) == ["a"]


def test_hard_links_may_come_before_their_file(tmp_path):
    with FolderSink(tmp_path / "out") as sink:
        sink.add(Entry(b"a", EntryKind.HARDLINK, target=b"b/c"))
        sink.add(Entry.of(b"b/c", b"x", 0o640, 5))
    status = os.stat(tmp_path / "out" / "a")
    assert (status.st_nlink, stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (2, 0o640, 5)


def test_a_read_only_folder_is_filled_before_it_is_one(tmp_path):
    with FolderSink(tmp_path / "out") as sink:
        sink.add(Entry(b"a", EntryKind.DIRECTORY, 0o500, 9))
        sink.add(Entry.of(b"a/b", b"x"))
    status = os.stat(tmp_path / "out" / "a")
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (0o500, 9)


def test_a_jpeg_that_ends_like_an_index_keeps_its_bytes(tmp_path):
    """A file that is itself a JPEG with our index behind it, and one with something else behind it."""
    payload = bytes(fl.JPEGImageField().encode(jpeg()).payload)
    contents = {b"indexed.jpg": payload, b"more.jpg": jpeg() + b"tail" * 100, b"twice.jpg": jpeg() * 2}
    with ArchiveWriter(tmp_path / "x.fld") as writer:
        for path, content in contents.items():
            writer.add(Entry.of(path, content))
    archive = Archive(tmp_path / "x.fld")
    assert {os.fsencode(path): archive[path] for path in archive} == contents


@pytest.mark.parametrize("size", [10, 3 << 20])
def test_times_that_can_not_be_kept_are_told(tmp_path, size):
    far = 9_950_000_000  # in 2285; some file systems know no such year
    folder = tmp_path / "in"
    (folder / "d").mkdir(parents=True)
    (folder / "old").write_bytes(b"")
    os.utime(folder / "old", ns=(0, -5 * 10**9))
    (folder / "x").write_bytes(bytes(size))
    for name in ("x", "d"):
        os.utime(folder / name, (0, far))
    if (folder / "x").stat().st_mtime_ns != far * 10**9:
        return
    told: list[str] = []
    archive = create(tmp_path / "x.fld", FolderSource(folder, warn=told.append))
    times = {entry.name: entry.mtime for entry in archive.entries()}
    assert times == {"d": 2**63 - 1, "x": 2**63 - 1, "old": -5 * 10**9}
    assert sorted(told) == [f"the time of {name!r} is after 2262; kept as that year" for name in ("d", "x")]
    for name in ("y.fld", "y.barecat"):
        with (
            pytest.raises(fl.FormatError, match=r"the time of '[dx]' is after 2262"),
            sink_at(str(tmp_path / name)) as sink,
        ):
            copy_entries(FolderSource(folder), sink)
    with pytest.raises(fl.FormatError, match="the time of 'd' is before 1677"), ArchiveWriter(tmp_path / "z") as sink:
        sink.add(Entry(b"d", EntryKind.DIRECTORY, mtime=-(2**64)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "x.fld"]
