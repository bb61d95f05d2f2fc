"""Shards made apart, by a plan, are those that one writer makes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.archive.folders import FolderSource
from fastloader.archive.planning import plan_shards, write_shard
from fastloader.archive.writer import ArchiveWriter
from fastloader.formats.fld import Dataset, shard_name

NAMES = st.text("ab.-~", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
SIZES = [0, 22, 372, 872, 3000]  # with 128 for the tables, many fill a shard to the byte
THINGS = st.dictionaries(PATHS, st.sampled_from([*SIZES, "folder", "link", "second name"]), max_size=12)


def make(folder: Path, things: dict[str, int | str]) -> None:
    """A tree: files of these sizes, empty folders, links, and files that have a second name."""
    folder.mkdir()
    files: list[Path] = []
    for path, what in sorted(things.items()):
        place = folder / path
        if any(os.path.lexists(one) and (one.is_symlink() or not one.is_dir()) for one in place.parents) or (
            os.path.lexists(place)
        ):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if what == "folder":
            place.mkdir()
        elif what == "link":
            place.symlink_to("anywhere")
        elif what == "second name" and files:
            os.link(files[len(path) % len(files)], place)
        else:
            size = what if isinstance(what, int) else 10
            place.write_bytes(bytes([len(files) % 256]) * size)
            files.append(place)


@settings(max_examples=25, deadline=None)
@given(THINGS, st.sampled_from([1, 150, 500, 1000, 5000]), st.sampled_from([None, "zstd"]), st.sampled_from([0, 2]))
def test_they_are_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    things: dict[str, int | str],
    size: int,
    compression: str | None,
    jobs: int,
) -> None:
    place = tmp_path_factory.mktemp("planned")
    make(place / "in", things)
    with ArchiveWriter(place / "one.fld", shard_size=size, compression=compression, workers=jobs) as writer:
        writer.add_folder(FolderSource(place / "in"))
    (place / "apart").mkdir()
    files = total = 0
    for shard in plan_shards(FolderSource(place / "in"), size):
        made = write_shard(place / "apart" / shard_name(shard.number), shard, compression, 1)
        files, total = files + made[0], total + made[1]
    assert (files, total) == (writer.num_files, writer.num_bytes)
    apart = {path.name: path.read_bytes() for path in (place / "apart").iterdir()}
    assert apart == {path.name: path.read_bytes() for path in (place / "one.fld").glob("*.fld")}


@pytest.mark.parametrize(("size", "shard_size"), [(372, 1000), (372, 999), (0, 256), (872, 1000)])
def test_a_shard_is_full_to_the_byte(tmp_path: Path, size: int, shard_size: int) -> None:
    make(tmp_path / "in", {f"{i:03d}": size for i in range(6)})
    with ArchiveWriter(tmp_path / "one.fld", shard_size=shard_size) as writer:
        writer.add_folder(FolderSource(tmp_path / "in"))
    planned = [len(shard.names) for shard in plan_shards(FolderSource(tmp_path / "in"), shard_size)]
    assert planned == [shard.num_samples for shard in Dataset(tmp_path / "one.fld").shards]
    assert planned[0] == shard_size // (size + 128)


def test_a_shard_holds_no_more_than_its_size_of_files(tmp_path: Path) -> None:
    make(tmp_path / "in", {f"{i:03d}": 100 for i in range(50)})
    shards = list(plan_shards(FolderSource(tmp_path / "in"), 1000))
    assert [len(shard.names) for shard in shards] == [4] * 12 + [2]  # 100 bytes each, and 128 for the tables
    assert [shard.number for shard in shards] == list(range(13))
    assert b"".join(b"".join(shard.names) for shard in shards) == b"".join(b"%03d" % i for i in range(50))
