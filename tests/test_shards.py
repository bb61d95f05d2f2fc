import errno
import os
import pickle
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import fastloader as fl
from fastloader import kernels
from fastloader.formats.fld import Manifest, dataset, key_index, target
from fastloader.formats.fld.layout import EXTENT

FIELDS = {"n": fl.IntField(), "b": fl.BytesField()}


def samples(start, stop):
    return [{"n": i, "b": bytes([i % 251]) * 1000} for i in range(start, stop)]


def write(path, start, stop, *, fields=FIELDS, **options):
    with fl.DatasetWriter(path, fields, **options) as writer:
        writer.write_many(samples(start, stop), [f"k{i}" for i in range(start, stop)] if options.get("keys") else None)
    return fl.open(path)


def append(path, start, stop, **options):
    return write(path, start, stop, fields=None, mode="a", **options)


def numbers(path):
    return [s["n"] for s in fl.open(path)]


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


# Splitting


def test_samples_of_numbers_alone_are_split_by_their_table_rows(tmp_path):
    fields = {"n": fl.IntField(), "x": fl.FloatField()}
    with fl.DatasetWriter(tmp_path / "x.fld", fields, shard_size=100 * 16) as writer:
        writer.write_many([{"n": i, "x": i / 2} for i in range(1050)])
    reader = fl.open(tmp_path / "x.fld")
    assert [shard.num_samples for shard in reader.dataset.shards] == [100] * 10 + [50]
    assert reader.read_batch(range(1050))["n"].tolist() == list(range(1050))
    assert fl.verify(tmp_path / "x.fld").ok


@pytest.mark.parametrize("value", [None, b""])
def test_samples_without_payload_bytes_are_split_by_their_table_rows(value, tmp_path):
    fields = {"n": fl.IntField(), "b": fl.BytesField()}  # 8 and 32 bytes a row
    with fl.DatasetWriter(tmp_path / "x.fld", fields, shard_size=100 * (8 + EXTENT.itemsize)) as writer:
        writer.write_many([{"n": i, "b": value} for i in range(1050)])
    reader = fl.open(tmp_path / "x.fld")
    assert [shard.num_samples for shard in reader.dataset.shards] == [100] * 10 + [50]
    assert [(s["n"], s["b"]) for s in reader] == [(i, value) for i in range(1050)]
    assert fl.verify(tmp_path / "x.fld").ok


def test_payloads_between_samples_without_any_are_counted_apart(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"b": fl.BytesField()}, shard_size=10 * EXTENT.itemsize) as writer:
        writer.write_many([b"x" if i % 4 == 0 else b""] for i in range(100))
    reader = fl.open(tmp_path / "x.fld")
    for number, shard in enumerate(reader.dataset.shards[:-1]):
        start = int(reader.dataset.starts[number])
        assert [s["b"] for s in reader[start : start + shard.num_samples]].count(b"") == 10
    assert [len(s["b"]) for s in reader] == [1, 0, 0, 0] * 25


def test_shard_size_splits(tmp_path):
    reader = write(tmp_path / "x.fld", 0, 100, shard_size=10_500)
    shards = reader.dataset.shards
    assert [s.path for s in shards] == [f"shard-{i:05d}.fld" for i in range(len(shards))]
    assert {s.num_samples for s in shards} == {10}
    assert list(reader) == samples(0, 100)
    assert sorted(os.listdir(tmp_path / "x.fld")) == sorted(["manifest.json", *(s.path for s in shards)])


@pytest.mark.parametrize("shard_size", [1, "1B", "3KB", "1MiB"])
def test_a_shard_holds_at_least_a_sample_and_at_most_its_size(shard_size, tmp_path):
    reader = write(tmp_path / "x.fld", 0, 20, shard_size=shard_size)
    assert list(reader) == samples(0, 20)
    limit = {1: 1, "1B": 1, "3KB": 3000, "1MiB": 1 << 20}[shard_size]
    for number, shard in enumerate(reader.dataset.shards):
        assert shard.num_samples == 1 or reader.dataset.file(number).data.size <= limit
    assert len(reader.dataset.shards) in {1: [20], 3000: range(7, 11), 1 << 20: [1]}[limit]


