"""An archive as a mapping, as a tree, and as a dataset."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.forking import forked

import fastloader as fl
from fastloader.archive import Archive, ArchiveWriter
from fastloader.formats.entries import Entry, EntryKind

FILES = [
    "a-b", "a.b", "a/b/1.jpg", "a/b/2.JPG", "a/b/cut.jpg", "a/b/fake.jpg", "a/x.txt", "large", "new\nline and space",
    "\udcff\udcfe.bin",
]  # fmt: skip


def written(path: Path, entries: list[Entry], **options: object) -> Archive:
    with ArchiveWriter(path, **options) as writer:
        for entry in entries:
            writer.add(entry)
    return Archive(path)


def test_it_is_a_mapping_from_paths_to_what_the_files_hold(archive, folder):
    assert isinstance(archive, Mapping)
    assert list(archive) == FILES
    assert len(archive) == len(FILES)
    for path in FILES:
        content = (folder / path).read_bytes()
        assert archive[path] == archive[os.fsencode(path)] == content
        assert bytes(archive.view(path)) == content
        assert path in archive
    assert archive.read_many(FILES) == [archive[path] for path in FILES]
    assert dict(archive.items())["a/x.txt"] == b"hello"
    assert archive.get("nothing") is None


@pytest.mark.parametrize("path", ["nothing", "a", "a/b", "", "a/x.txt/b", "/..", "dangling", "\ud800"])
def test_what_is_no_file_is_a_key_error(archive, path):
    assert path not in archive
    with pytest.raises(KeyError) as told:
        archive[path]
    assert isinstance(told.value, fl.KeyNotFoundError)


def test_links_are_followed_within_the_archive(archive):
    assert archive["a/link"] == archive["y-hard.txt"] == b"hello"
    assert archive["folder-link/1.jpg"] == archive["a/b/1.jpg"]
    assert archive.listdir("folder-link") == archive.listdir("a/b")
    assert archive.entry("a/link").target == b"x.txt"
    assert archive.entry("y-hard.txt").kind is EntryKind.HARDLINK
    with pytest.raises(KeyError, match="is a link to 'nowhere'"):
        archive["dangling"]


def test_links_that_lead_out_or_in_circles_lead_nowhere(tmp_path):
    archive = written(
        tmp_path / "x.fld",
        [
            Entry(b"circle", EntryKind.SYMLINK, target=b"circle"),
            Entry(b"one", EntryKind.SYMLINK, target=b"two"),
            Entry(b"two", EntryKind.SYMLINK, target=b"one"),
            Entry(b"out", EntryKind.SYMLINK, target=b"../x.fld"),
            Entry(b"root", EntryKind.SYMLINK, target=b"/etc/passwd"),
        ],
    )
    for path in ("circle", "one", "out", "root"):
        assert path not in archive
        with pytest.raises(KeyError):
            archive[path]


def test_folders_are_listed_and_walked_as_the_file_system_does(archive, folder):
    assert archive.listdir() == sorted(
        os.listdir(folder),
        key=lambda name: name + "/" * ((folder / name).is_dir() and not (folder / name).is_symlink()),
    )
    assert sorted(archive.listdir("a")) == sorted(os.listdir(folder / "a"))
    assert archive.listdir("empty") == []
    ours = {top: (set(folders), set(files)) for top, folders, files in archive.walk()}
    for top, folders, files in os.walk(folder):
        links = {name for name in folders if os.path.islink(os.path.join(top, name))}
        path = os.path.relpath(top, folder)
        assert ours.pop("" if path == "." else path) == (set(folders) - links, set(files) | links)
    assert not ours
    with pytest.raises(KeyError):
        archive.listdir("nothing")


def test_walking_enters_only_what_stays_in_the_list(archive):
    seen = []
    for top, folders, _ in archive.walk():
        seen.append(top)
        if "b" in folders:
            folders.remove("b")
    assert seen == ["", "a", "empty"]


@pytest.mark.parametrize(
    "pattern",
    ["*", "*/*", "a/*.txt", "**/*.jpg", "a/**", "**", "a/b/?.jpg", "**/b", "[a]*", "*/[!x]*", "nothing/*", "a/x.txt"],
)
def test_glob_finds_what_pathlib_finds(archive, folder, pattern):
    expected = {str(path.relative_to(folder)) for path in folder.glob(pattern)} - {"."}
    if pattern.endswith("**"):  # pathlib takes it for folders alone
        top = folder / pattern.rstrip("*")
        expected = {str(path.relative_to(folder)) for path in top.rglob("*")}
    found = list(archive.glob(pattern))
    assert set(found) == {path for path in expected if not path.startswith("folder-link/")}
    assert len(found) == len(set(found))


def test_glob_follows_links_that_are_named(tmp_path):
    with ArchiveWriter(tmp_path / "x.fld") as writer:
        writer.add(Entry.of("a/b/1.txt", b"1"))
        writer.add(Entry.of("a/2.txt", b"2"))
        for path, target in ((b"link", b"a"), (b"a/up", b".."), (b"file", b"a/2.txt"), (b"lost", b"nothing")):
            writer.add(Entry(path, EntryKind.SYMLINK, target=target))
    archive = Archive(tmp_path / "x.fld")
    for pattern, expected in (
        ("link/*", ["link/2.txt", "link/b", "link/up"]),
        ("link/b/*", ["link/b/1.txt"]),
        ("link/2.txt", ["link/2.txt"]),
        ("link/*/1.*", ["link/b/1.txt"]),
        ("link/**/*.txt", ["link/2.txt", "link/b/1.txt"]),
        ("link/up/link/b/?.txt", ["link/up/link/b/1.txt"]),
        ("a/up/*.txt", []),
        ("a/up/**/1.txt", ["a/up/a/b/1.txt"]),
        ("file/*", []), ("lost/*", []), ("link/none/*", []), ("lost", ["lost"]),
    ):  # fmt: skip
        assert list(archive.glob(pattern)) == expected, pattern


@pytest.mark.parametrize("pattern", ["", "/", "//"])
def test_a_pattern_that_names_nothing_finds_nothing(archive, pattern):
    assert list(archive.glob(pattern)) == []


def test_files_open_like_files(archive, folder):
    with archive.open("large") as file:
        data = (folder / "large").read_bytes()
        assert file.read(10) == data[:10]
        file.seek(-5, os.SEEK_END)
        assert file.read() == data[-5:]
        file.seek(100)
        assert (file.read(1 << 20), file.tell()) == (data[100 : 100 + (1 << 20)], 100 + (1 << 20))
    with archive.open("a/x.txt", "r") as file:
        assert file.read() == "hello"
    with pytest.raises(ValueError, match="ArchiveWriter"):
        archive.open("a/x.txt", "w")
    with pytest.raises(ValueError, match="mode='r'"):
        archive.open("a/x.txt", "rb", encoding="utf-8")


def test_threads_forks_and_other_processes_may_use_one(archive):
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(archive.__getitem__, FILES * 20)) == [archive[path] for path in FILES] * 20
    assert forked(lambda: archive["a/x.txt"] == b"hello")
    again = pickle.loads(pickle.dumps(archive))
    assert again["a/b/1.jpg"] == archive["a/b/1.jpg"]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(archive.__getitem__, "a/x.txt").result() == b"hello"


def test_jpeg_files_are_images_and_all_keep_their_bytes(archive, folder):
    reader = fl.open(archive.path)
    assert len(reader) == len(FILES)
    images = {path for path in FILES if reader.read_payload(path, "image") is not None}
    assert images == {"a/b/1.jpg", "a/b/2.JPG", "a/b/cut.jpg"}
    assert bytes(reader.read_payload("a/b/2.JPG", "image")) == (folder / "a/b/2.JPG").read_bytes()
    assert reader.read_sample("a/x.txt")["data"] == b"hello"


def test_a_loader_takes_its_images_and_crops_them_in_the_engine(archive):
    chosen = archive.indices("a/b/[12].*", images=True)
    options = {"fields": ["image"], "pipelines": {"image": [fl.ops.RandomResizedCrop(16)]}}
    loader = fl.DataLoader(archive, 2, indices=chosen, shuffle=False, seed=3, **options)
    assert "native" in loader.explain()
    (batch,) = loader
    assert batch["image"].shape == (2, 16, 16, 3)
    same = fl.DataLoader(fl.open(archive.path), 2, indices=chosen, shuffle=False, seed=3, **options)
    assert np.array_equal(next(iter(same))["image"], batch["image"])


def test_it_is_a_dataset_of_its_files(archive):
    sizes = [sample["size"] for sample in archive.map(lambda sample: sample).options(on_error="skip")]
    assert sizes == [len(archive[path]) for path in FILES if path != "a/b/cut.jpg"]  # which does not decode
    batches = list(archive.take(4).shuffle(seed=2).batch(2))
    assert sorted(np.concatenate([batch["size"] for batch in batches]).tolist()) == sorted(sizes[:4])


def test_a_dataset_that_is_no_archive_is_told_from_one(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"data": fl.BytesField()}, keys=True) as writer:
        writer.write_sample({"data": b"x"}, "key")
    with pytest.raises(fl.FormatError, match="is a dataset and no archive"):
        Archive(tmp_path / "x.fld")
    with pytest.raises(fl.FormatError, match="is a dataset and no archive"):
        ArchiveWriter(tmp_path / "x.fld", append=True)


def test_a_writer_of_datasets_leaves_archives_alone(archive):
    with pytest.raises(fl.StoreError, match="fastloader add"):
        fl.DatasetWriter(archive.path, None, mode="a")


def test_damage_is_found_and_names_the_path(archive, tmp_path):
    data = bytearray(archive.path.read_bytes())
    data[data.index(b"hello")] ^= 1
    (tmp_path / "bad.fld").write_bytes(data)
    bad = Archive(tmp_path / "bad.fld")
    for read in (bad.__getitem__, bad.view, lambda path: bad.read_many(["a-b", path])):
        with pytest.raises(fl.ChecksumError, match=r"bad\.fld: 'a/x\.txt': payload damaged"):
            read("a/x.txt")
    assert bad["a-b"] == archive["a-b"]


names = st.lists(
    st.binary(min_size=1, max_size=3).filter(lambda n: b"/" not in n and b"\0" not in n and n not in (b".", b"..")),
    min_size=1,
    max_size=4,
)


def tree_of(paths: list[list[bytes]]) -> dict[bytes, EntryKind]:
    """Entries that a file system could hold: nothing lies in a file."""
    kinds: dict[bytes, EntryKind] = {}
    for parts in paths:
        above = [b"/".join(parts[:end]) for end in range(1, len(parts))]
        path = b"/".join(parts)
        if path in kinds or any(kinds.get(one, EntryKind.DIRECTORY) is not EntryKind.DIRECTORY for one in above):
            continue
        for one in above:
            kinds.setdefault(one, EntryKind.DIRECTORY)
        kinds[path] = [EntryKind.FILE, EntryKind.FILE, EntryKind.DIRECTORY, EntryKind.SYMLINK][len(kinds) % 4]
    return kinds


@settings(deadline=None, max_examples=60)
@given(st.lists(names, max_size=25), st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_any_tree_in_any_order_in_any_shards_is_found_again(tmp_path_factory, paths, random, sharded, all_folders):
    kinds = tree_of(paths)
    entries = [
        Entry.of(path, path * 3)
        if kind is EntryKind.FILE
        else Entry(path, kind, target=b"x" if kind is EntryKind.SYMLINK else b"")
        for path, kind in kinds.items()
        if all_folders or kind is not EntryKind.DIRECTORY or not any(other.startswith(path + b"/") for other in kinds)
    ]
    random.shuffle(entries)
    where = tmp_path_factory.mktemp("tree") / "x.fld"
    archive = written(where, entries, workers=0, **({"shard_size": 20} if sharded else {}))
    assert sorted(entry.path for entry in archive.entries()) == sorted(entry.path for entry in entries)
    files = sorted(path for path, kind in kinds.items() if kind is EntryKind.FILE)
    assert [os.fsencode(path) for path in archive] == files
    assert all(archive[path] == path * 3 for path in files)
    for path, kind in kinds.items():
        assert archive.entry(path).kind is kind
    for top in (b"", *(path for path, kind in kinds.items() if kind is EntryKind.DIRECTORY)):
        inside = {path[len(top) + 1 if top else 0 :] for path in kinds if not top or path.startswith(top + b"/")}
        expected = {name for name in inside if b"/" not in name}
        listed = [os.fsencode(name) for name in archive.listdir(top)]
        assert sorted(listed) == sorted(expected)
    assert fl.verify(where, num_workers=0).ok
