import array
import math
import mmap
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.testing import FieldContract, identical
from fastloader.testing.fields import write
from fastloader.writer.encoding import encode_at_once

INT_LIMITS = [-(2**63), 2**63 - 1]


class TestIntField(FieldContract):
    def fields(self):
        return [fl.IntField()]

    def values(self, field):
        return [0, 1, -1, *INT_LIMITS, True, np.int8(-5), np.uint64(2**63 - 1), np.array(7), np.array([8], np.uint16)]

    def bad_values(self, field):
        return [2**63, -(2**63) - 1, np.uint64(2**63), 1.0, np.float32(1), "1", b"1", [1], np.array([1, 2]), 1j]

    def equal(self, given, got):
        return type(got) is int and got == int(given.item() if isinstance(given, np.ndarray) else given)


def test_int_batches_are_int64_arrays(tmp_path):
    batch = write(tmp_path / "x.fld", fl.IntField(), [3, -4, 5]).read_batch([2, 0])["it"]
    assert identical(batch, np.array([5, 3], np.int64))


class TestFloatField(FieldContract):
    def fields(self):
        return [fl.FloatField()]

    def values(self, field):
        special = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
        return [*special, 3, True, np.float32(0.1), np.float16(2), np.array([1.5]), np.array(2.5), Decimal("0.5")]

    def bad_values(self, field):
        return ["1.5", b"1.5", [1.5], 1j, {}, np.array([1.0, 2.0]), np.str_("1"), 10**400]

    def equal(self, given, got):
        return identical(float(given.item() if isinstance(given, np.ndarray) else given), got)


def test_a_nan_keeps_its_bits(tmp_path):
    odd = np.array([0x7FF8_0000_DEAD_BEEF], np.uint64).view(np.float64)
    reader = write(tmp_path / "x.fld", fl.FloatField(), [odd])
    assert reader.read_batch([0])["it"].tobytes() == odd.tobytes()


class TestBytesField(FieldContract):
    def fields(self):
        return [fl.BytesField()]

    def values(self, field):
        return [
            b"",
            b"\0",
            b"abc" * 1000,
            bytearray(b"changing"),
            memoryview(b"0123456789")[::2],
            np.arange(10, dtype=np.uint8)[::-1],
            np.arange(12, dtype=np.uint8).reshape(3, 4).T,
            np.zeros(0, np.uint8),
            array.array("H", [1, 2, 3]),
        ]

    def bad_values(self, field):
        return ["text", 5, [1, 2], np.zeros(3, np.float32), np.zeros(3, np.int8), {}, 1.5]

    def equal(self, given, got):
        return type(got) is bytes and got == memoryview(given).tobytes()


def test_a_mapped_file_is_a_value(tmp_path):
    (tmp_path / "in").write_bytes(b"mapped")
    with (tmp_path / "in").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        reader = write(tmp_path / "x.fld", fl.BytesField(), [mapping])
    assert reader[0]["it"] == b"mapped"


def test_bytes_batches_are_lists_even_of_equal_lengths(tmp_path):
    assert write(tmp_path / "x.fld", fl.BytesField(), [b"ab", b"cd"]).read_batch([1, 0])["it"] == [b"cd", b"ab"]


class TestJSONField(FieldContract):
    def fields(self):
        return [fl.JSONField()]

    def values(self, field):
        return [
            "",
            "naïve 日本語 🎈",
            "lone \ud800 surrogate \udfff",
            "\0 and \x1f",
            0,
            -1.5,
            2**100,
            math.nan,
            math.inf,
            True,
            False,
            [],
            {},
            [None, [None, {"a": None}]],
            {"nested": {"lists": [[1, 2], [3, [4, {"deep": "ü"}]]]}, "": 0},
        ]

    def bad_values(self, field):
        loop: list = []
        loop.append(loop)
        return [
            b"bytes", {1, 2}, np.int64(3), np.zeros(2), 1j, loop, {(1, 2): 3}, object(), {1: "a"}, {1: "a", "1": "b"},
            [{"deep": ({None: 0},)}], {True: 1},
        ]  # fmt: skip