def test_every_shard_is_a_dataset_of_its_own(tmp_path):
    write(tmp_path / "x.fld", 0, 30, shard_size=7000, keys=True)
    found = []
    for path in sorted((tmp_path / "x.fld").glob("*.fld")):
        assert fl.verify(path, decode=True).ok
        part = fl.open(path)
        assert part.key_of(0) == f"k{len(found)}"
        found += list(part)
    assert found == samples(0, 30)


def test_keys_over_shards(tmp_path):
    reader = write(tmp_path / "x.fld", 0, 50, shard_size=3000, keys=True)
    assert [reader.index_of(f"k{i}") for i in range(50)] == list(range(50))
    assert "k50" not in reader


def test_shards_with_keys_are_not_opened_again_and_again(tmp_path, monkeypatch):
    opened = []
    real = dataset.FldFile
    monkeypatch.setattr(dataset, "FldFile", lambda path: opened.append(path) or real(path))
    with fl.DatasetWriter(tmp_path / "x.fld", FIELDS, keys=True, shard_size=2000) as writer:
        writer.write_many(samples(0, 100), map(str, range(100)))
    assert len(Manifest.load(tmp_path / "x.fld").shards) > 40
    assert opened == []


@pytest.mark.parametrize("collide", [False, True], ids=["", "all hashes equal"])
@pytest.mark.parametrize("batch", [1, 7, 1 << 16])
@pytest.mark.parametrize("there", [0, 5])
def test_a_key_that_two_shards_share_is_told(there, batch, collide, tmp_path, monkeypatch):
    """Equal hashes of different keys are too rare to wait for."""
    if collide:
        monkeypatch.setattr(kernels, "xxh64", lambda key: 12345)
    monkeypatch.setattr(key_index.SharedHashes, "BATCH", batch)
    path = tmp_path / "x.fld"
    if there:
        write(path, 0, there, keys=True)
    before = tree(tmp_path)
    options = {"shard_size": 2000, "keys": True, "mode": "a"}
    for first, second in ((20, 29), (12, 13), (10, 25)):
        keys = [f"new {i}" for i in range(there, 30)]
        keys[second - there] = keys[first - there]
        with pytest.raises(fl.SampleError, match=f"key 'new {first}' was given to sample {first} already") as caught:
            fill(path, samples(there, 30), keys, **options)
        assert caught.value.sample == second
        assert tree(tmp_path) == before
    fill(path, samples(there, 30), [f"new {i}" for i in range(there, 30)], **options)
    assert fl.verify(path).ok or collide


def fill(path, items, names, **options):
    with fl.DatasetWriter(path, FIELDS, **options) as writer:
        writer.write_many(items, names)


def test_shards_of_nothing(tmp_path):
    reader = write(tmp_path / "x.fld", 0, 0, shard_size=1000)
    assert list(reader) == []
    assert reader.field_names == ["n", "b"]
    assert list(append(tmp_path / "x.fld", 0, 3)) == samples(0, 3)


# Appending


@pytest.mark.parametrize("options", [{}, {"keys": True}, {"compression": "zstd"}], ids=str)
def test_a_file_that_is_appended_to_becomes_a_folder(options, tmp_path):
    write(tmp_path / "x.fld", 0, 5, **options)
    before = (tmp_path / "x.fld").read_bytes()
    reader = append(tmp_path / "x.fld", 5, 9, keys=options.get("keys", False))
    assert list(reader) == samples(0, 9)
    assert sorted(os.listdir(tmp_path / "x.fld")) == [
        "manifest.json", "shard-00000.fld", "shard-00001.fld", "snapshots",
    ]  # fmt: skip
    assert (tmp_path / "x.fld" / "shard-00000.fld").read_bytes() == before
    assert os.listdir(tmp_path) == ["x.fld"]
    if options.get("keys"):
        assert reader.index_of("k7") == 7
    assert {d.codec for d in reader.dataset.file(1).descriptors} == {2 if "compression" in options else 0}


def test_appending_again_and_again(tmp_path):
    write(tmp_path / "x.fld", 0, 2, shard_size=1500)
    for i in range(2, 12, 2):
        assert list(append(tmp_path / "x.fld", i, i + 2)) == samples(0, i + 2)
    assert Manifest.load(tmp_path / "x.fld").snapshot == 6
    assert fl.verify(tmp_path / "x.fld").ok
    assert os.listdir(tmp_path) == ["x.fld"]


