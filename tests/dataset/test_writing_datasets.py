"""``Dataset.write``: fields told from samples, images as they are, shards that go on after an interruption."""

from __future__ import annotations

import io
import json
import os
import tarfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.testing import identical
from fastloader.writer.inference import infer_field

IMAGES = Path(__file__).parents[1] / "vectors" / "images"
JPEG = (IMAGES / "1-rgb-444.jpg").read_bytes()
PROGRESSIVE = (IMAGES / "2-rgb-420-progressive.jpg").read_bytes()
PNG = (IMAGES / "2-rgb.png").read_bytes()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ([1, None, True, np.uint8(3), np.bool_(0)], fl.IntField()),
        ([1, 2.5, np.float32(1)], fl.FloatField()),
        ([2**70, 1], fl.FloatField()),
        ([b"a", b"", bytearray(b"x")], fl.BytesField()),
        ([JPEG, None, PROGRESSIVE], fl.JPEGImageField()),
        ([JPEG, b"x"], fl.BytesField()),
        ([b"\xff\xd8\xff and no more"], fl.BytesField()),
        ([PNG], fl.PNGImageField()),
        (["a", "b"], fl.TextField()),
        ([None, None], fl.JSONField()),
        ([[1, "a"], {"x": None}], fl.JSONField()),
        ([1, "a"], fl.JSONField()),
        ([np.zeros((2, 3), "u1")] * 2, fl.NDArrayField("uint8", (2, 3))),
        ([np.zeros((2, 3)), np.zeros((4, 3))], fl.NDArrayField("float64", (None, 3))),
        ([np.zeros(3), np.zeros((1, 1))], fl.NDArrayField("float64")),
        ([np.array(4)], fl.NDArrayField("int64", ())),
    ],
)
def test_a_field_is_told_from_values(values, field):
    assert infer_field("x", values) == field


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([[b"x"]], r"field 'x': no field holds list like \[b'x'\]"),
        ([Decimal(1)], "no field holds Decimal"),
        ([np.zeros(2), 1], "no field holds .*int.*ndarray"),
        ([np.zeros(2), np.zeros(2, "f4")], "arrays of several types, float32, float64"),
        ([{1: "a"}], "no field holds dict"),
    ],
)
def test_values_without_a_field_are_told(values, said):
    with pytest.raises(fl.SampleError, match=said):
        infer_field("x", values)


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(st.data())
def test_what_is_told_from_all_values_holds_all_values(tmp_path_factory, data):
    kind = data.draw(st.sampled_from([st.integers(-(2**63), 2**63 - 1), st.text(max_size=5), st.binary(max_size=4),
                                      st.lists(st.integers(), max_size=3)]))  # fmt: skip
    values = data.draw(st.lists(st.none() | kind, min_size=1, max_size=9))
    path = tmp_path_factory.mktemp("w") / "a.fld"
    fl.Dataset.from_sequence(values).map(lambda value: {"x": value}).write(path)
    assert identical([sample["x"] for sample in fl.open(path)], values)


def test_elements_without_names_are_refused(tmp_path):
    with pytest.raises(fl.SampleError, match=r"sample 0: is a int, .*\.map"):
        fl.Dataset.range(3).write(tmp_path / "a.fld")
    with pytest.raises(fl.FormatError, match="has no samples, so its fields can't be told"):
        fl.Dataset.from_sequence([]).write(tmp_path / "a.fld")
    assert os.listdir(tmp_path) == []


def test_named_fields_go_before_those_told(tmp_path):
    dataset = fl.Dataset.from_sequence([{"x": 1, "image": JPEG}])
    fields = dataset.write(tmp_path / "a.fld", {"image": fl.BytesField()})
    assert fields == {"x": fl.IntField(), "image": fl.BytesField()}
    assert fl.open(tmp_path / "a.fld")[0]["image"] == JPEG
    with pytest.raises(fl.KeyNotFoundError, match="there is no field 'y'; there are x, image"):
        dataset.write(tmp_path / "b.fld", {"y": fl.IntField()})
    fl.Dataset.from_sequence([]).write(tmp_path / "c.fld", {"y": fl.IntField()})
    assert len(fl.open(tmp_path / "c.fld")) == 0


def test_names_that_only_some_samples_have_are_missing_in_the_others(tmp_path):
    fl.Dataset.from_sequence([{"a": 1}, {"b": 2}]).write(tmp_path / "a.fld")
    assert list(fl.open(tmp_path / "a.fld")) == [{"a": 1, "b": None}, {"a": None, "b": 2}]


