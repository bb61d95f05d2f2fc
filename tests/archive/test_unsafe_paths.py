"""A path that leads out of its folder goes from no archive into any other."""

from __future__ import annotations

import pytest
from forged import forge, hard

from fastloader.archive import Archive, ArchiveWriter
from fastloader.archive.conversion import sink_at, source_at
from fastloader.archive.editing import copy_archives
from fastloader.formats.entries import Entry, UnsafePathError, copy_entries

BAD = [
    (Entry.of("../evil", b"x"), r"the path '\.\./evil' leads out of its folder"),
    (Entry.of("/etc/evil", b"x"), "the path '/etc/evil' is absolute"),
    (Entry.of("a//b", b"x"), "the path 'a//b' is not plain"),
    (hard(b"host", b"/etc/hostname"), "the path '/etc/hostname' is absolute"),
]


@pytest.mark.parametrize(("entry", "said"), BAD)
@pytest.mark.parametrize("name", ["out", "y.fld", "y.tar", "y.tar.gz", "y.zip", "y.barecat"])
def test_no_sink_gets_it(tmp_path, entry, said, name):
    path = forge(tmp_path / "x.fld", Entry.of("ok", b""), entry)
    with pytest.raises(UnsafePathError, match=f"x.fld: {said}"), sink_at(str(tmp_path / name)) as sink:
        copy_entries(source_at(str(path)), sink)
    assert {one.name for one in tmp_path.iterdir()} <= {"x.fld", "out"}


@pytest.mark.parametrize(("entry", "said"), BAD)
def test_nor_does_an_archive_of_archives(tmp_path, entry, said):
    archive = Archive(forge(tmp_path / "x.fld", Entry.of("ok", b""), entry))
    with pytest.raises(UnsafePathError, match=f"x.fld: {said}"), ArchiveWriter(tmp_path / "y.fld") as writer:
        copy_archives([archive], writer)
