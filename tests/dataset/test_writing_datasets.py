"""``Dataset.write``: fields told from samples, images as they are, shards that go on after an interruption."""

from __future__ import annotations

import io
import itertools
import json
import os
import tarfile
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.dataset.dataset import as_node
from fastloader.dataset.running import new_run
from fastloader.testing import identical
from fastloader.writer import DatasetWriter
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
        ([2**63, 1], fl.NDArrayField("uint64", ())),
        ([np.uint64(2**64 - 1), None, 7], fl.NDArrayField("uint64", ())),
        ([2**53, 0.5], fl.FloatField()),
        ([b"a", b"", bytearray(b"x")], fl.BytesField()),
        ([JPEG, None, PROGRESSIVE], fl.JPEGImageField()),
        ([JPEG, b"x"], fl.BytesField()),
        ([b"\xff\xd8\xff and no more"], fl.BytesField()),
        ([PNG], fl.PNGImageField()),
        (["a", "b"], fl.TextField()),
        ([None, None], fl.JSONField()),
        ([[1, "a"], {"x": None}], fl.JSONField()),
        ([1, "a"], fl.JSONField()),
        ([[1.5, float("nan")], [float("nan")], {"x": (1, float("inf"))}], fl.JSONField()),
        ([np.zeros((2, 3), "u1")] * 2, fl.NDArrayField("uint8", (2, 3))),
        ([np.zeros((2, 3)), np.zeros((4, 3))], fl.NDArrayField("float64", (None, 3))),
        ([np.zeros(3), np.zeros((1, 1))], fl.NDArrayField("float64")),
        ([np.array(4)], fl.NDArrayField("int64", ())),
        ([[b"cat", b"dog"], [], None, (b"",)], fl.ListField(fl.BytesField())),
        ([["cat"], []], fl.JSONField()),
        ([date(2024, 1, 2), datetime(2024, 1, 2), time(3), timedelta(1)], fl.TextField()),
        ([Decimal("1.50"), None], fl.TextField()),
        ([[Decimal("1.50")], []], fl.ListField(fl.TextField())),
        ([np.datetime64("2024-01-02", "ns")] * 2, fl.NDArrayField("datetime64[ns]", ())),
    ],
)
def test_a_field_is_told_from_values(values, field):
    assert infer_field("x", values) == field


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([[b"x", "y"]], r"field 'x': no field holds list like \[b'x', 'y'\]"),
        ([[b"x", None]], "no field holds list"),
        ([Decimal(1), date(2024, 1, 2)], "no field holds Decimal and date"),
        ([Decimal(1), 1.5], "no field holds Decimal and float"),
        ([np.zeros(2), 1], "no field holds .*int.*ndarray"),
        ([np.zeros(2), np.zeros(2, "f4")], "arrays of several types, float32, float64"),
        ([{1: "a"}], "no field holds dict.*; map it to values that one holds, or leave it out"),
        ([2**70, 1], "whole numbers from 1 to 1180591620717411303424 fit in no 64 bits; .*--field x=JSONField"),
        ([2**63, -1], "whole numbers from -1 to 9223372036854775808 fit in no 64 bits; .*--field x=JSONField"),
        ([np.uint64(2**63), np.int64(-1)], "fit in no 64 bits; map them to int"),
        ([0.5, 2**53 + 1], "no float holds 9007199254740993, which stands among floats; .*--field x=JSONField"),
        ([0.5, 10**400], "no float holds 1000"),
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


def test_whole_numbers_stay_what_they_are(tmp_path):
    values = [2**63, 2**63 + 1, 2**64 - 1, 0, None]
    pq.write_table(pa.table({"x": pa.array(values, pa.uint64())}), tmp_path / "a.parquet")
    assert fl.open(tmp_path / "a.parquet").write(tmp_path / "a.fld") == {"x": fl.NDArrayField("uint64", ())}
    assert [one["x"] if one["x"] is None else int(one["x"]) for one in fl.open(tmp_path / "a.fld")] == values
    large = [{"x": value} for value in (2**64, -1, 10**30)]
    fl.Dataset.from_sequence(large).write(tmp_path / "b.fld", {"x": fl.JSONField()})
    assert list(fl.open(tmp_path / "b.fld")) == large
    late = fl.Dataset.range(500).map(lambda i: {"x": i if i != 401 else 2**63})
    with pytest.raises(fl.SampleError, match=r"sample 401, field 'x': .*does not fit in 64 bits"):
        late.write(tmp_path / "c.fld")