def test_appending_with_a_shard_size(tmp_path):
    write(tmp_path / "x.fld", 0, 2)
    reader = append(tmp_path / "x.fld", 2, 12, shard_size=2500)
    assert [s.num_samples for s in reader.dataset.shards] == [2, 2, 2, 2, 2, 2]


def test_appending_to_what_is_not_there_writes_anew(tmp_path):
    assert list(write(tmp_path / "x.fld", 0, 3, mode="a")) == samples(0, 3)
    assert (tmp_path / "x.fld").is_file()
    with pytest.raises(ValueError, match="fields=None"):
        append(tmp_path / "y.fld", 0, 3)


@pytest.mark.parametrize("options", [{}, {"shard_size": 1000}, {"keys": True}], ids=str)
def test_appending_nothing_changes_nothing(options, tmp_path):
    write(tmp_path / "x.fld", 0, 3, **options)
    before = tree(tmp_path)
    assert list(append(tmp_path / "x.fld", 0, 0)) == samples(0, 3)
    assert tree(tmp_path) == before
    assert os.listdir(tmp_path) == ["x.fld"]


def test_added_shards_have_the_page_size_of_those_there_unless_told_otherwise(tmp_path):
    write(tmp_path / "x.fld", 0, 2, page_size=4096)
    append(tmp_path / "x.fld", 2, 4)
    reader = append(tmp_path / "x.fld", 4, 6, page_size="64KiB")
    assert [reader.dataset.file(i).header.page_size for i in range(3)] == [4096, 4096, 65536]


def test_a_file_turned_into_a_folder_is_synced_after_the_swap(tmp_path, monkeypatch):
    write(tmp_path / "x.fld", 0, 2)
    calls = []
    for name in ("exchange", "sync_directory"):
        real = getattr(target, name)
        monkeypatch.setattr(target, name, lambda *a, name=name, real=real: (calls.append((name, a[-1])), real(*a)))
    append(tmp_path / "x.fld", 2, 3)
    assert calls == [("exchange", tmp_path / "x.fld"), ("sync_directory", tmp_path)]


