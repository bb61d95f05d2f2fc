"""Archives made of archives, added to, taken from, and made smaller again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import fastloader as fl
from fastloader.archive import Archive, ArchiveWriter, Choice, FolderSink, FolderSource
from fastloader.archive.editing import compact, copy_archives, extract, remove
from fastloader.formats.entries import Entry, EntryExistsError

from .conftest import facts


def contents(archive: Archive) -> list[tuple[object, ...]]:
    """Every entry, with what it holds."""
    return [
        (entry, bytes(entry.read())) for entry in archive.entries()
    ]  # fmt: skip


def small(path: Path, **files: bytes) -> Archive:
    with ArchiveWriter(path, workers=0) as writer:
        for name, content in files.items():
            writer.add(Entry.of(name.replace("__", "/"), content))
    return Archive(path)


def test_a_part_is_copied_as_it_is_stored(archive, tmp_path):
    with ArchiveWriter(tmp_path / "part.fld") as writer:
        copy_archives([archive], writer, Choice(("*.jpg", "large"), ("cut*",)))
    part = Archive(tmp_path / "part.fld")
    assert [entry.path for entry in part.entries()] == [b"a", b"a/b", b"a/b/1.jpg", b"a/b/fake.jpg", b"large"]
    assert all(part[path] == archive[path] for path in part)
    one, other = (
        reader.dataset.file(0).payload(0, reader.dataset.file(0).find(b"a/b/1.jpg")) for reader in (part, archive)
    )
    assert bytes(one) == bytes(other)  # with its index


@pytest.mark.parametrize("size", [None, 500, 1 << 20])
def test_other_shards_hold_the_same(archive, tmp_path, size):
    with ArchiveWriter(tmp_path / "other.fld", shard_size=size) as writer:
        copy_archives([archive], writer)
    assert contents(Archive(tmp_path / "other.fld")) == contents(archive)
    if size is None:  # and one file is the very same
        assert (tmp_path / "other.fld").read_bytes() == archive.path.read_bytes()


def test_a_damaged_file_is_not_copied_with_a_new_checksum(archive, tmp_path):
    data = bytearray(archive.path.read_bytes())
    data[data.index(b"hello")] ^= 1
    (tmp_path / "bad.fld").write_bytes(data)
    with pytest.raises(fl.ChecksumError, match=r"a/x\.txt"), ArchiveWriter(tmp_path / "y.fld") as writer:
        copy_archives([Archive(tmp_path / "bad.fld")], writer)
    assert not (tmp_path / "y.fld").exists()


def test_several_become_one_in_the_order_of_paths(tmp_path):
    one, two = small(tmp_path / "1.fld", b=b"1", d__x=b"1"), small(tmp_path / "2.fld", a=b"2", d__x=b"2", c=b"2")
    with pytest.raises(EntryExistsError, match="'d/x' is in"), ArchiveWriter(tmp_path / "y.fld") as writer:
        copy_archives([one, two], writer)
    assert not (tmp_path / "y.fld").exists()
    for which, expected in (("first", b"1"), ("last", b"2")):
        with ArchiveWriter(tmp_path / "y.fld") as writer:
            copy_archives([one, two], writer, duplicates=which)
        assert dict(Archive(tmp_path / "y.fld")) == {"a": b"2", "b": b"1", "c": b"2", "d/x": expected}


@pytest.mark.parametrize("shards", [None, 500])
def test_files_are_added_and_replaced(folder, tmp_path, shards):
    where = tmp_path / "x.fld"
    (folder / "y-hard.txt").unlink()  # its two names would be added at different times, and be two files
    with ArchiveWriter(where, shard_size=shards) as writer:
        writer.add_folder(FolderSource(folder, Choice((), ("a", "large"))))
    with ArchiveWriter(where, append=True) as writer:
        writer.add_folder(FolderSource(folder, Choice(("a",))))
    with ArchiveWriter(where, append=True) as writer:
        writer.add_folder(FolderSource(folder, Choice(("large",))))
    assert sorted(Archive(where)) == sorted(name for name in _files(folder))
    (folder / "large").write_bytes(b"small now")
    before = Archive(where)
    with (
        pytest.raises(EntryExistsError, match="'large' is in the archive already; --replace"),
        ArchiveWriter(where, append=True) as writer,
    ):
        writer.add_folder(FolderSource(folder, Choice(("large",))))
    assert len(before["large"]) == len(Archive(where)["large"]) == 3 << 20
    with ArchiveWriter(where, append=True, replace=True) as writer:
        writer.add_folder(FolderSource(folder, Choice(("large", "a"))))
    assert Archive(where)["large"] == b"small now"
    assert len(before["large"]) == 3 << 20  # who has it open keeps what was there
    left = fl.open(where)  # who counts samples sees those that are left
    sizes = left.read_batch(range(len(left)), ["size"])["size"].tolist()
    assert sorted(sizes) == sorted(len(data) for data in Archive(where).values())
    assert compact(where) > 3_000_000
    again = Archive(where)
    assert len(fl.open(where)) == len(again) == len(list(again))
    with FolderSink(tmp_path / "out", set_ids=True) as sink:
        extract(again, sink)
    assert facts(tmp_path / "out") == facts(folder)
    assert fl.verify(where).ok
    assert not list(tmp_path.glob(".*"))
    assert not [name for name in os.listdir(where) if name.startswith(".")]


def _files(folder: Path) -> list[str]:
    return [entry.name for entry in FolderSource(folder).entries() if entry.is_file]


def test_a_folder_is_not_put_in_place_of_a_file(tmp_path):
    small(tmp_path / "x.fld", a=b"1")
    (tmp_path / "in" / "a").mkdir(parents=True)
    with (
        pytest.raises(EntryExistsError, match="is a folder"),
        ArchiveWriter(tmp_path / "x.fld", append=True, replace=True) as writer,
    ):
        writer.add_folder(FolderSource(tmp_path / "in"))


def test_adding_nothing_changes_nothing(archive):
    before = archive.path.read_bytes()
    with ArchiveWriter(archive.path, append=True):
        pass
    assert archive.path.read_bytes() == before


@pytest.mark.parametrize("sharded", [False, True])
def test_what_is_removed_is_gone_and_then_its_room(archive, tmp_path, sharded):
    where = tmp_path / "y.fld"
    with ArchiveWriter(where, shard_size=500 if sharded else None) as writer:
        copy_archives([archive], writer)
    expected = [
        one
        for one in contents(archive)
        if one[0].path not in (b"large", b"a/b/1.jpg", b"a/b/fake.jpg", b"empty", b"a/link")
    ]
    assert remove(where, Choice(("*.jpg",), ("cut*",)), [b"large", b"empty", b"a/link"]) == 5
    left = Archive(where)
    assert contents(left) == expected
    assert len(left) == len(list(left)) == len(archive) - 3
    for gone in ("large", "a/b/1.jpg", "empty"):
        assert gone not in left
        assert left.entry(gone) is None
        with pytest.raises(KeyError):
            left[gone]
    assert left.listdir("a/b") == ["2.JPG", "cut.jpg"]
    assert "large" not in left.listdir()
    size = sum(path.stat().st_size for path in where.rglob("*"))
    assert compact(where) > 0
    assert sum(path.stat().st_size for path in where.rglob("*")) < size - (3 << 20) + 10_000
    assert contents(Archive(where)) == expected
    assert compact(where) == 0
    assert fl.verify(where).ok


def test_a_folder_whose_files_are_all_removed_is_no_longer_implied(tmp_path):
    small(tmp_path / "x.fld", a=b"1", d__x=b"1", d__y__z=b"2", e=b"3")
    remove(tmp_path / "x.fld", None, [b"d"], recursive=True)
    left = Archive(tmp_path / "x.fld")
    assert (left.listdir(), left.isdir("d"), list(left.glob("**"))) == (["a", "e"], False, ["a", "e"])
    remove(tmp_path / "x.fld", Choice(("*",)))
    assert compact(tmp_path / "x.fld") > 0
    assert len(Archive(tmp_path / "x.fld")) == 0
    assert len(fl.open(tmp_path / "x.fld")) == 0


def test_removing_says_what_is_in_the_way(archive):
    with pytest.raises(KeyError, match="no entry 'nothing'"):
        remove(archive.path, None, [b"nothing"])
    with pytest.raises(KeyError, match="nothing fits"):
        remove(archive.path, Choice(("*.nothing",)))
    with pytest.raises(KeyError, match="-r removes what is in it"):
        remove(archive.path, None, [b"a"])
    with pytest.raises(fl.StoreError, match=r"has another name, 'y-hard\.txt', which stays"):
        remove(archive.path, None, [b"a/x.txt"])
    assert archive.path.is_file()
    assert remove(archive.path, None, [b"a/x.txt", b"y-hard.txt"]) == 2


def test_an_archive_can_be_concatenated_with_what_was_removed(archive, tmp_path):
    shutil.copy(archive.path, tmp_path / "y.fld")
    remove(tmp_path / "y.fld", None, [b"large"])
    fl.concatenate(tmp_path / "both.fld", [tmp_path / "y.fld", small(tmp_path / "z.fld", zz=b"1").path])
    both = Archive(tmp_path / "both.fld")
    assert "large" not in both
    assert both["zz"] == b"1"
    assert both["a/x.txt"] == b"hello"
