"""Archives in a store: written there, read by path, with no more fetched than is needed."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import fastloader as fl
from fastloader.archive.editing import copy_archives, extract
from fastloader.archive.folders import FolderSink
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.fld import file as fld_file
from fastloader.stores import open_store

FILES = {f"{i % 7}/{i:03d}.bin": np.random.default_rng(i).bytes(50 + i) for i in range(200)}


@pytest.mark.parametrize("shards", [None, 3000])
def test_an_archive_is_written_and_read(s3, shards, tmp_path):
    options = s3.storage_options()
    open_store("s3://archives", options)
    url = f"s3://archives/x{shards}.fld"
    with fl.ArchiveWriter(url, shard_size=shards, storage_options=options) as writer:
        for path, content in FILES.items():
            writer.add(Entry.of(path, content))
        writer.add(Entry(b"link", EntryKind.SYMLINK, target=b"3/003.bin"))
    archive = fl.Archive(url, options)
    assert archive["5/019.bin"] == FILES["5/019.bin"]
    assert archive["link"] == FILES["3/003.bin"]
    assert "nothing" not in archive
    assert list(archive) == sorted(FILES)
    assert archive.listdir() == [*"0123456", "link"]
    assert archive.read_many(["0/000.bin", "1/001.bin"]) == [FILES["0/000.bin"], FILES["1/001.bin"]]
    assert pickle.loads(pickle.dumps(archive))["1/001.bin"] == FILES["1/001.bin"]
    with FolderSink(tmp_path / "out") as sink:
        extract(archive, sink, top=b"3")
    assert (tmp_path / "out/3/003.bin").read_bytes() == FILES["3/003.bin"]
    with fl.ArchiveWriter(tmp_path / "copy.fld") as writer:
        copy_archives([archive], writer)
    assert dict(fl.Archive(tmp_path / "copy.fld")) == FILES
    loader = fl.DataLoader(archive, 50, fields=["size"], shuffle=False)
    assert sum(int(batch["size"].sum()) for batch in loader) == sum(map(len, FILES.values()))


def test_a_lookup_fetches_blocks_and_not_all_paths(s3, monkeypatch):
    """What is found so is what the whole tables say."""
    options = s3.storage_options()
    url = "s3://archives/far.fld"
    with fl.ArchiveWriter(url, storage_options=options) as writer:
        for path, content in FILES.items():
            writer.add(Entry.of(path, content))
    near = fl.Archive(url, options).dataset.file(0)
    monkeypatch.setattr(fld_file, "WHOLE", 16)
    far = fl.Archive(url, options).dataset.file(0)
    for path in [*FILES, "", "nothing", "0/000.bin/", "7/007.bin"]:
        assert far.find(path.encode()) == near.find(path.encode())
    assert far._keys is None
    monkeypatch.setattr(type(near), "keys", lambda self: pytest.fail("all keys were asked for"))
    archive = fl.Archive(url, options)
    assert archive["5/005.bin"] == FILES["5/005.bin"]
