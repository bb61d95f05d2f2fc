"""What FUSE asks of an archive, asked by hand: the same tree as after extraction, from any kind of archive."""

from __future__ import annotations

import errno
import importlib
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.mount.conftest import LARGE, Made, facts

from fastloader.errors import FormatError, MissingExtraError
from fastloader.formats.entries import Entry, EntryKind
from fastloader.mount import MountError, mounting
from fastloader.mount.contents import BLOCK, Blocks, Parts
from fastloader.mount.operations import ArchiveFiles
from fastloader.mount.shown import ShownEntries, shown_at


def opened(path: Path, complaints: list[str] | None = None) -> ArchiveFiles:
    """The operations of an archive; nothing is complained about unless somebody wants to hear it."""

    def complain(text: str) -> None:
        assert complaints is not None, text
        complaints.append(text)

    return ArchiveFiles(shown_at(str(path)), complain)


def content(files: ArchiveFiles, path: str, step: int = 131_072) -> bytes:
    """A file read as the kernel reads it."""
    number = files.open(path, os.O_RDONLY)
    try:
        size = files.getattr(path, number)["st_size"]
        return b"".join(files.read(path, step, at, number) for at in range(0, size + 1, step))
    finally:
        files.release(path, number)


def asked(files: ArchiveFiles, folder: str = "/") -> dict[bytes, tuple[object, ...]]:
    """What there is to know of everything, asked one question after the other."""
    found: dict[bytes, tuple[object, ...]] = {}
    names = list(files.readdir(folder, 0))
    assert [name for name, *_ in names[:2]] == [".", ".."]
    for name, kind, _ in names[2:]:
        path = f"{folder.rstrip('/')}/{name}"
        status = files.getattr(path)
        assert stat.S_IFMT(status["st_mode"]) == kind
        key = os.fsencode(path[1:])
        if stat.S_ISLNK(kind):
            found[key] = (status["st_mode"], 0, os.fsencode(files.readlink(path)))
        elif stat.S_ISREG(kind):
            found[key] = (status["st_mode"], status["st_mtime"], content(files, path))
        else:
            found[key] = (status["st_mode"], status["st_mtime"], None)
            found |= asked(files, path)
    return found


def test_the_tree_is_the_one_that_extraction_makes(made: Made) -> None:
    assert asked(opened(made.path)) == facts(made.extracted)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(reads=st.lists(st.tuples(st.integers(0, LARGE + 10), st.integers(0, 300_000)), min_size=1, max_size=5))
def test_any_part_of_a_file_can_be_read(made: Made, reads: list[tuple[int, int]]) -> None:
    files = opened(made.path)
    for name in ("large.bin", "large.txt"):
        whole = (made.extracted / name).read_bytes()
        number = files.open(f"/{name}", os.O_RDONLY)
        for offset, size in reads:
            assert files.read(f"/{name}", size, offset, number) == whole[offset : offset + size]
        files.release(f"/{name}", number)


