"""Zips, as Python's zipfile writes them and reads ours."""

from __future__ import annotations

import os
import zipfile

import numpy as np
import pytest

import fastloader as fl
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.zip_entries import ZipSink, ZipSource
from fastloader.testing import FormatContract, identical


def content(number):
    return b"%d and so on, " % number * (number * 7) if number % 3 else os.urandom(0) + bytes(range(number))


class TestZips(FormatContract):
    def write(self, folder):
        for part in range(2):
            with zipfile.ZipFile(folder / f"{part}.zip", "w") as archive:
                archive.mkdir("cat")
                for i in range(part * 6, part * 6 + 6):
                    kind = zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED
                    archive.writestr(f"{'cat' if i % 4 else 'dög'}/{i}.txt", content(i), kind)
        return folder

    def samples(self):
        return [
            {"path": f"{'cat' if i % 4 else 'dög'}/{i}.txt", "data": content(i), "label": int(i % 4 == 0)}
            for i in range(12)
        ]

    def bad_files(self, folder):
        for i, (name, kind) in enumerate((("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED))):
            with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
                archive.writestr("a.txt", b"some text " * 9, kind)
            data = bytearray((folder / f"{name}.zip").read_bytes())
            data[40 + i] ^= 1
            (folder / f"{name}.zip").write_bytes(data)
            yield folder / f"{name}.zip", rf"{name}\.zip: sample 0, field 'data': (payload damaged|deflate: )"
        with zipfile.ZipFile(folder / "odd.zip", "w") as archive:
            archive.writestr("a.txt", b"some text " * 9, zipfile.ZIP_BZIP2)
        yield folder / "odd.zip", r"odd\.zip: offset 0: 'a\.txt' is packed by method 12; stored and deflated"
        data = (folder / "odd.zip").read_bytes()
        (folder / "locked.zip").write_bytes(data.replace(b"PK\1\2\x2e\3\x2e\0\0", b"PK\1\2\x2e\3\x2e\0\1"))
        yield folder / "locked.zip", r"locked\.zip: offset 0: 'a\.txt' is encrypted"


class TestGroupedZips(FormatContract):
    options = {"group": True, "decode": True}  # noqa: RUF012

    def write(self, folder):
        with zipfile.ZipFile(folder / "a.zip", "w") as archive:
            for i in range(7):
                archive.writestr(f"{i}.txt", f"text {i} " * i, zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED)
                if i % 3:
                    archive.writestr(f"{i}.cls", str(i))
        return folder / "a.zip"

    def samples(self):
        return [{"__key__": str(i), "txt": f"text {i} " * i, "cls": i if i % 3 else None} for i in range(7)]


def test_deflated_values_go_through_a_loader(tmp_path):
    path = TestZips().write(tmp_path)
    dataset = fl.open(path)
    for io in ("mmap", "pread", "uring"):
        batches = list(fl.DataLoader(dataset, 5, shuffle=False, io=io))
        assert [data for batch in batches for data in batch["data"]] == [content(i) for i in range(12)]
        assert identical(
            np.concatenate([batch["label"] for batch in batches]), np.array([i % 4 == 0 for i in range(12)], np.int64)
        )


def test_what_is_written_depends_on_the_entries_alone_and_is_read_by_zipfile(tmp_path):
    entries = [
        Entry(b"deep", EntryKind.DIRECTORY, 0o750, 10**18),
        *(Entry.of(f"deep/{i}.txt", content(i), 0o640, 1_700_000_000 * 10**9) for i in range(9)),
        Entry(b"link", EntryKind.SYMLINK, 0o777, 0, 0, b"deep/1.txt"),
        Entry(b"hard", EntryKind.HARDLINK, 0o640, 0, 0, b"deep/4.txt"),
        Entry.of("größe \n.bin", b"x"),
    ]
    for name in ("a.zip", "b.zip"):
        with ZipSink(tmp_path / name) as sink:
            for entry in entries:
                sink.add(entry)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
        assert archive.read("hard") == archive.read("deep/4.txt") == content(4)
        assert archive.getinfo("deep/1.txt").external_attr >> 16 == 0o100640
        assert archive.getinfo("deep/3.txt").compress_type == zipfile.ZIP_STORED
        assert archive.getinfo("deep/8.txt").compress_type == zipfile.ZIP_DEFLATED
    found = {entry.name: entry for entry in ZipSource(tmp_path / "a.zip").entries()}
    assert found["link"].target == b"deep/1.txt"
    assert found["deep/3.txt"].mtime == 1_700_000_000 * 10**9
    assert found["deep"].mode == 0o750
    assert bytes(found["deep/8.txt"].read()) == content(8)


def test_a_zip_that_can_not_be_written_leaves_nothing(tmp_path):
    def write(*entries):
        with ZipSink(tmp_path / "a.zip") as sink:
            for entry in entries:
                sink.add(entry)

    with pytest.raises(fl.FormatError, match="two entries are called 'a'"):
        write(Entry.of("a", b"1"), Entry.of("a", b"2"))
    with pytest.raises(fl.FormatError, match="is no UTF-8"):
        write(Entry.of(b"\xff", b"1"))
    with pytest.raises(fl.FormatError, match="hard link to what does not come"):
        write(Entry(b"a", EntryKind.HARDLINK, target=b"b"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "a/../../b"])
def test_paths_that_lead_out_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(fl.FormatError, match=r"a\.zip: the path .* (leads out of its folder|is absolute)"):
        list(ZipSource(tmp_path / "a.zip").entries())


def test_modes_come_back_even_none_at_all(tmp_path):
    with ZipSink(tmp_path / "a.zip") as sink:
        sink.add(Entry(b"d", EntryKind.DIRECTORY, 0))
        sink.add(Entry.of("x", b"1", 0))
        sink.add(Entry.of("y", b"1", 0o600))
    assert {entry.name: entry.mode for entry in ZipSource(tmp_path / "a.zip").entries()} == {"d": 0, "x": 0, "y": 0o600}
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as other:
        info = zipfile.ZipInfo("z")
        info.create_system = 0  # of a system without modes
        other.writestr(info, b"1")
    assert [entry.mode for entry in ZipSource(tmp_path / "b.zip").entries()] == [0o644]