def test_none_is_missing_and_null_inside_is_not(tmp_path):
    reader = write(tmp_path / "x.fld", fl.JSONField(), [None, [None]])
    assert [sample["it"] for sample in reader] == [None, [None]]
    assert reader.read_batch([0, 1])["it"] == [None, [None]]
    assert reader.read_payload(0, "it") is None
    assert reader.read_payload(1, "it") == b"[null]"


def test_json_is_stored_as_utf8(tmp_path):
    reader = write(tmp_path / "x.fld", fl.JSONField(), [{"name": "日本"}])
    assert reader.read_payload(0, "it") == '{"name":"日本"}'.encode()


def test_a_json_value_may_change_after_it_was_written(tmp_path):
    shared = {"step": 0, "path": []}
    with fl.DatasetWriter(tmp_path / "x.fld", {"it": fl.JSONField()}) as writer:
        for step in range(3):
            shared["step"] = step
            shared["path"].append(step)
            writer.write_sample([shared])
    assert [s["it"]["path"] for s in fl.open(tmp_path / "x.fld")] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("field", [fl.IntField(), fl.FloatField()])
def test_numbers_store_no_payload(field, tmp_path):
    reader = write(tmp_path / "x.fld", field, [1, 2])
    with pytest.raises(KeyError, match=r"the field has no payloads: .*; read_sample gives the value"):
        reader.read_payload(0, "it")
    assert reader.dataset.file(0).data.size == 0


def test_a_key_that_is_no_text_is_named(tmp_path):
    with pytest.raises(fl.SampleError, match="the dictionary key 7 is int; JSON has text keys"):
        write(tmp_path / "x.fld", fl.JSONField(), [{"a": [{7: "seven"}]}])


PLAIN = [
    st.booleans(), st.integers(), st.integers(-(2**63), 2**63 - 1), st.floats(),
    st.integers(-128, 127).map(np.int8), st.integers(0, 2**32 - 1).map(np.uint32),
    st.integers(0, 2**64 - 1).map(np.uint64), st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.floats(width=16).map(np.float16), st.floats(width=32).map(np.float32), st.floats().map(np.float64),
    st.just("1"), st.just(np.array(3)),
]  # fmt: skip


@pytest.mark.parametrize("field", [fl.IntField(), fl.FloatField()], ids=repr)
@given(values=st.one_of(*(st.lists(one, max_size=6) for one in PLAIN), st.lists(st.one_of(PLAIN), max_size=6)))
@settings(max_examples=200, deadline=None)
def test_numbers_encoded_at_once_are_those_encoded_one_by_one(field, values):
    column = encode_at_once(field, values)
    if column is not None:
        rows = np.array([field.encode(value).metadata for value in values], field.metadata_type)
        assert identical(column.metadata, rows)


def test_plain_values_are_encoded_at_once():
    for field, values in [
        (fl.IntField(), [1, True, np.int32(5)]), (fl.FloatField(), [1, 0.5, np.float32(0.1)]),
        (fl.BytesField(), [b"", b"a"]), (fl.JSONField(), [b"1", b"[]"]),
    ]:  # fmt: skip
        assert encode_at_once(field, values) is not None
        assert encode_at_once(field, [*values, None]) is None


def test_a_field_with_an_encode_of_its_own_does_not_inherit_the_fast_path():
    class Upper(fl.BytesField):
        def encode(self, value):
            return fl.Encoded(payload=bytes(value).upper())

    class Wider(fl.IntField):
        @property
        def metadata_type(self):
            return np.dtype([("value", "<i8"), ("more", "<i8")])

    assert encode_at_once(Upper(), [b"a"]) is None
    for values in ([], [1], [1, 2]):
        assert encode_at_once(Wider(), values) is None
