"""Archives put into folders where that fails half way: what has a file's name is whole, and what was there stays."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastloader as fl
from fastloader.archive import FolderSink, folders
from fastloader.formats.entries import Entry, EntryKind

SIZES = [1000, 3 << 20]


def failing(monkeypatch, error: BaseException) -> None:
    """Have the disk take some bytes, and then raise."""
    plain, taken = os.write, []

    def write(fd: int, data: memoryview) -> int:
        if taken:
            raise error
        taken.append(True)
        return plain(fd, data[:100])

    monkeypatch.setattr(folders.os, "write", write)


def put(folder: Path, *entries: Entry, **options: object) -> None:
    with FolderSink(folder, **options) as sink:
        for entry in entries:
            sink.add(entry)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_full_disk_leaves_no_part_of_a_file(tmp_path, monkeypatch, size, overwrite):
    failing(monkeypatch, OSError(errno.ENOSPC, "full"))
    with pytest.raises(fl.StoreError, match=r"a/x: No space left on device; the disk is full; this was not written"):
        put(tmp_path / "out", Entry.of("a/x", bytes(size)), overwrite=overwrite)
    assert os.listdir(tmp_path / "out" / "a") == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_what_is_to_be_replaced_stays_until_then(tmp_path, monkeypatch, size, error):
    (tmp_path / "x").write_text("old")
    failing(monkeypatch, error)
    with pytest.raises((fl.StoreError, KeyboardInterrupt)):
        put(tmp_path, Entry.of("x", bytes(size)), overwrite=True)
    assert (tmp_path / "x").read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("size", SIZES)
def test_replaced_or_refused(tmp_path, size):
    (tmp_path / "x").write_text("old")
    with pytest.raises(fl.StoreError, match="--overwrite"):
        put(tmp_path, Entry.of("x", bytes(size)))
    assert (tmp_path / "x").read_text() == "old"
    put(tmp_path, Entry.of("x", bytes(size), 0o640, 5), overwrite=True)
    status = (tmp_path / "x").stat()
    assert (status.st_size, status.st_mode & 0o777, status.st_mtime_ns) == (size, 0o640, 5)
    put(tmp_path, Entry.of("y", bytes(size)))
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


@pytest.mark.parametrize("size", SIZES)
def test_what_is_replaced_is_never_followed(tmp_path, size):
    (tmp_path / "outside").write_text("safe")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").symlink_to("../outside")
    put(tmp_path / "out", Entry.of("x", bytes(size)), overwrite=True)
    assert (tmp_path / "outside").read_text() == "safe"
    assert not (tmp_path / "out" / "x").is_symlink()


def test_links_replace_what_is_there_too(tmp_path):
    entries = [
        Entry.of("a", b"1"), Entry(b"h", EntryKind.HARDLINK, target=b"a"), Entry(b"s", EntryKind.SYMLINK, target=b"a")
    ]  # fmt: skip
    for _ in range(2):
        put(tmp_path, *entries, overwrite=True)
        put(tmp_path, entries[1], overwrite=True)  # another name of the very file
        assert sorted(os.listdir(tmp_path)) == ["a", "h", "s"]
        assert (tmp_path / "h").samefile(tmp_path / "a")
        assert os.readlink(tmp_path / "s") == "a"
    with pytest.raises(fl.StoreError, match="--overwrite"):
        put(tmp_path, entries[2])


def test_a_file_system_without_hard_links(tmp_path, monkeypatch):
    def link(*args: object, **options: object) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(folders.os, "link", link)
    put(tmp_path, Entry.of("x", bytes(3 << 20)))
    assert os.listdir(tmp_path) == ["x"]


FULL_TMPFS = """
import os, subprocess, sys
import fastloader as fl
from fastloader.archive import FolderSink
from fastloader.formats.entries import Entry
where, size = sys.argv[1], int(sys.argv[2])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", where], check=True)
open(where + "/7", "w").write("old")
try:
    with FolderSink(where, overwrite=True) as sink:
        for name in range(100_000):
            sink.add(Entry.of(str(name), bytes(size)))
except fl.StoreError as error:
    print(error)
    left = {os.stat(os.path.join(where, name)).st_size for name in os.listdir(where) if name != "7"}
    print(left <= {size}, str(name) in os.listdir(where))
"""


def can_mount() -> bool:
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"]
    found = shutil.which("unshare")
    return bool(found) and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("size", [100_000, 2 << 20])
def a_disk_that_is_really_full(tmp_path, size):
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", FULL_TMPFS, str(tmp_path), str(size)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert "the disk is full; this was not written" in first
    assert second == "True False"


if can_mount():  # the tests above need no privilege and cover the same errors
    test_a_disk_that_is_really_full = a_disk_that_is_really_full