STAMP = datetime(2024, 1, 2, 3, 4, 5, 678, UTC)
ROWS = [
    {"stamp": STAMP, "day": date(2024, 1, 2), "at": time(3, 4, 5), "span": timedelta(1, 2, 3), "price": Decimal("1.50"),
     "words": [b"cat", b"\xff"], "days": [date(2024, 1, 2)]},
    {"stamp": None, "day": date(1, 1, 1), "at": None, "span": -timedelta(0, 1), "price": Decimal("-0.10"), "words": [],
     "days": []},
]  # fmt: skip
TEXTS = [
    {"stamp": STAMP.isoformat(), "day": "2024-01-02", "at": "03:04:05", "span": "P1DT2.000003S", "price": "1.50",
     "words": [b"cat", b"\xff"], "days": ["2024-01-02"]},
    {"stamp": None, "day": "0001-01-01", "at": None, "span": "-P0DT1S", "price": "-0.10", "words": [], "days": []},
]  # fmt: skip


def test_dates_and_decimals_are_stored_as_texts_and_lists_of_bytes_as_they_are(tmp_path):
    fl.Dataset.from_sequence(ROWS).write(tmp_path / "a.fld")
    assert list(fl.open(tmp_path / "a.fld")) == TEXTS
    assert [datetime.fromisoformat(TEXTS[0]["stamp"]), Decimal(TEXTS[1]["price"])] == [STAMP, ROWS[1]["price"]]


