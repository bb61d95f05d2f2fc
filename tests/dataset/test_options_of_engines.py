"""``options`` for native engines: checked when written, with an effect that shows, and told where there is none."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
from expression_model import plain

import fastloader as fl
from fastloader import kernels
from fastloader.dataset.native import MOST_PAGES, native_plan
from fastloader.dataset.running import new_run

D = fl.Dataset
PAGE = 16384
COUNT = 2000


def itself(value):
    return value


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """About 130 pages of 16 samples each."""
    path = tmp_path_factory.mktemp("engines") / "x.fld"
    with fl.DatasetWriter(path, {"i": fl.IntField(), "x": fl.BytesField()}, page_size=PAGE) as writer:
        writer.write_many({"i": i, "x": os.urandom(1000)} for i in range(COUNT))
    return path


@pytest.fixture
def reader(path):
    return fl.open(path)


def engine(dataset):
    """What the engine of a pass says for itself, and the batches."""
    iterator = iter(dataset)
    batches = [plain(batch) for batch in iterator]
    (told,) = iterator.stats()["engines"]
    return told, batches


def pages(dataset):
    return native_plan(dataset.node, new_run()).pages_at_once(1)


# What an option does


@pytest.mark.parametrize("where", ["before batch", "behind batch"])
def test_bytes_are_read_as_asked_for_and_are_the_same(where, reader):
    wanted = plain(list(reader.shuffle(seed=1).batch(16)))
    for io in ("mmap", "pread", *(["uring"] if kernels.has_uring() else [])):
        asked = reader.shuffle(seed=1)
        asked = asked.options(io=io).batch(16) if where == "before batch" else asked.batch(16).options(io=io)
        told, batches = engine(asked)
        assert told["io"]["mode"] == io
        assert (told["io"].get("reads", 0) > 0) == (io != "mmap")
        assert batches == wanted


def test_fewer_batches_are_made_ahead_under_a_limit(tmp_path):
    with fl.DatasetWriter(tmp_path / "large.fld", {"x": fl.NDArrayField("uint8", (1 << 18,))}) as writer:
        writer.write_many({"x": np.full(1 << 18, i, np.uint8)} for i in range(96))
    batches = fl.open(tmp_path / "large.fld").batch(8).options(threads=4).prefetch(16)
    free, limited = engine(batches)[0], engine(batches.options(memory_limit="16MiB"))[0]
    assert limited["slots"] <= 8 < free["slots"]


def test_the_engine_tunes_itself_if_asked(reader):
    told, batches = engine(reader.batch(16).options(auto_tune=True, threads=2))
    assert told["tuning"] is not None
    assert engine(reader.batch(16).options(auto_tune=False))[0]["tuning"] is None
    assert batches == plain(list(reader.batch(16)))


def test_threads_can_be_limited(reader):
    limits = fl.ThreadingOptions(private_threadpool_size=3, max_intra_op_parallelism=1)
    batches = reader.batch(200).options(threading=limits, threads=2)
    told = engine(batches)[0]["threads"]
    assert (told["native"], told["most_in_one_batch"]) == (3, 1)
    assert "native engine, 3 threads" in batches.explain()


def test_the_closest_option_wins(reader):
    batches = reader.options(io="pread").batch(16).options(io="mmap", auto_tune=True)
    told, _ = engine(batches)
    assert told["io"]["mode"] == "pread"
    assert told["tuning"] is not None


# What is refused, and what has no effect


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"io": "floppy"}, "io='floppy': one of auto, mmap, uring, pread"),
        ({"memory_limit": 4096}, "memory_limit=4096: at least"),
        ({"memory_limit": "lots"}, "memory_limit='lots' is not a size"),
        ({"auto_tune": 3}, "auto_tune=3: True or False"),
        ({"threading": 3}, "threading=3: a fastloader.ThreadingOptions"),
    ],
)
def test_wrong_options_are_refused_when_they_are_written(options, says, reader):
    for dataset in (reader, reader.batch(3), reader.flat_map(itself)):
        with pytest.raises((TypeError, ValueError), match=says):
            dataset.options(**options)


def test_without_io_uring_asking_for_it_is_refused(reader, monkeypatch):
    monkeypatch.setattr(kernels, "has_uring", lambda: False)
    with pytest.raises(ValueError, match="io='pread' reads with threads"):
        reader.batch(3).options(io="uring")


def test_options_of_engines_where_there_is_no_reader_are_refused():
    for dataset in (D.range(5), D.from_iterable(range(5)).batch(2)):
        with pytest.raises(ValueError, match=r"options\(io='pread'\): no samples of a reader come before it"):
            dataset.options(io="pread")
        assert len(list(dataset.options(threads=2))) > 0


@pytest.mark.parametrize(
    "chain",
    [
        lambda reader: reader.map(itself).batch(4).options(io="pread"),
        lambda reader: reader.options(io="pread").map(itself).batch(4),
        lambda reader: reader.batch(4, collate_fn=list).options(io="pread"),
        lambda reader: reader.batch(4).options(io="pread").zip(D.range(3)),
        lambda reader: reader.batch(4).options(io="pread").cache(),
    ],
    ids=["map", "options, then map", "collate_fn", "zip", "cache in memory"],
)
def test_options_that_no_engine_heeds_are_told(chain, reader):
    dataset = chain(reader)
    assert "io: no effect, as no native engine runs here" in dataset.explain()
    with pytest.warns(UserWarning, match=r"options\(io='pread'\) has no effect"):
        iterator = iter(dataset)
    next(iterator)
    assert iterator.stats()["engines"] == []
    iterator.close()


@pytest.mark.parametrize(
    "chain",
    [
        lambda reader, path: reader.batch(4).options(io="pread"),
        lambda reader, path: reader.options(io="pread").batch(4),
        lambda reader, path: reader.batch(4).options(io="pread").map(itself, 2).prefetch(2),
        lambda reader, path: reader.batch(4).map(itself).unbatch().options(io="pread"),
        lambda reader, path: reader.batch(4).cache(path).options(io="pread"),
        lambda reader, path: reader.batch(4).filter(itself).options(io="pread"),
        lambda reader, path: D.range(2).flat_map(lambda _: reader.batch(4)).options(io="pread"),
        lambda reader, path: D.range(2).interleave(lambda _: reader.batch(4)).options(io="pread"),
        lambda reader, path: reader.batch(4).mix(reader.batch(4)).options(io="pread"),
    ],
)
def test_options_that_an_engine_heeds_go_without_a_word(chain, reader, tmp_path):
    dataset = chain(reader, tmp_path / "cache")
    assert "no effect" not in dataset.explain()
    with warnings.catch_warnings(action="error"):
        iterator = iter(dataset)
    next(iterator)
    assert {told["io"]["mode"] for told in iterator.stats()["engines"]} == {"pread"}
    iterator.close()


def test_a_state_goes_on_under_other_options(reader):
    batches = reader.shuffle(seed=2).batch(7)
    iterator = iter(batches)
    for _ in range(5):
        next(iterator)
    state = iterator.state_dict()
    rest = plain(list(iterator))
    other = reader.shuffle(seed=2).options(memory_limit="1GB").batch(7).options(io="pread", auto_tune=True)
    assert plain(list(other.iterate(state=state))) == rest


# Engines that serve several passes


def test_passes_of_one_iterator_share_an_engine(reader, monkeypatch):
    made = []
    engine = kernels.Engine
    monkeypatch.setattr(kernels, "Engine", lambda *arguments: made.append(1) or engine(*arguments))
    batches = reader.shuffle(seed=1).batch(30).map(itself)
    iterator = iter(batches.repeat(4))
    found = [batch["i"].tolist() for batch in iterator]
    assert len(made) == 1
    samples = D.from_reader(reader, "i").shuffle(seed=1).repeat(4)
    assert [i for batch in found for i in batch] == [sample["i"] for sample in samples]
    stats = iterator.stats()
    assert stats["native"] == {"batches": 4 * 67, "samples": 4 * COUNT, "bad_values": 0}
    assert [told["batches"] for told in stats["engines"]] == [4 * 67]


def test_two_passes_at_once_have_an_engine_each(reader):
    batches = reader.take(400).batch(100).map(itself)
    iterator = iter(batches.interleave(batches).repeat(3))
    assert [batch["i"][0] for batch in iterator] == [0, 0, 100, 100, 200, 200, 300, 300] * 3
    assert len(iterator.stats()["engines"]) == 2
    assert iterator.stats()["native"]["samples"] == 3 * 2 * 400


def test_engines_of_datasets_made_on_the_way_do_not_add_up(path):
    dataset = D.range(30).flat_map(lambda _: fl.open(path).take(400).batch(200))
    iterator = iter(dataset)
    for number, _ in enumerate(iterator):
        assert iterator.stats()["native"]["batches"] == number + 1
        assert len(iterator.stats()["engines"]) <= 10
    assert iterator.stats()["native"]["samples"] == 30 * 400


def test_a_pass_that_failed_can_be_tried_again(reader):
    fails = iter([True] + [False] * 100)

    def sometimes(batch):
        if batch["i"][0] == 200 and next(fails):
            raise OSError("not now")
        return batch

    iterator = iter(reader.take(400).batch(100).map(sometimes).repeat(2))
    firsts = []
    while True:
        try:
            firsts.append(int(next(iterator)["i"][0]))
        except fl.ElementError:
            firsts.append("failed")
        except StopIteration:
            break
    assert firsts == [0, 100, "failed", 200, 300, 0, 100, 200, 300]


# How a pass goes through the files


def test_what_comes_in_order_is_read_by_whole_pages_as_the_loader_does(reader):
    loader = fl.DataLoader(reader, 16, shuffle=False, io="pread")
    list(loader)
    wanted = loader.stats()["io"]["read_bytes"]
    assert wanted % PAGE == 0
    for dataset in (reader.batch(16), reader.shuffle(100, seed=1).batch(16)):
        assert engine(dataset.options(io="pread"))[0]["io"]["read_bytes"] == wanted
    assert engine(reader.shuffle(seed=1).batch(16).options(io="pread"))[0]["io"]["read_bytes"] != wanted


def test_how_many_pages_a_pass_has_open(reader):
    keep = reader.filter(lambda columns: columns["i"] % 2 == 0, columns="i")
    few = reader.filter(lambda columns: columns["i"] % 20 == 0, columns="i")
    in_order = [
        reader, reader.repeat(), reader.take(100), D.from_reader(reader)[::-1], reader.concat(reader), keep,
        reader.shard(4, 1), reader.prefetch(3), reader.options(threads=1),
    ]  # fmt: skip
    assert {pages(rows.batch(8)) for rows in in_order} == {1}
    assert {pages(rows.batch(8)) for rows in (few, reader.shard(5, 1), reader.shuffle(), reader.shuffle(COUNT))} == {0}
    some = pages(reader.shuffle(80).batch(8))
    assert 5 <= some <= 8
    assert pages(keep.shuffle(40).batch(8)) == pages(reader.shard(2, 0).shuffle(40).batch(8)) == some
    assert some < pages(reader.shuffle(80).shuffle(80).batch(8)) <= MOST_PAGES
    assert pages(reader.batch(5).shuffle(16)) == some
    assert pages(reader.batch(5).shuffle()) == pages(reader.batch(5).shard(6, 0)) == 0
    assert pages(reader.batch(5).shard(3, 0)) == 1