def test_a_value_that_comes_late_and_does_not_fit_is_named(tmp_path):
    samples = fl.Dataset.range(500).map(lambda i: {"x": i if i != 401 else "text"})
    with pytest.raises(fl.SampleError, match="sample 401, field 'x'"):
        samples.write(tmp_path / "a.fld")
    assert os.listdir(tmp_path) == []


def test_samples_of_a_reader_keep_their_fields_and_their_bytes(tmp_path):
    fields = {"image": fl.JPEGImageField(quality=33), "n": fl.IntField(), "a": fl.NDArrayField("float32", (None,))}
    with fl.DatasetWriter(tmp_path / "a.fld", fields) as writer:
        for i in range(20):
            writer.write_sample({"image": PROGRESSIVE if i else None, "n": i, "a": np.arange(i, dtype=np.float32)})
    reader = fl.open(tmp_path / "a.fld")
    assert reader.shuffle(seed=4).write(tmp_path / "b.fld") == fields
    order = [sample["n"] for sample in reader.shuffle(seed=4)]
    again = fl.open(tmp_path / "b.fld")
    assert [sample["n"] for sample in again] == order
    for i, n in enumerate(order):
        assert again.read_payload(i, "image") == reader.read_payload(n, "image")
        assert identical(again[i]["a"], reader[n]["a"])


