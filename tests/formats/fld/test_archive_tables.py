"""The tables of archives: what the document says of them, in the golden file and in files that lie."""

from __future__ import annotations

import contextlib
import os
import struct

import fld_by_hand as hand
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels
from fastloader.archive import Archive, FolderSink
from fastloader.formats.entries import EntryKind, checked_path, is_plain
from fastloader.formats.fld.layout import Kind

ARCHIVE = (hand.VECTORS / "archive.fld").read_bytes()
PATHS = [b"b/photo.jpg", b"b/\xff", b"a", b"b-"]


def nodes(data: bytes) -> list[tuple[bytes, bytes, int, int, int]]:
    """Path, target, time, mode and kind of each, read as the document says."""
    names = b"".join(hand.table(data, 14))
    found = []
    for row in hand.table(data, 13):
        begin, size, more, mtime, mode, kind, pad = struct.unpack("<QIIqIB3s", row)
        assert pad == bytes(3)
        found.append((names[begin : begin + size], names[begin + size : begin + size + more], mtime, mode, kind))
    return found


def test_keys_are_paths_and_their_order_is_a_table():
    assert [hand.key(ARCHIVE, i) for i in range(4)] == PATHS
    order = [int.from_bytes(row, "little") for row in hand.table(ARCHIVE, 12)]
    assert [PATHS[i] for i in order] == sorted(PATHS)


def test_nodes_are_sorted_by_path():
    assert nodes(ARCHIVE) == [
        (b"b/", b"", 10**18 + 1, 0o750, 1),
        (b"c", b"b-", 7, 0o644, 3),
        (b"empty/", b"", 0, 0o700, 1),
        (b"link", b"b/photo.jpg", -1, 0o777, 2),
    ]


def test_the_archive_says_the_same():
    archive = Archive(hand.VECTORS / "archive.fld")
    told = [(entry.name, entry.kind, entry.mode, entry.mtime, entry.size, entry.target) for entry in archive.entries()]
    assert told == [
        ("a", EntryKind.FILE, 0o602, 1, 0, b""),
        ("b-", EntryKind.FILE, 0o603, 2, 19, b""),
        ("b", EntryKind.DIRECTORY, 0o750, 10**18 + 1, 0, b""),
        ("b/photo.jpg", EntryKind.FILE, 0o600, -1, archive.entry("b/photo.jpg").size, b""),
        ("b/\udcff", EntryKind.FILE, 0o601, 0, 3, b""),
        ("c", EntryKind.HARDLINK, 0o644, 7, 0, b"b-"),
        ("empty", EntryKind.DIRECTORY, 0o700, 0, 0, b""),
        ("link", EntryKind.SYMLINK, 0o777, -1, 0, b"b/photo.jpg"),
    ]
    assert archive["link"] == (hand.VECTORS / "images/seekable/rgb-420.jpg").read_bytes()
    assert fl.verify(hand.VECTORS / "archive.fld", decode=True).ok


def changed(kind: Kind, at: int, value: bytes) -> bytes:
    """The golden file with other bytes in a table, and right checksums."""
    data = bytearray(ARCHIVE)
    entry = hand.entry(ARCHIVE, kind)
    data[entry.offset + at : entry.offset + at + len(value)] = value
    return hand.reseal_all(data)


LIES = {
    "a path that leads out": changed(Kind.KEY_BYTES, 0, b"../photo.jp"),
    "an absolute path": changed(Kind.KEY_BYTES, 0, b"/b/photo.jp"),
    "a path with a zero": changed(Kind.KEY_BYTES, 0, b"b\0"),
    "a folder that leads out": changed(
        Kind.NODE_BYTES, ARCHIVE.index(b"empty/") - hand.entry(ARCHIVE, 14).offset, b"../../"
    ),
    "an order that repeats": changed(Kind.KEY_ORDER, 0, bytes(16)),
    "an order of others": changed(Kind.KEY_ORDER, 0, b"\x09"),
    "a path that is elsewhere": changed(Kind.NODES, 0, b"\xff" * 8),
    "a path without end": changed(Kind.NODES, 8, b"\xff" * 4),
    "an unknown kind": changed(Kind.NODES, 28, b"\x09"),
    "a directory that is a link": changed(Kind.NODES, 28, b"\x02"),
    "nodes out of order": changed(Kind.NODE_BYTES, 0, b"z/"),
}


@pytest.mark.parametrize("lie", list(LIES))
def test_a_file_that_lies_is_found_out_and_does_no_harm(tmp_path, lie):
    place = tmp_path / "in" / "x.fld"
    place.parent.mkdir()
    place.write_bytes(LIES[lie])
    assert not fl.verify(place).ok
    archive = Archive(place)
    for use in (
        lambda: [bytes(entry.read()) for entry in archive.entries()],
        lambda: list(archive.walk()),
        lambda: [archive.entry(path) for path in (*PATHS, b"link", b"empty", b"c", b"")],
        lambda: list(archive.glob("**")),
    ):
        with contextlib.suppress(fl.FormatError, KeyError):
            use()
    with (
        pytest.raises((fl.FormatError, KeyError)) if "order" not in lie else _either(),
        FolderSink(tmp_path / "a" / "b") as sink,
    ):
        for entry in archive.entries():
            sink.add(entry)
    assert sorted(os.listdir(tmp_path)) == ["a", "in"]
    assert os.listdir(tmp_path / "a") == ["b"]


class _either:
    """Whatever happens, but for a crash."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> bool:
        return kind is None or issubclass(kind, fl.FormatError | OSError | KeyError)


@given(st.lists(st.binary(max_size=6), max_size=40))
def test_keys_are_sorted_as_python_sorts_them(keys):
    offsets = np.cumsum([0, *map(len, keys)], dtype=np.uint64)
    order = np.empty(len(keys), np.uint64)
    kernels.sort_keys(offsets, b"".join(keys), order)
    assert [keys[i] for i in order.tolist()] == sorted(keys)


def test_offsets_that_lie_are_refused_before_they_are_used():
    order = np.empty(2, np.uint64)
    for offsets in ([0, 5, 3], [0, 1, 100], [0, 1]):
        with pytest.raises(kernels.Failure):
            kernels.sort_keys(np.array(offsets, np.uint64), b"abc", order)


@given(st.lists(st.sampled_from([b"a", b"..", b".", b"", b"b\n", b"...", b"\xff"]), min_size=1, max_size=5))
def test_plain_paths_are_those_that_need_no_change(names):
    path = b"/".join(names)
    plain = all(name not in (b"", b".", b"..") for name in names)
    assert is_plain(path) == plain
    if plain:
        assert checked_path(path) == path
    elif b".." in names or path.startswith(b"/") or not any(name not in (b"", b".") for name in names):
        with pytest.raises(fl.FormatError):
            checked_path(path)
    else:
        assert checked_path(path) == b"/".join(name for name in names if name not in (b"", b"."))
