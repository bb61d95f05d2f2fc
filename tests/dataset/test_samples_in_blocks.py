"""Samples that Python works on are read in blocks: the same samples, errors and places as one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import fastloader as fl
from fastloader.dataset import blocks
from fastloader.dataset.threads import Fixed
from fastloader.fields import BY_TYPE_ID
from fastloader.reader import DatasetReader
from fastloader.testing import identical

COUNT = 200
FIELDS = {
    "n": fl.IntField(), "f": fl.FloatField(), "b": fl.BytesField(), "j": fl.JSONField(),
    "fixed": fl.NDArrayField(">i4", (2, 3)), "empty": fl.NDArrayField("f4", (0,)), "point": fl.NDArrayField("f8", ()),
    "varying": fl.NDArrayField("int16", (None,)), "any": fl.NDArrayField("u1"),
    "record": fl.NDArrayField(np.dtype([("a", "<f4"), ("b", "<i8")]), (2,)),
    "png": fl.PNGImageField(), "raw": fl.RawImageField(2, 2),
}  # fmt: skip


def sample(i, missing=()):
    values = {
        "n": i, "f": i / 3, "b": bytes(range(i % 7)), "j": {"i": i, "none": None},
        "fixed": np.full((2, 3), i, ">i4"), "empty": np.zeros(0, "f4"), "point": np.array(i / 7),
        "varying": np.arange(i % 5, dtype=np.int16), "any": np.zeros((i % 3, 2)[: i % 2 + 1], "u1"),
        "record": np.array([(i, i), (0.5, -i)], FIELDS["record"].dtype),
        "png": np.full((2 + i % 2, 3, 3), i, np.uint8), "raw": np.full((2, 2, 3), i, np.uint8),
    }  # fmt: skip
    return {name: None if name in missing else value for name, value in values.items()}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("blocks") / "x.fld"
    names = list(FIELDS)
    with fl.DatasetWriter(path, FIELDS, shard_size=20_000) as writer:
        writer.write_many(sample(i, [names[i % 17]] if i % 17 < len(names) else ()) for i in range(COUNT))
    return path


def itself(value):
    return value


@pytest.fixture
def read(monkeypatch):
    """How many samples each call read: a list for blocks, and one for samples alone."""
    found = {"blocks": [], "alone": []}
    batch, single = DatasetReader.read_batch, DatasetReader.read_sample
    monkeypatch.setattr(
        DatasetReader, "read_batch", lambda s, i, f=None: found["blocks"].append(len(i)) or batch(s, i, f)
    )
    monkeypatch.setattr(DatasetReader, "read_sample", lambda s, i, f=None: found["alone"].append(i) or single(s, i, f))
    return found


@pytest.mark.parametrize(
    "chain",
    [
        lambda rows: rows,
        lambda rows: rows.map(itself),
        lambda rows: rows.map(itself, "auto"),
        lambda rows: rows.map(itself, 2),
        lambda rows: rows.map(itself).batch(7, collate_fn=list).unbatch(),
        lambda rows: rows.map(itself, 2).batch(7, collate_fn=list).unbatch(),
        lambda rows: rows.enumerate().map(lambda pair: pair[1]),
    ],
    ids=["alone", "map", "map, auto", "map, 2", "batch", "batch, 2", "enumerate"],
)
def test_every_field_comes_as_it_does_alone(chain, path):
    reader = fl.open(path)
    rows = reader.shuffle(seed=1).concat(reader.take(30))
    wanted = [rows[i] for i in range(len(rows))]
    found = list(chain(rows))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert list(one) == list(other)
        assert identical(one, other)


def test_small_samples_are_read_in_blocks(path, read):
    rows = fl.Dataset.from_reader(fl.open(path), ["n", "fixed"])
    list(rows.map(itself))
    assert sum(read["blocks"]) == COUNT
    assert max(read["blocks"]) == blocks.MOST
    assert read["alone"] == []
    list(rows.map(itself).batch(32))
    assert read["blocks"][-7:] == [32] * 6 + [8]


def test_large_samples_are_read_alone(tmp_path, read):
    with fl.DatasetWriter(tmp_path / "x.fld", {"x": fl.NDArrayField("u1", (blocks.BYTES,))}) as writer:
        writer.write_many({"x": np.full(blocks.BYTES, i, np.uint8)} for i in range(3))
    assert [one["x"][0] for one in fl.open(tmp_path / "x.fld")] == [0, 1, 2]
    assert (read["blocks"], read["alone"]) == ([], [0, 1, 2])


def test_one_element_is_read_alone(path, read):
    assert fl.open(path).map(itself)[7]["n"] in (7, None)
    assert (read["blocks"], read["alone"]) == ([], [7])


def test_a_state_within_a_block_goes_on_there(path):
    dataset = fl.Dataset.from_reader(fl.open(path), "n").shuffle(seed=4).map(itself)
    wanted = list(dataset)
    iterator = iter(dataset)
    for given in range(1, 80):
        next(iterator)
        if given % 13 == 0:
            state = json.loads(json.dumps(iterator.state_dict()))
            assert state["place"] == given
            assert list(dataset.iterate(state=state)) == wanted[given:]


@pytest.fixture
def damaged(tmp_path):
    path = tmp_path / "bad.fld"
    with fl.DatasetWriter(path, {"n": fl.IntField(), "b": fl.BytesField()}) as writer:
        writer.write_many({"n": i, "b": b"number %03d" % i} for i in range(100))
    data = bytearray(path.read_bytes())
    for bad in (41, 43):
        data[data.index(b"number %03d" % bad)] ^= 1
    path.write_bytes(data)
    return fl.open(path)


def test_a_bad_sample_is_an_error_when_its_turn_comes(damaged):
    iterator = iter(damaged.map(itself))
    assert [next(iterator)["n"] for _ in range(41)] == list(range(41))
    for _ in range(2):
        with pytest.raises(fl.ChecksumError) as caught:
            next(iterator)
        assert caught.value.sample == 41
        assert iterator.state_dict()["place"] == 41


def test_bad_samples_of_a_block_are_skipped_one_by_one(damaged):
    iterator = iter(damaged.map(itself).options(on_error="skip"))
    assert [one["n"] for one in iterator] == [n for n in range(100) if n not in (41, 43)]
    assert iterator.stats()["skipped"] == 2
    batches = damaged.map(itself).batch(50).options(on_error="skip")
    assert next(iter(batches))["n"].tolist()[40:45] == [40, 42, 42, 44, 44]


def test_fields_of_ones_own_are_decoded_alone(tmp_path):
    class PairDecoder(fl.Decoder):
        def __call__(self, metadata, read):
            return tuple(metadata["value"].tolist())

        def batch(self, metadata, payloads):
            return np.ascontiguousarray(metadata["value"])

    @dataclass(frozen=True)
    class PairField(fl.Field):
        has_payload = False
        metadata_type = np.dtype([("value", "<i8", (2,))])

        def encode(self, value):
            return fl.Encoded((value,))

        def get_decoder_class(self):
            return PairDecoder

    fl.register_type(1777)(PairField)
    try:
        with fl.DatasetWriter(tmp_path / "x.fld", {"n": fl.IntField(), "pair": PairField()}) as writer:
            writer.write_many({"n": i, "pair": (i, -i)} for i in range(5))
        assert list(fl.open(tmp_path / "x.fld").map(itself)) == [{"n": i, "pair": (i, -i)} for i in range(5)]
    finally:
        del BY_TYPE_ID[1777]


@pytest.mark.parametrize("after", [1, 5, 64, 100])
def test_calls_that_move_to_threads_leave_the_block(after, path, read):
    """It gives its samples in order only, and "auto" begins in the caller's thread."""
    dataset = fl.Dataset.from_reader(fl.open(path), "n").map(itself, "auto")
    wanted = list(dataset)
    iterator = iter(dataset)
    found = [next(iterator) for _ in range(after)]
    read["alone"].clear()
    cursor = iterator._cursor
    cursor._width = cursor._calls._width = Fixed(2)
    assert found + list(iterator) == wanted
    assert sorted(read["alone"]) == list(range(after, COUNT))