def test_those_of_parquet_too_and_back(tmp_path):
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    dataset = fl.open(tmp_path / "a.parquet")
    dataset.write(tmp_path / "a.fld")
    assert list(fl.open(tmp_path / "a.fld")) == TEXTS
    for source in (dataset, fl.open(tmp_path / "a.fld")):
        source.write(tmp_path / "b.parquet")
        assert list(fl.open(tmp_path / "b.parquet")) == TEXTS
    dataset.map(lambda sample: {name: sample[name] for name in ("stamp", "price")}).write(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.extractfile("000000000.price.txt").read() == b"1.50"


def test_nanoseconds_stay(tmp_path):
    pytest.importorskip("pandas")  # pyarrow has no other times with nanoseconds
    pq.write_table(pa.table({"t": pa.array([1, 2**60 + 1], pa.timestamp("ns"))}), tmp_path / "a.parquet")
    fl.open(tmp_path / "a.parquet").write(tmp_path / "a.fld")
    assert next(iter(fl.open(tmp_path / "a.fld")))["t"] == "1970-01-01T00:00:00.000000001"
    times = [{"t": np.datetime64(n, "ns")} for n in (1, 2**60 + 1)]
    fl.Dataset.from_sequence(times).write(tmp_path / "b.fld")
    assert [one["t"][()] for one in fl.open(tmp_path / "b.fld")] == [one["t"] for one in times]


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


@pytest.mark.parametrize("name", ["a.fld", "a.tar", "a.parquet"])
def test_a_folder_is_not_replaced_by_a_file(name, tmp_path):
    (tmp_path / name).mkdir()
    with pytest.raises(fl.StoreError, match=f"{name}: [Ii]s a (folder|directory)"):
        fl.Dataset.from_sequence([{"x": 1}]).write(tmp_path / name)
    assert os.listdir(tmp_path) == [name]


def test_a_folder_with_files_of_others_is_not_replaced(tmp_path):
    target = tmp_path / "x.fld"
    numbers = fl.Dataset.range(100).map(lambda i: {"i": i})
    target.mkdir()
    (target / "mine.txt").write_text("precious")
    with pytest.raises(fl.StoreError, match=r"x\.fld: is a folder that is no dataset: it holds mine\.txt"):
        numbers.write(target, shard_size=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["x.fld"]
    (target / "mine.txt").unlink()
    target.rmdir()
    for count in (100, 50):
        numbers.take(count).write(target, shard_size=1000)
        assert len(fl.open(target)) == count

    def came_meanwhile(sample):
        (target / "mine.txt").write_text("precious")
        return sample

    with pytest.raises(fl.StoreError, match=r"it holds mine\.txt"):
        numbers.map(came_meanwhile).write(target, shard_size=1000)
    assert (target / "mine.txt").read_text() == "precious"


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


def begun(dataset, target, monkeypatch):
    """Write some of it."""
    write, written = DatasetWriter.write_sample, itertools.count()

    def some(self, sample):
        if next(written) == 350:
            raise KeyboardInterrupt
        write(self, sample)

    with monkeypatch.context() as patch:
        patch.setattr(DatasetWriter, "write_sample", some)
        with pytest.raises(KeyboardInterrupt):
            dataset.write(target, shard_size=3000)


def goes_on(dataset, target):
    """What was begun goes on, and the dataset is whole."""
    dataset.write(target, shard_size=3000)
    assert [sample["i"] for sample in fl.open(target)] == [sample["i"] for sample in dataset]


def refused(dataset, target):
    """What was begun was begun with others."""
    with pytest.raises(
        fl.StoreError, match="files that are converted have changed since then; remove it to begin anew"
    ):
        dataset.write(target, shard_size=3000)


def lines(path, first=0):
    path.write_text("".join(f'{{"i": {i or first}, "data": "{i:0100d}"}}\n' for i in range(400)))
    os.utime(path, ns=(0, first))


SOURCES = {
    "jsonl": lambda path: fl.open(path),
    "shuffled": lambda path: fl.open(path).shuffle(seed=3),
    "concatenated": lambda path: fl.Dataset.concat(fl.open(path).take(10), fl.open(path).skip(10)),
    "a stream": lambda path: fl.open(path).filter(lambda sample: True),
    "interleaved": lambda path: fl.Dataset.interleave(fl.open(path), fl.open(path), cycle_length=2),
    "in memory": lambda path: fl.open(path).cache(),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("in_store", [False, True])
def test_a_conversion_does_not_go_on_with_files_that_changed(kind, in_store, tmp_path, monkeypatch):
    source = tmp_path / "x.jsonl"
    target = f"memory://{tmp_path.name}-{kind.replace(' ', '-')}/a.fld" if in_store else tmp_path / "a.fld"
    lines(source)
    begun(SOURCES[kind](source), target, monkeypatch)
    lines(source, 7)
    refused(SOURCES[kind](source), target)
    lines(source)
    os.rename(source, tmp_path / "moved.jsonl")
    goes_on(SOURCES[kind](tmp_path / "moved.jsonl"), target)


def test_a_conversion_knows_a_fld_dataset_by_what_it_holds(tmp_path, monkeypatch):
    def write(first):
        with fl.DatasetWriter(tmp_path / "x.fld", {"i": fl.IntField(), "data": fl.BytesField()}) as writer:
            for i in range(400):
                writer.write_sample({"i": i or first, "data": bytes(100)})

    write(0)
    begun(fl.open(tmp_path / "x.fld"), tmp_path / "a.fld", monkeypatch)
    write(7)
    refused(fl.open(tmp_path / "x.fld"), tmp_path / "a.fld")
    write(0)
    goes_on(fl.open(tmp_path / "x.fld"), tmp_path / "a.fld")


def test_a_conversion_knows_a_cache_by_what_it_holds(tmp_path, monkeypatch):
    def dataset():
        return fl.open(tmp_path / "x.jsonl").cache(tmp_path / "kept")

    lines(tmp_path / "x.jsonl")
    begun(dataset(), tmp_path / "a.fld", monkeypatch)
    lines(tmp_path / "x.jsonl", 7)
    (tmp_path / "kept").unlink()
    refused(dataset(), tmp_path / "a.fld")
    lines(tmp_path / "x.jsonl")
    (tmp_path / "kept").unlink()
    goes_on(dataset(), tmp_path / "a.fld")


def test_a_conversion_knows_files_by_what_they_are_called(tmp_path):
    def origin():
        return as_node(fl.open(tmp_path / "x")).origin(new_run())

    for name in ("cat", "dog"):
        (tmp_path / "x" / name).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "x" / name / f"{i}.bin").write_bytes(bytes(5))
    before = origin()
    assert origin() == before
    os.rename(tmp_path / "x/cat/2.bin", tmp_path / "x/dog/20.bin")
    assert origin() != before


def test_a_conversion_knows_rows_by_how_they_were_chosen(tmp_path):
    pq.write_table(pa.table({"i": range(400), "half": [i % 2 for i in range(400)]}), tmp_path / "x.parquet")
    even, odd = (as_node(fl.open(tmp_path / "x.parquet", where=("half", "==", half))) for half in (0, 1))
    run = new_run()
    assert even.signature(run) == odd.signature(run)
    assert even.origin(run) != odd.origin(run)


def test_a_conversion_knows_tokens_by_their_file(tmp_path):
    def origin():
        return as_node(fl.TokenStream(tmp_path / "x.bin", 7, dtype="uint16")).origin(new_run())

    np.arange(100, dtype=np.uint16).tofile(tmp_path / "x.bin")
    before = origin()
    assert origin() == before
    os.utime(tmp_path / "x.bin", ns=(0, 1))
    assert origin() != before


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
