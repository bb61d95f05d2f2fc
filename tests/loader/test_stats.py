"""Where the time went: what stats() counts, and that options on threads have their effect."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from page_cache import drop, on_disk

import fastloader as fl

COUNT = 240


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("stats") / "x.fld"
    rng = np.random.default_rng(0)
    fields = {
        "n": fl.IntField(), "photo": fl.JPEGImageField(), "tree": fl.JSONField(), "row": fl.NDArrayField("uint8", (50,))
    }  # fmt: skip
    with fl.DatasetWriter(target, fields) as writer:
        for i in range(COUNT):
            image = rng.integers(0, 255, (64, 64, 3), np.uint8)
            writer.write_sample({"n": i, "photo": image, "tree": [i], "row": np.full(50, i, np.uint8)})
    return target


def load(path, **options):
    loader = fl.DataLoader(fl.open(path), 24, **options)
    batches = list(loader)
    return batches, loader.stats()


def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


# What is counted


def test_stats_are_ready_for_json_and_count_what_was_given(path):
    _, stats = load(path, num_workers=2)
    assert json.loads(json.dumps(stats)) == stats
    assert (stats["batches"], stats["samples"]) == (10, COUNT)
    assert (stats["bad_values"], stats["bad"], stats["tuning"]) == (0, [], None)
    assert list(stats["fields"]) == ["n", "photo", "tree", "row"]


def test_bytes_are_counted_by_field(path):
    _, stats = load(path)
    fields = stats["fields"]
    payloads = fl.open(path).dataset.file(0).payloads(1)
    stored = sum(payloads.extent(i)[1] for i in range(COUNT))
    assert fields["row"]["decoded_bytes"] == fields["row"]["stored_bytes"] == 50 * COUNT
    assert fields["n"]["stored_bytes"] == 8 * COUNT
    assert fields["photo"]["stored_bytes"] == stored + 16 * COUNT  # an image's shape is its row in the table
    assert fields["photo"]["decoded_bytes"] == (64 * 64 * 3 + 16) * COUNT
    assert stats["io"]["bytes"] == sum(told["stored_bytes"] for told in fields.values())


def test_types_are_told_and_which_jpegs_have_no_index(path, tmp_path):
    told = fl.DataLoader(fl.open(path)).stats()["fields"]
    assert {name: one["type"] for name, one in told.items()} == {
        "n": "IntField", "photo": "JPEGImageField", "tree": "JSONField", "row": "NDArrayField",
    }  # fmt: skip
    with fl.DatasetWriter(tmp_path / "x.fld", {"photo": fl.JPEGImageField(seekable=False)}) as writer:
        writer.write_sample({"photo": np.zeros((8, 8, 3), np.uint8)})
    (told,) = fl.DataLoader(fl.open(tmp_path / "x.fld")).stats()["fields"].values()
    assert told["type"] == "JPEGImageField(seekable=False)"


def test_orders_that_go_through_whole_pages_are_told(path):
    windows = {
        order: fl.DataLoader(fl.open(path), order=order, window=5 if order == "quasi_random" else None).stats()
        for order in ("random", "sequential", "quasi_random")
    }
    assert {order: told["io"]["window"] for order, told in windows.items()} == {
        "random": 0, "sequential": 1, "quasi_random": 5,
    }  # fmt: skip


def test_a_fields_time_is_work_or_waiting_and_decoding_takes_the_most(path):
    _, stats = load(path, num_workers=1)
    for told in stats["fields"].values():
        assert told["decode"] + told["blocked"] + told["preempted"] == pytest.approx(told["lookup"] + told["read"])
    decode = {name: told["decode"] for name, told in stats["fields"].items()}
    assert max(decode, key=decode.get) == "photo"
    threads = stats["threads"]
    assert threads["busy"] == pytest.approx(sum(decode.values()))
    assert threads["busy"] + threads["blocked"] + threads["preempted"] + threads["idle"] <= threads["seconds"]
    assert threads["seconds"] <= 2 * stats["running"]  # the worker's, and the consumer's while it helps


def test_a_slow_consumer_is_told_from_a_slow_loader(path):
    loader = fl.DataLoader(fl.open(path), 24, num_workers=1, fields=["n"])
    for _ in loader:
        spin(0.05)  # more than a busy machine takes to begin
    stats = loader.stats()
    assert stats["consumer"] >= 9 * 0.05
    assert stats["consumer"] > stats["waiting"]
    assert stats["threads"]["idle"] > stats["threads"]["busy"]
    assert stats["running"] >= stats["consumer"] + stats["waiting"] + stats["planning"]


@pytest.mark.parametrize("workers", [0, 2])
def test_transforms_and_collate_are_timed_by_themselves(workers, path):
    def slow(values):
        spin(0.005)
        return values

    def collate(batch):
        spin(0.002)
        return batch

    _, stats = load(path, num_workers=workers, fields=["n", "row"], transforms={"row": slow}, collate_fn=collate)
    assert stats["fields"]["row"]["transform"] == stats["transform"] >= 10 * 0.005
    assert stats["fields"]["n"]["transform"] == 0
    assert stats["collate"] >= 10 * 0.002
    assert stats["python"] >= stats["transform"] + stats["collate"]
    assert stats["threads"]["python"] == workers


def test_a_decoder_in_python_is_counted_for_its_field(tmp_path):
    class SlowDecoder(fl.Decoder):
        def __call__(self, metadata, read):
            spin(0.001)
            return bytes(read())

    with fl.DatasetWriter(tmp_path / "x.fld", {"n": fl.IntField(), "data": fl.BytesField()}) as writer:
        writer.write_many({"n": i, "data": b"x"} for i in range(20))
    original = fl.BytesField.get_decoder_class
    try:
        fl.BytesField.get_decoder_class = lambda self: SlowDecoder
        _, stats = load(tmp_path / "x.fld")
    finally:
        fl.BytesField.get_decoder_class = original
    assert stats["fields"]["data"]["python"] >= 20 * 0.001 > stats["fields"]["n"]["python"]


def test_time_between_epochs_is_not_counted(path):
    loader = fl.DataLoader(fl.open(path), 24, fields=["n"])
    list(loader)
    before = loader.stats()
    spin(0.05)
    after = loader.stats()
    assert after["running"] == before["running"]
    assert after["threads"] == before["threads"]


def test_bytes_that_are_on_disk_only_are_waited_for(tmp_path):
    program = """
    import sys, json
    import fastloader as fl
    loader = fl.DataLoader(fl.open(sys.argv[1]), 32, num_workers=1)
    for batch in loader:
        del batch
    print(json.dumps(loader.stats()))
    """
    with on_disk(tmp_path) as folder:
        target = folder / "x.fld"
        with fl.DatasetWriter(target, {"data": fl.BytesField()}) as writer:
            writer.write_many({"data": bytes([i % 251]) * 50_000} for i in range(400))
        told = []
        for cold in (True, False):
            if cold:
                drop(target)
            argv = [sys.executable, "-c", textwrap.dedent(program), str(target)]
            told.append(json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)["io"])
    assert told[0]["major_faults"] > told[1]["major_faults"]
    assert told[0]["waiting"] > 0
    assert told[0]["bytes"] == told[1]["bytes"]


# Threads


def test_the_pool_size_is_the_number_of_threads_in_place_of_num_workers(path):
    wanted, plain = load(path, num_workers=2)
    got, stats = load(path, num_workers=2, threading=fl.ThreadingOptions(private_threadpool_size=5))
    assert (plain["threads"]["native"], plain["ahead"]) == (2, 4)
    assert (stats["threads"]["native"], stats["ahead"]) == (5, 10)
    assert [batch["n"].tolist() for batch in got] == [batch["n"].tolist() for batch in wanted]
    _, python = load(
        path, fields=["n"], transforms={"n": lambda n: n}, threading=fl.ThreadingOptions(private_threadpool_size=3)
    )
    assert python["threads"]["python"] == 3


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_threads_than_allowed_work_on_a_batch(most, path):
    options = fl.ThreadingOptions(private_threadpool_size=6, max_intra_op_parallelism=most)
    wanted, _ = load(path, num_workers=1)
    for _ in range(3):
        got, stats = load(path, threading=options)
        assert 1 <= stats["threads"]["most_in_one_batch"] <= most
        for a, b in zip(got, wanted, strict=True):
            assert a["n"].tolist() == b["n"].tolist()
            assert (a["photo"] == b["photo"]).all()
    assert stats["threads"]["native"] == 6


def test_without_a_limit_many_threads_work_on_a_batch(path):
    # One batch of many images: whoever is awake takes some of them.
    loader = fl.DataLoader(fl.open(path), COUNT, num_workers=4, fields=["photo"])
    for _ in range(50):
        list(loader)
        if loader.stats()["threads"]["most_in_one_batch"] > 1:
            return
    raise AssertionError("only one thread ever worked on a batch")


def test_the_consumer_works_along_while_it_waits_unless_the_pool_is_private(path):
    def most(threading):
        loader = fl.DataLoader(fl.open(path), COUNT, num_workers=1, fields=["photo"], threading=threading)
        for _ in range(50):
            list(loader)
            if loader.stats()["threads"]["most_in_one_batch"] > 1:
                break
        return loader.stats()["threads"]["most_in_one_batch"]

    assert most(None) == 2
    assert most(fl.ThreadingOptions(private_threadpool_size=1)) == 1


@pytest.mark.parametrize("option", ["private_threadpool_size", "max_intra_op_parallelism"])
@pytest.mark.parametrize("value", [-1, 1.5, "2", True])
def test_wrong_threading_options(option, value):
    with pytest.raises(ValueError, match=f"{option}="):
        fl.ThreadingOptions(**{option: value})


@pytest.mark.parametrize("nothing", [0, None])
def test_zero_and_none_set_no_limit(nothing, path):
    options = fl.ThreadingOptions(private_threadpool_size=nothing, max_intra_op_parallelism=nothing)
    _, stats = load(path, num_workers=3, fields=["n"], threading=options)
    assert stats["threads"]["native"] == 3
