"""Files that change while they are read: what is stored was read once, and whoever asked is told."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import fastloader as fl
from fastloader.archive import Archive, ArchiveWriter, FolderSource
from fastloader.archive.checking import verify_archive
from fastloader.archive.conversion import sink_at, source_at
from fastloader.errors import StoreError
from fastloader.formats import file_content
from fastloader.formats.entries import copy_entries
from fastloader.formats.file_content import FileContent, pieces_of

SIZE = 3 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file that is read piece by piece."""
    top = tmp_path / "folder"
    top.mkdir()
    (top / "large").write_bytes(bytes(SIZE))
    os.utime(top / "large", (0, 0))
    return top


@pytest.fixture
def small_pieces(monkeypatch) -> None:
    monkeypatch.setattr(file_content, "PIECE", 1 << 20)


def content(folder: Path, **options: object) -> FileContent:
    return FileContent(os.fsencode(folder / "large"), SIZE, 0, **options)


def changing(monkeypatch, change) -> None:
    """Have ``change`` called behind each piece that is read."""
    plain = FileContent._read

    def read(self: FileContent, *args: object) -> int:
        got = plain(self, *args)
        change()
        return got

    monkeypatch.setattr(FileContent, "_read", read)


def test_it_is_given_in_pieces_or_whole_and_the_same(folder, small_pieces, monkeypatch):
    (folder / "large").write_bytes(data := np.random.default_rng(0).bytes(SIZE))
    os.utime(folder / "large", (0, 0))
    file = content(folder)
    assert len(file) == SIZE
    assert b"".join(map(bytes, pieces_of(file))) == data
    assert bytes(file()) == data
    monkeypatch.setattr(file_content, "IN_MEMORY", 1000)
    assert bytes(file(folder)) == data
    assert os.listdir(folder) == ["large"]
    assert file.starts_with(data[:3])
    assert not file.starts_with(b"no")


def test_what_is_gone_is_zeros_and_told(folder, small_pieces):
    told: list[str] = []
    (folder / "large").write_bytes(b"x" * SIZE)
    pieces = pieces_of(content(folder, warn=told.append))
    first = bytes(next(pieces))
    os.truncate(folder / "large", 1500 << 10)
    rest = b"".join(map(bytes, pieces))
    assert first + rest == (b"x" * (1500 << 10)).ljust(SIZE, b"\0")
    assert told == [f"{folder}/large: file changed as it was read; 1,609,728 bytes of it were gone and are zeros"]


def test_where_nobody_listens_a_change_is_an_error(folder, monkeypatch):
    changing(monkeypatch, lambda: os.truncate(folder / "large", SIZE + 1))
    with pytest.raises(StoreError, match="large: file changed as it was read"):
        content(folder)()


def test_what_took_the_place_of_a_file_is_refused(folder):
    file = content(folder)
    (folder / "large").unlink()
    os.mkfifo(folder / "large")
    with pytest.raises(StoreError, match="is no file any more"):
        file()


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"workers": 0}])
@pytest.mark.parametrize("change", ["other bytes", "shorter"])
def test_an_archive_of_a_changing_file_is_sound(folder, tmp_path, small_pieces, monkeypatch, options, change):
    def happen() -> None:
        if change == "shorter":
            os.truncate(folder / "large", 1 << 20)
        else:
            (folder / "large").write_bytes(os.urandom(SIZE))

    changing(monkeypatch, happen)
    told: list[str] = []
    with ArchiveWriter(tmp_path / "x.fld", **options) as writer:
        writer.add_folder(FolderSource(folder, warn=told.append))
    assert fl.verify(tmp_path / "x.fld").ok
    assert len(Archive(tmp_path / "x.fld")["large"]) == SIZE
    assert len(told) == 1
    assert "large: file changed as it was read" in told[0]


@pytest.mark.parametrize("ending", ["zip", "barecat", "tar", "fld"])
def test_so_are_archives_of_others(folder, tmp_path, small_pieces, monkeypatch, ending):
    changing(monkeypatch, lambda: (folder / "large").write_bytes(os.urandom(SIZE)))
    told: list[str] = []
    out = str(tmp_path / f"x.{ending}")
    with sink_at(out) as sink:  # type: ignore[attr-defined]
        copy_entries(FolderSource(folder, warn=told.append), sink)
    assert len(told) == 1
    assert {entry.size: len(entry.read()) for entry in source_at(out).entries()} == {SIZE: SIZE}
    if ending == "barecat":
        assert verify_archive(out).ok
