"""Every name of a file keeps its content, whatever is left out, put in its place or taken from elsewhere."""

from __future__ import annotations

import tarfile

import pytest
from forged import forge, hard, link

import fastloader as fl
from fastloader.archive import Archive, ArchiveWriter, Choice, FolderSink
from fastloader.archive.choosing import Chosen
from fastloader.archive.conversion import sink_at, source_at
from fastloader.archive.editing import compact, copy_archives, extract
from fastloader.errors import FormatError
from fastloader.formats.entries import Entry, UnsafePathError, copy_entries


def written(path, *entries, **options):
    with ArchiveWriter(path, workers=0, **options) as writer:
        for entry in entries:
            writer.add(entry)
    return Archive(path)


@pytest.fixture
def names(tmp_path):
    """One file of four names, one of which comes before that of the file."""
    file = Entry.of("f", b"old", mtime=7)
    return written(tmp_path / "x.fld", hard(b"a", b"f"), file, hard(b"g", b"f"), hard(b"h", b"f"))


def read(archive):
    """What every name leads to, and which are names of others."""
    kinds = {entry.name: entry.target.decode() for entry in archive.entries()}
    return {name: (archive[name], target) for name, target in kinds.items()}


def test_a_part_without_the_file(names, tmp_path):
    with ArchiveWriter(tmp_path / "y.fld") as writer:
        assert copy_archives([names], writer, Choice((), ("f", "a"))) == 2
    part = Archive(tmp_path / "y.fld")
    assert read(part) == {"g": (b"old", ""), "h": (b"old", "g")}
    assert part.entry("g").mtime == 7
    assert fl.verify(tmp_path / "y.fld").ok


@pytest.mark.parametrize(("which", "new"), [("first", {"f": (b"old", ""), "a": (b"old", "f")}),
                                            ("last", {"f": (b"new", ""), "a": (b"old", "")})])  # fmt: skip
def test_a_file_of_another_archive_is_another(names, tmp_path, which, new):
    other = written(tmp_path / "other.fld", Entry.of("f", b"new"), hard(b"z", b"f"))
    with ArchiveWriter(tmp_path / "y.fld") as writer:
        copy_archives([names, other], writer, duplicates=which)
    found = read(Archive(tmp_path / "y.fld"))
    assert {name: found[name] for name in new} == new
    assert [found[name][0] for name in "aghz"] == [b"old", b"old", b"old", b"new"]


@pytest.mark.parametrize("new", [Entry.of("f", b"new"), link(b"f", b"nowhere")])
def test_what_takes_the_place_of_a_file_leaves_its_other_names(names, new):
    written(names.path, new, append=True, replace=True)
    for _ in range(2):
        after = Archive(names.path)
        assert [after[name] for name in "agh"] == [b"old"] * 3
        assert [after.entry(name).target for name in "agh"] == [b"", b"a", b"a"]
        assert fl.verify(names.path).ok
        compact(names.path)


def test_names_that_are_replaced_with_it_are_no_more(names):
    new = [Entry.of(name, name.encode()) for name in "afg"]
    written(names.path, *new, append=True, replace=True)
    assert read(Archive(names.path)) == {"a": (b"a", ""), "f": (b"f", ""), "g": (b"g", ""), "h": (b"old", "")}


def test_a_name_of_a_name_leads_to_the_file(tmp_path):
    archive = written(tmp_path / "x.fld", Entry.of("f", b"old"), hard(b"g", b"f"), hard(b"h", b"g"))
    with ArchiveWriter(tmp_path / "y.fld") as writer:
        copy_archives([archive], writer, Choice((), ("g",)))
    assert read(Archive(tmp_path / "y.fld")) == {"f": (b"old", ""), "h": (b"old", "f")}
    written(archive.path, Entry.of("g", b"new"), append=True, replace=True)
    assert read(Archive(archive.path)) == {"f": (b"old", ""), "g": (b"new", ""), "h": (b"old", "f")}


@pytest.mark.parametrize("ending", ["fld", "tar", "tar.gz", "zip", "barecat"])
def test_any_archive_without_the_file(names, tmp_path, ending):
    with sink_at(str(tmp_path / "all.tar.gz")) as sink:
        assert copy_entries(names, sink) == 4
    with sink_at(str(tmp_path / f"y.{ending}")) as sink:
        chosen = Chosen(source_at(str(tmp_path / "all.tar.gz")), Choice(("g", "h")))
        assert copy_entries(chosen, sink) == 2
    with FolderSink(tmp_path / "out") as sink:
        copy_entries(source_at(str(tmp_path / f"y.{ending}")), sink)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {"g": b"old", "h": b"old"}


def test_of_several_with_one_path_the_last_counts_and_links_lead_to_the_one_before_them(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        for name, content in (("f", b"one"), ("g", None), ("f", b"two"), ("h", None), ("d", b"x"), ("f", b"three")):
            (tmp_path / "content").write_bytes(content or b"")
            info = made.gettarinfo(tmp_path / "content", name)
            if content is None:
                info.type, info.linkname, info.size = tarfile.LNKTYPE, "f", 0
            with (tmp_path / "content").open("rb") as file:
                made.addfile(info, file)
    (tmp_path / "theirs").mkdir()
    with tarfile.open(tmp_path / "a.tar") as theirs:
        for member in theirs:  # as tar does: what is there goes first
            (tmp_path / "theirs" / member.name).unlink(missing_ok=True)
            theirs.extract(member, tmp_path / "theirs", filter="data")
    for which, expected in (("last", {"f": b"three", "g": b"one", "h": b"two"}), ("first", {"f": b"one", "g": b"one"})):
        with ArchiveWriter(tmp_path / "y.fld") as writer:
            copy_entries(Chosen(source_at(str(tmp_path / "a.tar")), duplicates=which), writer)
        mine = Archive(tmp_path / "y.fld")
        assert {name: mine[name] for name in expected} == expected
        if which == "last":
            found = {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}
            assert found == {name: mine[name] for name in "dfgh"}


def test_a_link_to_nothing_is_named(tmp_path):
    archive = Archive(forge(tmp_path / "x.fld", Entry.of("a", b""), hard(b"g", b"gone")))
    said = "'g' is a hard link to 'gone', which is no file in the archive"
    with pytest.raises(FormatError, match=said), ArchiveWriter(tmp_path / "y.fld") as writer:
        copy_archives([archive], writer)
    with pytest.raises(FormatError, match=said), ArchiveWriter(tmp_path / "y.fld") as writer:
        copy_entries(Chosen(archive, Choice(("g",))), writer)
    with pytest.raises(UnsafePathError, match=said), FolderSink(tmp_path / "out") as sink:
        extract(archive, sink)


def test_names_are_found_and_files_counted(names):
    assert "g" in names
    assert names["g"] == b"old"
    assert (list(names), len(names)) == (["f"], 1)