@settings(max_examples=50, deadline=None)
@given(
    size=st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 7 * BLOCK + 5]),
    reads=st.lists(st.tuples(st.floats(0, 1.1), st.sampled_from([1, 1000, BLOCK, 2 * BLOCK + 3])), max_size=8),
)
def test_blocks_and_parts_are_the_bytes_that_were_asked_for(size: int, reads: list[tuple[float, int]]) -> None:
    whole = (b"0123456789abcdefghijklm" * (size // 23 + 1))[:size]

    def part(offset: int, count: int) -> bytes:
        assert count > 0
        assert offset + count <= size
        return whole[offset : offset + count]

    blocks, parts = Blocks(part, size), Parts(part, size)
    for share, count in reads:
        offset = int(share * size)
        for content in (blocks, parts):
            assert bytes(content.read(offset, count)) == whole[offset : offset + count]


def test_of_a_large_file_no_more_is_read_than_is_asked_for(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    if made.path.name.endswith((".gz", ".zst")):
        return  # its restart points are megabytes apart
    files = opened(made.path)
    number = files.open("/large.bin", os.O_RDONLY)
    read = 0
    pread = os.pread

    def counting(fd: int, size: int, offset: int) -> bytes:
        nonlocal read
        read += size
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", counting)
    assert (
        files.read("/large.bin", 1000, 4_000_000, number)
        == (made.extracted / "large.bin").read_bytes()[4_000_000:4_001_000]
    )
    assert read == 1000


def test_what_is_not_there_and_what_is_something_else(made: Made) -> None:
    files = opened(made.path)
    for ask, path, code in (
        (files.getattr, "/nothing", errno.ENOENT),
        (files.getattr, "/a/x.txt/y", errno.ENOENT),
        (files.readlink, "/a/x.txt", errno.EINVAL),
        (lambda path: list(files.readdir(path, 0)), "/a/x.txt", errno.ENOTDIR),
    ):
        with pytest.raises(OSError, match=r".") as raised:
            ask(path)
        assert raised.value.errno == code


def test_the_size_of_the_file_system_is_told(made: Made) -> None:
    told = opened(made.path).statfs("/")
    files = [path for path in made.extracted.rglob("*") if path.is_file() and not path.is_symlink()]
    assert told["f_blocks"] * told["f_bsize"] >= LARGE
    assert told["f_bfree"] == 0
    # A hard link in a .fld archive is a name, not a file.
    assert told["f_files"] in (len(files), len(files) - 1)


def test_damage_is_an_error_and_told(tmp_path: Path, plain_folder: Path) -> None:
    from fastloader.archive import ArchiveWriter, FolderSource

    with ArchiveWriter(tmp_path / "x.fld") as writer:
        writer.add_folder(FolderSource(plain_folder))
    data = bytearray((tmp_path / "x.fld").read_bytes())
    data[data.index(b"z" * 3000) + 7] ^= 1
    (tmp_path / "x.fld").write_bytes(data)
    complaints: list[str] = []
    files = opened(tmp_path / "x.fld", complaints)
    assert content(files, "/a/x.txt") == b"hello"
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        content(files, "/a-b")
    assert "crc32c stored" in complaints[0]


def test_a_file_that_becomes_shorter_is_an_error(tmp_path: Path, plain_folder: Path) -> None:
    from fastloader.archive import ArchiveWriter, FolderSource

    with ArchiveWriter(tmp_path / "x.fld") as writer:
        writer.add_folder(FolderSource(plain_folder))
    complaints: list[str] = []
    files = opened(tmp_path / "x.fld", complaints)
    number = files.open("/large.bin", os.O_RDONLY)
    os.truncate(tmp_path / "x.fld", 4096)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        files.read("/large.bin", 1000, 4_000_000, number)
    assert complaints


def test_of_entries_with_one_path_the_last_is_shown() -> None:
    shown = ShownEntries([Entry.of("a/b", b"old"), Entry.of("a/b", b"newer")], far=False)
    assert [name for name, _ in shown.listed(b"a")] == [b"b"]
    found = shown.entry(b"a/b")
    assert found is not None
    assert bytes(shown.content(found).read(0, 10)) == b"newer"


@pytest.mark.parametrize("order", [1, -1])
def test_a_path_is_no_folder_and_file_at_once(order: int) -> None:
    with pytest.raises(FormatError, match="'a' is both a folder and something else"):
        ShownEntries([Entry.of("a", b"file"), Entry.of("a/b", b"in it")][::order], far=False)


def test_hard_links_that_lead_nowhere_or_in_circles_are_left_out() -> None:
    links = [Entry(b"d/x", EntryKind.HARDLINK, target=b"d/y"), Entry(b"d/y", EntryKind.HARDLINK, target=b"d/x"),
             Entry(b"d/z", EntryKind.HARDLINK, target=b"none")]  # fmt: skip
    shown = ShownEntries([*links, Entry.of("d/w", b"")], far=False)
    assert [name for name, _ in shown.listed(b"d")] == [b"w"]


def test_a_stream_without_frames_is_refused(tmp_path: Path) -> None:
    import tarfile

    import zstandard

    (tmp_path / "x").write_bytes(b"1")
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(tmp_path / "x", "x")
    (tmp_path / "x.tar.zst").write_bytes(zstandard.compress((tmp_path / "x.tar").read_bytes()))
    with pytest.raises(FormatError, match=r"read from front to back; .fastloader convert. packs it"):
        shown_at(str(tmp_path / "x.tar.zst"))


def test_what_is_missing_is_told_with_its_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "mfusepy", None)
        with pytest.raises(MissingExtraError, match=r'pip install "fastloader\[mount\]"'):
            mounting.mount("x.fld", str(tmp_path))
    with monkeypatch.context() as patched:

        def no_library(name: str, *rest: Any) -> Any:
            if name == "mfusepy":
                raise OSError("Unable to find libfuse")
            return importlib.__import__(name, *rest)

        patched.setattr("builtins.__import__", no_library)
        with pytest.raises(MountError, match="apt install fuse3"):
            mounting.mount("x.fld", str(tmp_path))
    monkeypatch.setattr(mounting, "DEVICE", str(tmp_path / "fuse"))
    with pytest.raises(MountError, match="modprobe fuse"):
        mounting.mount("x.fld", str(tmp_path))
