"""Files by path, one by one, many at a time and by threads, in memory and from disk: as the slow path has them."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_cache import drop, is_resident, on_disk
from tests.forking import forked

import fastloader as fl
from fastloader import kernels
from fastloader.archive import Archive, ArchiveWriter
from fastloader.archive.editing import remove
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.fld.layout import Kind

from .conftest import jpeg

libc = ctypes.CDLL(None, use_errno=True)
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def written(path: Path, files: dict[bytes, bytes], **options: object) -> Archive:
    with ArchiveWriter(path, workers=0, **options) as writer:
        for name, content in files.items():
            writer.add(Entry.of(name, content))
    return Archive(path)


def slowly(archive: Archive, path: str | bytes) -> bytes | None:
    """By way of the tree, which asks one table after the other."""
    try:
        return bytes(archive.view(path))
    except fl.KeyNotFoundError:
        return None


def forget(archive: Archive) -> None:
    """Have the kernel take back all of it, what is mapped too, and what still comes since it was asked for."""
    for number in range(len(archive.dataset.shards)):
        file = archive.dataset.file(number)
        file.bytes[:: mmap.PAGESIZE].sum()
        assert libc.madvise(file.bytes.ctypes.data, file.size, mmap.MADV_DONTNEED) == 0
        drop(file.path)
        assert not is_resident(file.bytes).any()


contents = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 5000).map(lambda size: b"ab" * size),  # which compresses well
    st.integers(0, 2).map(jpeg),
)
names = st.one_of(
    st.binary(min_size=1, max_size=6).filter(lambda name: not {0, ord("/")} & set(name) and name not in (b".", b"..")),
    st.integers(0, 99).map(lambda number: b"%02d.bin" % number),
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.dictionaries(names, contents, max_size=12), min_size=1, max_size=3),
    st.lists(names, max_size=8),
    st.sampled_from([None, "lz4", "zstd"]),
    st.sampled_from([None, 1, 600]),
    st.randoms(use_true_random=False),
)
def test_many_at_a_time_is_each_by_itself(tmp_path_factory, added, others, compression, shard_size, random):
    """In any shards: written in one go, or added to later, paths that are there already in place of what they were."""
    where = tmp_path_factory.mktemp("reads") / "x.fld"
    options = {"shard_size": shard_size} if shard_size else {}
    files: dict[bytes, bytes] = {}
    for number, some in enumerate(added):
        again = {"append": True, "replace": True} if number else {}
        archive = written(where, some, compression=compression, **options, **again)
        files |= some
    asked: list[str | bytes] = [*files, *(os.fsdecode(name) for name in files)]
    random.shuffle(asked)
    for _ in range(2):  # what is read for the first time goes another way than what is known to be in memory
        found = archive.read_many(asked)
        assert found == [files[os.fsencode(path)] for path in asked] == [slowly(archive, path) for path in asked]
        assert [archive[path] for path in asked] == found
        fast = archive._lookup()  # without the slow path behind it
        assert fast.get_many(asked) == (found, [])
        assert [fast.get(path) for path in asked] == [fast[path] for path in asked] == found
        assert [fast[path] for path in others] == [files.get(path) for path in others]
        assert fast.get_many([*others]) == (
            [files.get(path) for path in others], [number for number, path in enumerate(others) if path not in files],
        )  # fmt: skip
    for path in others:
        expected = slowly(archive, path)
        assert expected == files.get(path)
        if expected is None:
            with pytest.raises(fl.KeyNotFoundError) as one:
                archive[path]
            with pytest.raises(fl.KeyNotFoundError) as many:
                archive.read_many([*asked, path])
            assert str(one.value) == str(many.value)


def test_a_path_is_whatever_python_has_for_one(archive):
    """Text, bytes and what lends its bytes; links too, and any sequence of them."""
    paths = ("a/x.txt", b"a/x.txt", bytearray(b"a/x.txt"), memoryview(b"a/x.txt"), "a/link", "y-hard.txt", "/a/x.txt")
    assert archive.read_many(paths) == [b"hello"] * len(paths)
    assert archive.read_many([]) == []
    assert archive.read_many(["a.b", "\udcff\udcfe.bin", "a.b"]) == [b"", b"\x00\xff", b""]
    with pytest.raises(TypeError):
        archive.read_many(["a/x.txt", 5])
    with pytest.raises(fl.KeyNotFoundError, match=r"\\ud800"):
        archive.read_many(["a/x.txt", "\ud800"])


def test_paths_are_compared_and_not_their_hashes_alone(tmp_path):
    """Of a slot that says which file it is, 16 bits of the hash are known; here are paths that have them in common."""
    files = {b"%d.bin" % number: b"%d" % number for number in range(3000)}
    archive = written(tmp_path / "x.fld", files)
    assert archive.read_many(list(files)) == list(files.values())
    homes = int.from_bytes(archive.dataset.file(0).table(Kind.KEY_SLOTS).row(0), "little")
    taken = {home(path, homes) for path in files}
    alike = [path for path in (b"%d.txt" % number for number in range(400_000)) if home(path, homes) in taken]
    assert alike
    fast = archive._known_lookup
    for path in alike:
        assert fast[os.fsdecode(path)] is fast.get(path) is None
        assert fast.get_many([path, b"7.bin"]) == ([None, b"7"], [0])


def home(path: bytes, homes: int) -> tuple[int, int]:
    digest = kernels.xxh64(path)
    return digest * homes >> 64, digest & 0xFFFF


@pytest.mark.filterwarnings("ignore:nanobind")
def test_a_lookup_that_was_never_made_is_refused():
    with pytest.raises(TypeError):
        kernels.ArchiveLookup.__new__(kernels.ArchiveLookup)["a"]


def test_shards_whose_paths_lie_between_each_other(tmp_path):
    """Also one in which everything was removed, and paths before, between and behind them all."""
    where = tmp_path / "x.fld"
    evens = {b"%03d" % number: b"even %d" % number for number in range(0, 200, 2)}
    odds = {b"%03d" % number: b"odd %d" % number for number in range(1, 200, 2)}
    written(where, evens, shard_size=100)
    archive = written(where, odds, append=True)
    assert len(archive.dataset.shards) > 5
    both = evens | odds
    assert archive.read_many(sorted(both)) == [both[path] for path in sorted(both)]
    assert [archive.get(path) for path in ("", "0", "0000", "0985", "199", "1990", "2")] == [None] * 4 + [
        b"odd 199",
        None,
        None,
    ]
    remove(where, None, list(odds))
    archive = Archive(where)
    assert archive.read_many(list(evens)) == list(evens.values())
    assert all(path not in archive and archive.get(path) is None for path in odds)


@pytest.fixture(scope="module")
def on_a_disk(tmp_path_factory) -> Iterator[Path]:
    with on_disk(tmp_path_factory.mktemp("disk")) as place:
        yield place


@pytest.fixture(scope="module")
def files() -> dict[bytes, bytes]:
    rng = np.random.default_rng(1)
    return {b"%03d/%d" % (number % 7, number): rng.bytes(int(rng.integers(0, 60_000))) for number in range(400)}


@pytest.mark.parametrize("options", [{}, {"shard_size": "2M"}, {"compression": "lz4"}], ids=["one", "shards", "packed"])
def test_from_disk_it_is_the_same_bytes(options, on_a_disk, files):
    """Never read before, read before and forgotten by the system, one by one, many at a time and by threads."""
    where = on_a_disk / f"{'-'.join(options) or 'one'}.fld"
    written(where, files, **options)
    paths = [os.fsdecode(path) for path in files]
    paths = [paths[number] for number in np.random.default_rng(2).permutation(len(paths))]
    expected = [files[os.fsencode(path)] for path in paths]

    def threads(archive: Archive) -> list[bytes]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(archive.__getitem__, paths))

    for read in (lambda archive: archive.read_many(paths), lambda archive: [archive[path] for path in paths], threads):
        archive = Archive(where)
        for _ in range(3):
            forget(archive)
            assert read(archive) == expected
        assert read(archive) == expected
        forget(archive)
        assert forked(lambda archive=archive, read=read: read(archive) == expected)


def test_only_what_is_needed_comes_from_disk(on_a_disk, files):
    """A page that is merely touched brings megabytes with it, in kernels that have large pages."""
    where = on_a_disk / "little.fld"
    written(where, files)
    drop(where)
    archive = Archive(where)
    file = archive.dataset.file(0)
    data = file.bytes[: file.data.size]
    assert is_resident(data).sum() <= 1  # the header's
    chosen = [os.fsdecode(path) for path in list(files)[::40]]
    needed = sum(len(files[os.fsencode(path)]) for path in chosen)
    assert archive.read_many(chosen[:5]) + [archive[path] for path in chosen[5:]] == [
        files[os.fsencode(path)] for path in chosen
    ]
    assert is_resident(data).sum() * mmap.PAGESIZE <= needed + (2 * len(chosen) + 1) * mmap.PAGESIZE
    assert needed < file.data.size / 5


def damaged(archive: Archive, where: Path, at: int) -> Archive:
    data = bytearray(archive.path.read_bytes())
    data[at] ^= 1
    where.write_bytes(data)
    return Archive(where)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_one_damaged_file_of_many_is_named(compression, tmp_path, files):
    archive = written(tmp_path / "x.fld", files, compression=compression)
    path = os.fsdecode(list(files)[60])
    pointer = archive.dataset.file(0).payloads(1).extent(60)[0]
    bad = damaged(archive, tmp_path / "bad.fld", pointer + 3)
    paths = [os.fsdecode(path) for path in files]
    for _ in range(2):
        with pytest.raises(fl.ChecksumError, match=f"'{path}': payload damaged"):
            bad.read_many(paths)
        with pytest.raises(fl.ChecksumError, match=f"'{path}': payload damaged"):
            bad[path]
    paths.remove(path)
    assert bad.read_many(paths) == archive.read_many(paths)


@pytest.mark.parametrize("kind", [Kind.KEY_SLOTS, Kind.KEY_OFFSETS, Kind.KEY_BYTES, Kind.EXTENTS])
def test_a_damaged_table_is_found(kind, tmp_path, files):
    """By whoever needs anything of the block, also when all else on the way was checked before."""
    archive = written(tmp_path / "x.fld", files)
    file = archive.dataset.file(0)
    entry = next(entry for (one, field), entry in file.directory.items() if one == kind and field in (1, 0xFFFF))
    bad = damaged(archive, tmp_path / "bad.fld", entry.offset + 40)
    for path in files:  # the table is one block
        with pytest.raises(fl.ChecksumError, match=f"'{os.fsdecode(path)}': table block 0 is damaged"):
            bad[path]
    with pytest.raises(fl.ChecksumError, match="table block 0 is damaged: "):
        bad.read_many(list(files))


def test_a_damaged_part_of_a_table_concerns_those_in_it_alone(tmp_path):
    """Who reads many files has all of the tables checked on the way, and is told of what is damaged by its own."""
    files = {b"%05d.txt" % number: b"%d" % number for number in range(70_000)}  # tables of many blocks
    archive = written(tmp_path / "x.fld", files)
    entry = archive.dataset.file(0).directory[Kind.EXTENTS, 1]
    bad = damaged(archive, tmp_path / "bad.fld", entry.offset + 32 * 69_999)
    good = list(files)[::100][:-10]
    for _ in range(2):
        assert [bad[path] for path in good] == bad.read_many(good) == [files[path] for path in good]
        with pytest.raises(fl.ChecksumError, match=r"'69999\.txt': table block \d+ is damaged"):
            bad["69999.txt"]


def test_a_shard_that_does_not_tell_its_paths_may_hold_any(tmp_path, files):
    archive = written(tmp_path / "x.fld", files, shard_size="4M")
    assert len(archive.dataset.shards) > 2
    entry = archive.dataset.file(0).directory[Kind.KEY_BYTES, 0xFFFF]
    place = archive.dataset.file(0).path
    data = bytearray(place.read_bytes())
    data[entry.offset] ^= 1
    drop(place)
    place.unlink()
    place.write_bytes(data)
    archive = Archive(tmp_path / "x.fld")
    last = list(files)[-1]
    assert archive[last] == files[last]
    with pytest.raises(fl.ChecksumError, match="table block 0 is damaged"):
        archive.read_many(sorted(files))


def test_a_file_that_becomes_shorter_is_an_error(tmp_path, files):
    """Whichever of its parts is gone: payloads alone, or the tables too. Signals are a process's, so it has its own."""
    archive = written(tmp_path / "x.fld", files)
    paths = [os.fsdecode(path) for path in files]
    file = archive.dataset.file(0)
    ends = [file.data.offset + file.data.size // 2, 4096]

    def told() -> bool:
        archive.read_many(paths)  # so that all of it is known to be in memory
        for end in ends:
            os.truncate(archive.path, end)
            for read in (lambda: archive[paths[-1]], lambda: archive.read_many(paths[-9:])):
                with pytest.raises(fl.FormatError, match="the file became shorter"):
                    read()
        return True

    assert forked(told)


def test_links_among_many_are_followed(tmp_path):
    with ArchiveWriter(tmp_path / "x.fld") as writer:
        writer.add(Entry.of(b"a", b"one"))
        writer.add(Entry(b"b", EntryKind.SYMLINK, target=b"a"))
        writer.add(Entry(b"c", EntryKind.SYMLINK, target=b"nothing"))
    archive = Archive(tmp_path / "x.fld")
    assert archive.read_many(["b", "a", "b"]) == [b"one"] * 3
    with pytest.raises(fl.KeyNotFoundError, match="'c' is a link to 'nothing'"):
        archive.read_many(["a", "c"])
