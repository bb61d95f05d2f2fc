"""Archives of others in stores: what their formats promise of files holds of objects."""

from __future__ import annotations

import itertools
import pickle

import pytest
from http_server import web_server
from tar_files import all_samples, write_tars

import fastloader as fl
from fastloader.archive.conversion import source_at
from fastloader.formats import indexes
from fastloader.formats import tar as tars
from fastloader.formats.barecat_entries import BarecatSink
from fastloader.formats.entries import Entry, copy_entries
from fastloader.formats.objects import open_object
from fastloader.formats.tar_entries import TarSink
from fastloader.formats.zip_entries import ZipSink
from fastloader.stores import ChangedError, MemoryStore
from fastloader.testing import FormatContract, identical

_names = itertools.count()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FASTLOADER_CACHE", str(folder))
    monkeypatch.setattr(indexes, "WORTH_KEEPING", 1)
    return folder


@pytest.fixture
def bucket():
    """A store in memory, of its own."""
    return MemoryStore(f"archives-{next(_names)}")


class TestTarsOfAServer(FormatContract):
    @pytest.fixture(autouse=True)
    def _serve(self, tmp_path):
        with web_server(tmp_path, etags=True) as url:
            self.url, self.root = url, tmp_path
            yield

    def write(self, folder):
        return [f"{self.url}/{path.relative_to(self.root)}" for path in write_tars(folder, 6)]

    def samples(self):
        return all_samples(6)


def test_tars_in_a_bucket(tmp_path, bucket):
    for path in write_tars(tmp_path, 40):
        bucket.put(f"shards/{path.name}", path.read_bytes())
    dataset = fl.open(f"{bucket.url}/shards/*.tar", decode=True)
    local = fl.open(tmp_path, decode=True)
    assert identical(list(dataset), list(local))
    assert identical(dataset.read_batch([39, 3, 17, 3]), local.read_batch([39, 3, 17, 3]))
    for options in ({"shuffle": False}, {"seed": 4}, {"seed": 4, "order": "quasi_random"}):
        mine, theirs = (list(fl.DataLoader(one, 7, **options)) for one in (dataset, local))
        assert identical(mine, theirs)
    loader = fl.DataLoader(pickle.loads(pickle.dumps(dataset)), 7, seed=4)
    list(loader)
    told = loader.stats()["io"]
    assert told["mode"] == "remote"
    assert told["requests"] > 0


def test_an_object_replaced_is_an_error(tmp_path, bucket):
    paths = write_tars(tmp_path)
    bucket.put("a.tar", paths[0].read_bytes())
    dataset = fl.open(f"{bucket.url}/a.tar")
    assert dataset[0]
    bucket.put("a.tar", paths[1].read_bytes())
    with pytest.raises(ChangedError, match=r"a\.tar"):
        dataset[1]
    with pytest.raises(ChangedError, match=r"a\.tar: is not the object it was"):
        pickle.loads(pickle.dumps(dataset))


def test_archives_of_every_kind_in_a_bucket(tmp_path, bucket):
    entries = [Entry.of(f"{'cat' if i % 2 else 'dog'}/{i:02d}.txt", b"%d and so on, " % i * i) for i in range(20)]
    sinks = {"a.zip": ZipSink, "a.barecat": BarecatSink, "a.tar": TarSink, "a.tar.gz": TarSink, "a.tar.zst": TarSink}
    for name, make in sinks.items():
        with make(tmp_path / name) as sink:
            for entry in entries:
                sink.add(entry)
    for path in tmp_path.iterdir():
        bucket.put(f"deep/{path.name}", path.read_bytes())
    for name in sinks:
        options = {} if name == "a.barecat" else {"group": False}
        mine, local = (fl.open(f"{root}/{name}", **options) for root in (f"{bucket.url}/deep", tmp_path))
        assert identical(list(mine), list(local))
        assert [one["path"] for one in mine] == [entry.name for entry in entries]
        assert identical(list(mine.shuffle(seed=3).batch(6)), list(local.shuffle(seed=3).batch(6)))
        assert identical(list(pickle.loads(pickle.dumps(mine))), list(local))
        copy = tmp_path / f"copy of {name}"
        with TarSink(copy.with_suffix(".tar")) as sink:
            assert copy_entries(source_at(f"{bucket.url}/deep/{name}"), sink) >= len(entries)
        assert [one["data"] for one in fl.open(copy.with_suffix(".tar"), group=False)] == [e.read() for e in entries]


def test_an_index_beside_an_object_saves_going_through_it(tmp_path, bucket, monkeypatch):
    path = write_tars(tmp_path, 40)[0]
    source = open_object(str(path))
    bucket.put("a.tar", path.read_bytes())
    bucket.put("a.tar.index", tars.packed_beside(source, tars.scan(source)))
    wanted = list(fl.open(path))
    monkeypatch.setattr(tars, "scan", lambda source: pytest.fail("it was gone through again"))
    assert identical(list(fl.open(f"{bucket.url}/a.tar")), wanted)
