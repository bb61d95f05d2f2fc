"""TFRecord, as TensorFlow wrote it; the parser of Examples and its slow twin."""

from __future__ import annotations

import gzip
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels
from fastloader.formats import tfrecord
from fastloader.formats.example import parse_example, varints
from fastloader.formats.tfrecord import HEAD, TAIL, masked
from fastloader.testing import FormatContract, identical

VECTORS = Path(__file__).parents[1] / "vectors"
sys.path.insert(0, str(VECTORS))

from make_formats import RECORDS, example  # noqa: E402


def examples():
    return [dict(sorted(example(i).items())) for i in range(RECORDS)]


def record(data):
    head = len(data).to_bytes(8, "little")
    return head + TAIL.pack(masked(head)) + data + TAIL.pack(masked(data))


class TestExamples(FormatContract):
    own_fields = True

    def write(self, folder):
        data = (VECTORS / "formats" / "examples.tfrecord").read_bytes()
        at = 0
        for _ in range(4):
            at += HEAD.size + HEAD.unpack_from(data, at)[0] + TAIL.size
        (folder / "train-00000-of-00002").write_bytes(data[:at])
        (folder / "train-00001-of-00002").write_bytes(data[at:])
        return folder

    def samples(self):
        return examples()

    def bad_files(self, folder):
        data = bytearray(record(b"one") + record(b"two") + record(b"three"))
        data[20] ^= 1
        (folder / "a.tfrecord").write_bytes(data)
        yield folder / "a.tfrecord", r"a\.tfrecord: record 1 at offset 19: its length: crc32c stored 0x"
        data[20] ^= 1
        data[32] ^= 1
        (folder / "b.tfrecord").write_bytes(data)
        yield folder / "b.tfrecord", r"b\.tfrecord: sample 1: record 1 at offset 19: its data: crc32c stored 0x"
        (folder / "c.tfrecord").write_bytes(record(b"one") + record(b"two")[:-1])
        yield folder / "c.tfrecord", r"c\.tfrecord: record 1 at offset 19: 7 bytes should follow its head, and 6 do"
        (folder / "d.tfrecord").write_bytes(record(b"") + record(b"\x0a\x05ab"))
        yield folder / "d.tfrecord", r"d\.tfrecord: sample 1: record 1 at offset 16: at byte 0: "


class TestZippedExamples(FormatContract):
    random_access = False
    own_fields = True

    def write(self, folder):
        shutil.copy(VECTORS / "formats" / "examples.tfrecord.gz", folder)
        return folder / "examples.tfrecord.gz"

    def samples(self):
        return examples()

    def bad_files(self, folder):
        data = bytearray(record(b"\x0b") + record(b"two"))
        data[-6] ^= 1
        (folder / "a.tfrecord.gz").write_bytes(gzip.compress(data))
        yield folder / "a.tfrecord.gz", r"a\.tfrecord\.gz: record 1 at offset 17: its data: crc32c stored"


class TestPlainRecords(FormatContract):
    def write(self, folder):
        shutil.copy(VECTORS / "formats" / "bytes.tfrecord", folder)
        return folder / "bytes.tfrecord"

    def samples(self):
        return [{"data": b"\x07plain %d" % i} for i in range(RECORDS)]


def wire(number, kind, *parts):
    return bytes([number << 3 | kind]) + b"".join(parts)


def packed(number, data):
    return wire(number, 2, varint(len(data)), data)


def varint(value):
    value &= 2**64 - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def made(name, feature):
    return packed(1, packed(1, packed(1, name.encode()) + packed(2, feature)))


def agree(data):
    """Both parsers say the same, or both refuse."""
    try:
        wanted = parse_example(data)
    except ValueError:
        with pytest.raises(ValueError, match=r"at byte|codec"):
            kernels.parse_example(data, set())
        return None
    got = kernels.parse_example(data, set())
    assert identical(wanted, got)
    return got


integers = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6)


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(integers, integers, st.lists(st.floats(width=32), max_size=5), st.lists(st.binary(max_size=9), max_size=4))
def test_both_parsers_read_what_was_written(some, single, floats, texts):
    data = (
        made("packed", packed(3, packed(1, b"".join(map(varint, some)))))
        + made("single", packed(3, b"".join(wire(1, 0, varint(value)) for value in single)))
        + made("floats", packed(2, packed(1, np.array(floats, "<f4").tobytes())))
        + made("alone", packed(2, b"".join(wire(1, 5, np.float32(value).tobytes()) for value in floats)))
        + made("bytes", packed(1, b"".join(packed(1, text) for text in texts)))
        + made("none", b"")
    )
    got = agree(data)
    assert got["packed"].tolist() == some
    assert got["single"].tolist() == single
    assert identical(got["floats"], np.array(floats, np.float32))
    assert identical(got["alone"], np.array(floats, np.float32))
    assert got["bytes"] == texts
    assert got["none"] == []


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.data())
def test_both_parsers_refuse_the_same_damage(data):
    good = bytearray((VECTORS / "formats" / "examples.tfrecord").read_bytes()[12:])
    good = good[: data.draw(st.integers(0, 150))]
    for _ in range(data.draw(st.integers(0, 3))):
        if good:
            good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    agree(bytes(good))


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_varints_come_back(values):
    assert varints(b"".join(map(varint, values))).tolist() == values


def test_a_feature_is_one_value_where_the_first_records_have_one(tmp_path):
    one, two = (packed(3, packed(1, bytes(values))) for values in ([7], [7, 8]))
    (tmp_path / "a.tfrecord").write_bytes(record(made("x", one)) * tfrecord.LOOKED_AT + record(made("x", two)))
    dataset = fl.open(tmp_path / "a.tfrecord")
    assert dataset[0] == {"x": 7}
    with pytest.raises(fl.FormatError, match=r"record 100 at offset \d+: feature 'x' has 2 values, .*types="):
        dataset[100]
    lists = fl.open(tmp_path / "a.tfrecord", types={"x": "list"})
    assert [lists[0]["x"].tolist(), lists[100]["x"].tolist()] == [[7], [7, 8]]


def test_an_index_is_kept(tmp_path, cache, monkeypatch):
    path = TestExamples().write(tmp_path)
    assert len(fl.open(path)) == RECORDS
    assert len(list(cache.iterdir())) == 2
    monkeypatch.setattr(tfrecord, "scan", lambda source: pytest.fail("it was gone through again"))
    assert len(fl.open(path)) == RECORDS


def test_an_empty_file_has_no_records_but_no_name_either(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(b"")
    with pytest.raises(fl.FormatError, match=r"a\.tfrecord: is named like TFRecord and is none: it is empty"):
        fl.open(tmp_path / "a.tfrecord")
    assert len(fl.open(tmp_path / "a.tfrecord", format="tfrecord")) == 0