CUT = """
import os, sys
import fastloader as fl
how, path = sys.argv[1:]
reader = fl.open(path)
steps = {
    "samples": lambda: (reader[i % 4] for i in range(10**6)),
    "one by one": lambda: iter(reader.map(dict).options(on_error="skip")),
    "in threads": lambda: iter(reader.map(dict, 2).options(on_error="skip")),
    "batches by Python": lambda: iter(reader.map(dict).batch(4).options(on_error="skip")),
    "native batches": lambda: iter(reader.batch(4).options(on_error="skip")),
}[how]()
next(steps)
os.truncate(path, 4096)
try:
    for _ in steps:
        pass
    print("the end")
except fl.UnreadableError as error:
    print("told:", error)
"""


@pytest.mark.parametrize("how", ["samples", "one by one", "in threads", "batches by Python", "native batches"])
def test_a_file_that_becomes_shorter_is_an_error_and_not_the_end_of_the_program(how, tmp_path):
    target = tmp_path / "x.fld"
    with fl.DatasetWriter(target, {"n": fl.IntField(), "b": fl.BytesField()}) as writer:
        writer.write_many({"n": i, "b": bytes(3000)} for i in range(2000))
    done = subprocess.run([sys.executable, "-c", CUT, how, str(target)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "became shorter while it was read" in done.stdout