@pytest.mark.parametrize(("call", "options"), [("link", {}), ("rename", {"shard_size": 2000})])
def test_a_file_system_that_refuses_is_a_clear_error(call, options, tmp_path, monkeypatch):
    write(tmp_path / "x.fld", 0, 4, **options)
    before = tree(tmp_path)

    def refuse(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(target.os, call, refuse)
    hint = {"link": "write a folder of shards instead", "rename": "nothing was changed"}[call]
    with pytest.raises(fl.StoreError, match=rf"x\.fld.*: Operation not permitted; .*{hint}") as caught:
        append(tmp_path / "x.fld", 4, 6)
    assert caught.value.errno == errno.EPERM
    assert tree(tmp_path) == before


def test_a_file_removed_while_it_is_appended_to_is_told(tmp_path):
    write(tmp_path / "x.fld", 0, 4)
    appender = fl.DatasetWriter(tmp_path / "x.fld", None, mode="a")
    appender.write_many(samples(4, 5))
    (tmp_path / "x.fld").unlink()
    with pytest.raises(fl.StoreError, match="was changed by another writer"):
        appender.close()
    assert os.listdir(tmp_path) == []


def test_appended_samples_are_counted_from_the_datasets_first(tmp_path):
    write(tmp_path / "x.fld", 0, 3)
    with pytest.raises(fl.SampleError) as caught, fl.DatasetWriter(tmp_path / "x.fld", None, mode="a") as writer:
        writer.write_many([(1, b""), ("text", b"")])
    assert caught.value.sample == 4
    assert numbers(tmp_path / "x.fld") == [0, 1, 2]


@pytest.mark.parametrize("options", [{}, {"shard_size": 2000}], ids=str)
def test_the_old_snapshot_stays_readable(options, tmp_path):
    old = write(tmp_path / "x.fld", 0, 6, **options)
    unread = fl.open(tmp_path / "x.fld")
    new = append(tmp_path / "x.fld", 6, 9)
    assert len(old) == 6
    assert list(old) == list(unread) == samples(0, 6)
    assert list(new) == samples(0, 9)
    with pytest.raises(IndexError):
        old[6]


@pytest.mark.parametrize("options", [{}, {"shard_size": 2000}], ids=str)
def test_of_two_appenders_one_wins_and_the_other_is_told(options, tmp_path):
    path = tmp_path / "x.fld"
    write(path, 0, 4, **options)
    one = fl.DatasetWriter(path, None, mode="a")
    two = fl.DatasetWriter(path, None, mode="a")
    one.write_many(samples(100, 103))
    two.write_many(samples(200, 203))
    one.close()
    with pytest.raises(
        fl.StoreError, match="was changed by another writer in the meantime; nothing was added; append again"
    ):
        two.close()
    assert numbers(path) == [0, 1, 2, 3, 100, 101, 102]
    assert fl.verify(path).ok
    assert os.listdir(tmp_path) == ["x.fld"]
    assert [s["n"] for s in append(path, 200, 203)] == [0, 1, 2, 3, 100, 101, 102, 200, 201, 202]


@pytest.mark.parametrize("options", [{}, {"shard_size": 2000}], ids=str)
def test_appenders_at_the_same_moment(options, tmp_path):
    path = tmp_path / "x.fld"
    write(path, 0, 4, **options)
    writers = [fl.DatasetWriter(path, None, mode="a") for _ in range(6)]
    for number, writer in enumerate(writers):
        writer.write_sample((1000 + number, b""))
    barrier = threading.Barrier(len(writers))
    won = []

    def finish(number):
        barrier.wait()
        try:
            writers[number].close()
            won.append(1000 + number)
        except fl.StoreError:
            pass

    threads = [threading.Thread(target=finish, args=(i,)) for i in range(len(writers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert numbers(path) == [0, 1, 2, 3, *won]
    assert fl.verify(path).ok
    assert os.listdir(tmp_path) == ["x.fld"]


def test_a_file_replaced_while_it_is_appended_to_is_told(tmp_path):
    write(tmp_path / "x.fld", 0, 4)
    appender = fl.DatasetWriter(tmp_path / "x.fld", None, mode="a")
    appender.write_many(samples(10, 12))
    write(tmp_path / "x.fld", 50, 52)
    with pytest.raises(fl.StoreError, match="was changed by another writer"):
        appender.close()
    assert numbers(tmp_path / "x.fld") == [50, 51]
    assert os.listdir(tmp_path) == ["x.fld"]


def test_a_folder_replaced_while_it_is_appended_to_is_told(tmp_path):
    write(tmp_path / "x.fld", 0, 8, shard_size=2000)
    appender = fl.DatasetWriter(tmp_path / "x.fld", None, mode="a")
    appender.write_many(samples(10, 12))
    write(tmp_path / "x.fld", 50, 52, shard_size=10_000)
    with pytest.raises(fl.StoreError, match="was changed by another writer"):
        appender.close()
    assert numbers(tmp_path / "x.fld") == [50, 51]
    assert sorted(os.listdir(tmp_path / "x.fld")) == ["manifest.json", "shard-00000.fld"]


KILLED_AT = """
import os, sys
import fastloader as fl
from fastloader.formats.fld import target
def die(*_, **__):
    os._exit(9)
where = sys.argv[2]
if where == "manifest":
    target.Manifest.save = die
elif where == "exchange":
    target.exchange = die
elif where == "writing":
    fl.DatasetWriter.close = die
with fl.DatasetWriter(sys.argv[1], None, mode="a") as writer:
    writer.write_sample((77, b"x"))
"""


@pytest.mark.parametrize("where", ["writing", "manifest", "exchange"])
@pytest.mark.parametrize("options", [{}, {"shard_size": 2000}], ids=str)
def test_a_killed_append_leaves_the_dataset_as_it_was(where, options, tmp_path):
    path = tmp_path / "x.fld"
    write(path, 0, 4, **options)
    done = subprocess.run([sys.executable, "-c", KILLED_AT, path, where], check=False)
    if done.returncode == 0:  # a folder is appended to without an exchange
        assert (where, "shard_size" in options) == ("exchange", True)
        return
    assert done.returncode == 9
    assert list(fl.open(path)) == samples(0, 4)
    assert list(append(path, 4, 6)) == samples(0, 6)
    assert fl.verify(path).ok
    assert os.listdir(tmp_path) == ["x.fld"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_around_the_manifest_swap_loses_nothing(when, tmp_path, monkeypatch):
    path = tmp_path / "x.fld"
    write(path, 0, 4, shard_size=2000)
    save = Manifest.save

    def interrupted(self, folder):
        if when == "after":
            save(self, folder)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(target.Manifest, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            append(path, 4, 6)
    assert list(fl.open(path)) == samples(0, 6 if when == "after" else 4)
    assert fl.verify(path).ok
    assert list(append(path, 6, 7))[-1:] == samples(6, 7)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": fl.IntField()},
        {"b": fl.BytesField(), "n": fl.IntField()},
        {"n": fl.FloatField(), "b": fl.BytesField()},
        {"n": fl.IntField(), "c": fl.BytesField()},
    ],
    ids=str,
)
def test_other_fields_are_refused(fields, tmp_path):
    write(tmp_path / "x.fld", 0, 2)
    with pytest.raises(ValueError, match="the dataset has the fields"):
        fl.DatasetWriter(tmp_path / "x.fld", fields, mode="a")
    assert os.listdir(tmp_path) == ["x.fld"]


def test_other_options_are_refused(tmp_path):
    image = {"i": fl.JPEGImageField(90)}
    with fl.DatasetWriter(tmp_path / "x.fld", image):
        pass
    with pytest.raises(ValueError, match=r"quality=90.*not.*quality=80"):
        fl.DatasetWriter(tmp_path / "x.fld", {"i": fl.JPEGImageField(80)}, mode="a")
    with fl.DatasetWriter(tmp_path / "x.fld", image, mode="a"):
        pass


def test_keys_must_agree(tmp_path):
    write(tmp_path / "plain.fld", 0, 2)
    with pytest.raises(ValueError, match="the samples there have no keys"):
        fl.DatasetWriter(tmp_path / "plain.fld", None, mode="a", keys=True)
    write(tmp_path / "keyed.fld", 0, 2, keys=True)
    with pytest.raises(fl.SampleError, match="has no key"):
        write(tmp_path / "keyed.fld", 2, 3, fields=None, mode="a")
    with fl.DatasetWriter(tmp_path / "keyed.fld", None, mode="a") as writer:
        writer.write_sample((1, b""), "new")
    assert fl.open(tmp_path / "keyed.fld").index_of("new") == 2


# Concatenating


def test_concatenating_copies_nothing(tmp_path):
    write(tmp_path / "a.fld", 0, 5)
    write(tmp_path / "b.fld", 5, 12, shard_size=2000)
    write(tmp_path / "c.fld", 12, 13, compression="lz4")
    fl.concatenate(tmp_path / "all.fld", [tmp_path / "a.fld", tmp_path / "b.fld", tmp_path / "c.fld"])
    assert os.listdir(tmp_path / "all.fld") == ["manifest.json"]
    reader = fl.open(tmp_path / "all.fld")
    assert list(reader) == samples(0, 13)
    assert reader.read_batch([12, 0, 7])["n"].tolist() == [12, 0, 7]
    assert fl.verify(tmp_path / "all.fld").ok


def test_the_whole_tree_may_be_moved(tmp_path):
    (tmp_path / "here" / "parts").mkdir(parents=True)
    write(tmp_path / "here" / "parts" / "a.fld", 0, 5)
    write(tmp_path / "here" / "b.fld", 5, 8, shard_size=1500)
    fl.concatenate(tmp_path / "here" / "all.fld", [tmp_path / "here" / "parts" / "a.fld", tmp_path / "here" / "b.fld"])
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert list(fl.open(tmp_path / "there" / "all.fld")) == samples(0, 8)


def test_concatenations_can_be_concatenated_and_appended_to(tmp_path):
    write(tmp_path / "a.fld", 0, 2)
    write(tmp_path / "b.fld", 2, 4)
    fl.concatenate(tmp_path / "ab.fld", [tmp_path / "a.fld", tmp_path / "b.fld"])
    fl.concatenate(tmp_path / "abab.fld", [tmp_path / "ab.fld"] * 2)
    assert numbers(tmp_path / "abab.fld") == [0, 1, 2, 3] * 2
    assert list(append(tmp_path / "ab.fld", 4, 6)) == samples(0, 6)
    assert numbers(tmp_path / "abab.fld") == [0, 1, 2, 3] * 2


def test_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("a.fld", 0, 3)
    fl.concatenate("all.fld", ["a.fld"])
    assert numbers("all.fld") == [0, 1, 2]


def test_a_concatenation_stays_what_it_was_when_a_source_is_appended_to(tmp_path):
    for name, options in (("file.fld", {}), ("folder.fld", {"shard_size": 2000})):
        write(tmp_path / name, 0, 5, **options)
        fl.concatenate(tmp_path / "all.fld", [tmp_path / name])
        append(tmp_path / name, 5, 6)
        assert numbers(tmp_path / "all.fld") == [0, 1, 2, 3, 4]


def test_what_does_not_fit_is_not_concatenated(tmp_path):
    write(tmp_path / "a.fld", 0, 2)
    write(tmp_path / "keyed.fld", 0, 2, keys=True)
    with fl.DatasetWriter(tmp_path / "other.fld", {"n": fl.FloatField(), "b": fl.BytesField()}):
        pass
    for other, message in (("other.fld", r"has other fields than .*a\.fld"), ("keyed.fld", "in having keys")):
        with pytest.raises(fl.FormatError, match=message) as caught:
            fl.concatenate(tmp_path / "all.fld", [tmp_path / "a.fld", tmp_path / other])
        assert other in str(caught.value)
    for one in (str(tmp_path / "a.fld"), tmp_path / "a.fld"):
        with pytest.raises(TypeError, match=r"sources is one path, '.*a\.fld'; give a list of paths"):
            fl.concatenate(tmp_path / "all.fld", one)
    with pytest.raises(ValueError, match="nothing to concatenate"):
        fl.concatenate(tmp_path / "all.fld", [])
    with pytest.raises(fl.StoreError, match="there is no such file"):
        fl.concatenate(tmp_path / "all.fld", [tmp_path / "none.fld"])
    assert not (tmp_path / "all.fld").exists()


def test_concatenating_never_removes_what_it_names(tmp_path):
    write(tmp_path / "x.fld", 0, 4, shard_size=2000)
    write(tmp_path / "y.fld", 4, 6)
    before = tree(tmp_path)
    with pytest.raises(fl.StoreError, match="would be replaced"):
        fl.concatenate(tmp_path / "x.fld", [tmp_path / "x.fld", tmp_path / "y.fld"])
    with pytest.raises(fl.StoreError, match="is there already and is no folder of shards"):
        fl.concatenate(tmp_path / "y.fld", [tmp_path / "x.fld"])
    assert tree(tmp_path) == before


FEW_DESCRIPTORS = """
import resource, sys
import fastloader as fl
resource.setrlimit(resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
reader = fl.open(sys.argv[1])
print(len(list(reader)), fl.verify(sys.argv[1]).ok, len(reader.read_batch(range(320))['b']))
"""


def test_more_shards_than_files_may_be_open(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"b": fl.BytesField()}, shard_size=1) as writer:
        writer.write_many([b"%d" % i] for i in range(320))
    command = [sys.executable, "-c", FEW_DESCRIPTORS, tmp_path / "x.fld"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "320 True 320\n"


# Damage and foreign things


def test_a_lost_shard_is_named_and_the_others_stay_readable(tmp_path):
    for lost in (0, 2):
        path = tmp_path / f"{lost}.fld"
        reader = write(path, 0, 8, shard_size=2500)
        gone = path / f"shard-{lost:05d}.fld"
        gone.unlink()
        reader = fl.open(path)
        with pytest.raises(fl.StoreError, match="there is no such file or folder") as caught:
            list(reader)
        assert str(gone) in str(caught.value)
        assert reader[-1] == samples(7, 8)[0]
        assert reader.read_batch([2, 3, 6])["n"].tolist() == [2, 3, 6]


def test_a_replaced_shard_is_told(tmp_path):
    write(tmp_path / "x.fld", 0, 8, shard_size=2500)
    shutil.copy(tmp_path / "x.fld" / "shard-00002.fld", tmp_path / "x.fld" / "shard-00001.fld")
    reader = fl.open(tmp_path / "x.fld")
    with pytest.raises(fl.FormatError, match=r"is not the file it was when .* its manifest written") as caught:
        reader[2]
    assert "shard-00001.fld" in str(caught.value)
    assert reader[0]["n"] == 0


@pytest.mark.parametrize("name", ["notes.txt", "train.fld", "sub"])
def test_a_folder_with_foreign_things_is_not_replaced(name, tmp_path):
    write(tmp_path / "x.fld", 0, 8, shard_size=2500)
    foreign = tmp_path / "x.fld" / name
    foreign.mkdir() if name == "sub" else foreign.write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(fl.StoreError, match=f"is a folder that is no dataset: it holds {name}"):
        write(tmp_path / "x.fld", 0, 1, shard_size=2500)
    write(tmp_path / "y.fld", 0, 1)
    with pytest.raises(fl.StoreError, match=f"it holds {name}"):
        fl.concatenate(tmp_path / "x.fld", [tmp_path / "y.fld"])
    (tmp_path / "y.fld").unlink()
    assert tree(tmp_path) == before


def test_a_folder_without_a_manifest_is_not_replaced(tmp_path):
    (tmp_path / "x.fld").mkdir()
    with pytest.raises(fl.StoreError, match=r"it has no manifest\.json"):
        write(tmp_path / "x.fld", 0, 1, shard_size=2500)
    assert os.listdir(tmp_path) == ["x.fld"]


def test_a_folder_of_shards_is_replaced_in_one_step(tmp_path):
    old = write(tmp_path / "x.fld", 0, 8, shard_size=2500)
    list(old)
    new = write(tmp_path / "x.fld", 50, 53, shard_size=1500)
    assert list(new) == samples(50, 53)
    assert list(old) == samples(0, 8)
    assert os.listdir(tmp_path) == ["x.fld"]


def test_a_folder_of_shards_replaces_a_file(tmp_path):
    write(tmp_path / "x.fld", 0, 8)
    assert list(write(tmp_path / "x.fld", 50, 53, shard_size=1500)) == samples(50, 53)
    assert os.listdir(tmp_path) == ["x.fld"]


def test_a_manifest_that_was_tampered_with_is_told(tmp_path):
    write(tmp_path / "x.fld", 0, 8, shard_size=2500)
    path = tmp_path / "x.fld" / "manifest.json"
    text = path.read_text()
    for changed in (text.replace("8", "9", 1), text[:-5], "", "[]", "{}", text.replace("crc32c", "crc")):
        path.write_text(changed)
        with pytest.raises(fl.FormatError, match=r"manifest\.json"):
            fl.open(tmp_path / "x.fld")


def test_added_shards_are_compressed_like_those_there_unless_told_otherwise(tmp_path):
    fields = {"a": fl.BytesField(), "b": fl.BytesField()}
    sample = {"a": b"x" * 5000, "b": b"y" * 5000}
    with fl.DatasetWriter(tmp_path / "x.fld", fields, compression={"a": "zstd:5", "b": "lz4"}) as writer:
        writer.write_sample(sample)
    with fl.DatasetWriter(tmp_path / "x.fld", None, mode="a", compression={"b": None}) as writer:
        writer.write_sample(sample)
    added = fl.open(tmp_path / "x.fld").dataset.file(1)
    assert [(d.name, d.codec, d.level) for d in added.descriptors] == [("a", 2, 5), ("b", 0, 0)]
    assert added.payloads(0).extent(0)[1] < 100
    assert added.payloads(1).extent(0)[1] == 5000


def test_a_shard_without_keys_among_shards_with_keys_is_refused(tmp_path):
    write(tmp_path / "keyed.fld", 0, 3, keys=True)
    write(tmp_path / "plain.fld", 3, 5)
    both = tmp_path / "both.fld"
    both.mkdir()
    parts = [fl.open(tmp_path / name).dataset.shards[0] for name in ("keyed.fld", "plain.fld")]
    named = [replace(shard, path=f"../{name}.fld") for shard, name in zip(parts, ("keyed", "plain"), strict=True)]
    Manifest(tuple(named)).save(both)
    with pytest.raises(fl.FormatError, match=r"plain\.fld: differs from .*keyed\.fld in having keys"):
        fl.open(both)[4]


def test_a_dataset_opened_by_a_relative_path_outlives_a_change_of_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = write(Path("x.fld"), 0, 6, shard_size=1500)
    pickled = pickle.dumps(fl.open("x.fld"))
    monkeypatch.chdir("/")
    assert [s["n"] for s in reader] == list(range(6))
    assert [s["n"] for s in pickle.loads(pickled)] == list(range(6))


@pytest.mark.parametrize("options", [{}, {"shard_size": 1500}], ids=str)
def test_writing_through_a_link_replaces_what_it_points_at(options, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "x.fld", tmp_path / "x.fld"
    write(real, 0, 2, **options)
    link.symlink_to(real)
    write(link, 0, 4, **options)
    append(link, 4, 5)
    assert link.is_symlink()
    assert numbers(real) == numbers(link) == list(range(5))