def test_tar_has_the_layout_of_webdataset(tmp_path):
    samples = [{"image": JPEG, "mask": PNG, "label": 3, "text": "größe", "box": np.arange(4.0), "meta": {"a": [1]},
                "raw": b"\0", "score": 0.5, "a/b.c": 1, "none": None}]  # fmt: skip
    samples.append({**samples[0], "none": 4})
    fl.Dataset.from_sequence(samples).write(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as tar:
        found = {name: tar.extractfile(name).read() for name in tar.getnames()}
    assert found.pop("000000001.none.cls") == b"4"
    first = {name.partition(".")[2]: data for name, data in found.items() if name.startswith("000000000.")}
    assert identical(np.load(io.BytesIO(first.pop("box.npy"))), np.arange(4.0))
    assert json.loads(first.pop("meta.json")) == {"a": [1]}
    assert first == {
        "image.jpg": JPEG, "mask.png": PNG, "label.cls": b"3", "text.txt": "größe".encode(), "raw.bin": b"\0",
        "score.json": b"0.5", "a_b_c.cls": b"1",
    }  # fmt: skip
    assert os.listdir(tmp_path) == ["a.tar"]


def test_tar_of_the_same_samples_is_the_same(tmp_path):
    dataset = fl.Dataset.range(30).map(lambda i: {"i": i, "data": bytes(i)})
    for name in ("a.tar", "b.tar"):
        dataset.write(tmp_path / name)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_parquet_holds_what_was_there(tmp_path):
    with fl.DatasetWriter(
        tmp_path / "a.fld",
        {"image": fl.JPEGImageField(), "n": fl.IntField(), "f": fl.FloatField(),
         "a": fl.NDArrayField("int16", (None, 2)), "meta": fl.JSONField(), "text": fl.JSONField(),
         "b": fl.BytesField()},
    ) as writer:  # fmt: skip
        for i in range(9):
            writer.write_sample([JPEG, i, i / 4, np.full((i, 2), i, np.int16), {"i": i}, f"t{i}", bytes(i)])
    reader = fl.open(tmp_path / "a.fld")
    reader.write(tmp_path / "a.parquet")
    for i, row in enumerate(fl.open(tmp_path / "a.parquet")):
        assert row.pop("image") == JPEG
        assert json.loads(row.pop("meta")) == {"i": i}
        assert row.pop("a").tolist() == reader[i]["a"].tolist()
        assert row == {"n": i, "f": i / 4, "text": f"t{i}", "b": bytes(i)}
    assert pq.ParquetFile(tmp_path / "a.parquet").schema_arrow.names == reader.field_names


@pytest.mark.parametrize("name", ["a.fld", "a.tar", "a.parquet"])
def test_what_fails_leaves_nothing_behind(name, tmp_path):
    def fail(i):
        if i == 300:
            raise RuntimeError("no")
        return {"i": i}

    with pytest.raises(fl.ElementError, match="element 300"):
        fl.Dataset.range(400).map(fail).write(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_names_say_what_to_write(tmp_path):
    dataset = fl.Dataset.from_sequence([{"x": 1}])
    with pytest.raises(ValueError, match=r"a\.zip: a name ends with \.fld, \.tar or \.tar\.gz"):
        dataset.write(tmp_path / "a.zip")
    with pytest.raises(ValueError, match=r"compression is for \.fld"):
        dataset.write(tmp_path / "a.tar", compression="zstd")
    with pytest.raises(ValueError, match=r"a\.tar: several tars need a place for their number, as in train-%06d\.tar"):
        dataset.write(tmp_path / "a.tar", shard_size="1MB")
    with pytest.raises(ValueError, match=r"shards are for \.fld and tars, not for \.parquet"):
        dataset.write(tmp_path / "a.parquet", shard_size="1MB")
    with pytest.raises(ValueError, match="shard_samples is for tars"):
        dataset.write(tmp_path / "a.fld", shard_samples=10)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="storage_options are for URLs"):
        dataset.write(tmp_path / "a.fld", storage_options={"region": "x"})
    with pytest.raises(ValueError, match="at least one byte"):
        dataset.write(tmp_path / "a.fld", shard_size=0)


class Interrupted:
    """Gives samples, and fails at one of them as long as it is told to."""

    def __init__(self, count):
        self.count, self.fails_at, self.read = count, None, []

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i == self.fails_at:
            raise KeyboardInterrupt
        self.read.append(i)
        return {"i": i, "data": bytes([i % 256]) * 100}


@pytest.mark.parametrize("style", ["map", "iterable"])
def test_shards_go_on_after_an_interruption(style, tmp_path):
    source = Interrupted(400)

    def dataset():
        if style == "map":
            return fl.Dataset.from_sequence(source)
        return fl.Dataset.from_generator(lambda: (source[i] for i in range(len(source))))

    for fails_at in (150, 285):
        source.fails_at = fails_at
        with pytest.raises(KeyboardInterrupt):
            dataset().write(tmp_path / "a.fld", shard_size=3000)
        assert not (tmp_path / "a.fld").exists()
    source.fails_at = None
    source.read.clear()
    dataset().write(tmp_path / "a.fld", shard_size=3000)
    if style == "map":
        assert min(source.read[128 + 16 :]) > 200  # what the shards hold is not read again but to tell the fields
    assert [sample["i"] for sample in fl.open(tmp_path / "a.fld")] == list(range(400))
    assert os.listdir(tmp_path) == ["a.fld"]
    assert fl.verify(tmp_path / "a.fld", decode=True).ok
    assert len(fl.open(tmp_path / "a.fld").dataset.shards) > 8


def test_what_another_conversion_left_is_not_gone_on_with(tmp_path):
    source = Interrupted(300)
    source.fails_at = 200
    with pytest.raises(KeyboardInterrupt):
        fl.Dataset.from_sequence(source).write(tmp_path / "a.fld", shard_size=3000)
    with pytest.raises(fl.StoreError, match=r"holds what another conversion has left, .*; remove it"):
        fl.Dataset.from_sequence(source).take(100).write(tmp_path / "a.fld", shard_size=3000)


def test_elements_left_out_are_counted_when_going_on(tmp_path):
    source = Interrupted(300)

    def some(sample):
        if sample["i"] % 3 == 0:
            raise ValueError("left out")
        return sample

    dataset = fl.Dataset.from_sequence(source).map(some).options(on_error="skip")
    source.fails_at = 250
    with pytest.raises(KeyboardInterrupt):
        dataset.write(tmp_path / "a.fld", shard_size=3000)
    source.fails_at = None
    dataset.write(tmp_path / "a.fld", shard_size=3000)
    assert [sample["i"] for sample in fl.open(tmp_path / "a.fld")] == [i for i in range(300) if i % 3]


def test_threads_and_compression_change_no_sample(tmp_path):
    for i in range(40):
        (tmp_path / f"{i:02d}.bin").write_bytes(bytes([i]) * 1000)
    for threads in (0, 3):
        path = tmp_path / f"{threads}.fld"
        fl.open(tmp_path / "*.bin").write(path, threads=threads, compression="zstd")
        assert [sample["data"] for sample in fl.open(path)] == [bytes([i]) * 1000 for i in range(40)]
        assert path.stat().st_size < 20_000
