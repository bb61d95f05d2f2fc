"""The bytes of a shard: what the writer gives, and what the reader makes of files put together by hand."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import zc_by_hand as hand
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.formats.zc import ZCShard, ZCWriter

TEXT = b'{"num_samples":2,"samples":[{"offset":0,"size":3},{"offset":3,"size":1}]}'


def samples_of(path):
    shard = ZCShard(path)
    return [shard.bytes[begin:end].tobytes() for begin, end in zip(shard.begins, shard.ends, strict=True)]


def write(path, samples, **options):
    with ZCWriter(path, **options) as writer:
        for sample in samples:
            writer.write_sample(sample)


def test_the_writer_gives_these_bytes(tmp_path):
    write(tmp_path / "a.zc", [b"abc", b"d"], alignment=1)
    assert (tmp_path / "a.zc").read_bytes() == (
        b"\x44\x4c\x43\x5a" b"\x01\x00"
        b"\x1a\0\0\0\0\0\0\0" b"\x16\0\0\0\0\0\0\0"
        b"abcd"
        b"\x49\0\0\0\0\0\0\0" + TEXT
    )  # fmt: skip


def test_the_writer_aligns_samples_in_the_file(tmp_path):
    write(tmp_path / "a.zc", [b"abc", b"", b"defgh"])
    text = b'{"num_samples":3,"samples":[{"offset":0,"size":3},{"offset":64,"size":0},{"offset":64,"size":5}]}'
    assert (tmp_path / "a.zc").read_bytes() == (
        struct.pack("<IHQQ", 0x5A434C44, 1, 64 + 69, 64) + bytes(42)
        + b"abc" + bytes(61) + b"defgh" + struct.pack("<Q", len(text)) + text
    )  # fmt: skip


def test_an_empty_shard_has_no_samples(tmp_path):
    write(tmp_path / "a.zc", [])
    assert samples_of(tmp_path / "a.zc") == hand.read((tmp_path / "a.zc").read_bytes()) == []


@pytest.mark.parametrize("build", [hand.data_first, hand.metadata_first])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,", ":\n")])
def test_metadata_may_stand_before_or_behind_the_data_with_any_spaces(tmp_path, build, separators):
    samples = [b"abc", b"", b"\xff" * 1000, b"d"]
    (tmp_path / "a.zc").write_bytes(hand.shard(samples, build, separators=separators))
    assert samples_of(tmp_path / "a.zc") == samples


def test_other_keys_and_another_order_of_keys_are_fine(tmp_path):
    text = b'{"made": {"by": [null, 1.5, "me"]}, "samples": [{"size": 2, "label": "x", "offset": 1}], "num_samples": 1}'
    (tmp_path / "a.zc").write_bytes(hand.data_first(b"abc", text))
    assert samples_of(tmp_path / "a.zc") == [b"bc"]


def test_samples_may_share_bytes_and_leave_gaps(tmp_path):
    text = json.dumps(hand.describe([(5, 3), (4, 2), (5, 3)])).encode()
    (tmp_path / "a.zc").write_bytes(hand.metadata_first(b"0123456789"[:8], text, gap=bytes(9)))
    assert samples_of(tmp_path / "a.zc") == [b"567", b"45", b"567"]


@pytest.mark.parametrize("build", [hand.data_first, hand.metadata_first])
def test_a_file_may_be_filled_up_to_a_block_with_zeros(tmp_path, build):
    (tmp_path / "a.zc").write_bytes(hand.shard([b"abc"], build) + bytes(4095))
    assert samples_of(tmp_path / "a.zc") == [b"abc"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=40), st.sampled_from([1, 2, 8, 64, 4096]))
def test_samples_come_back(tmp_path_factory, samples, alignment):
    path = tmp_path_factory.mktemp("zc") / "a.zc"
    write(path, samples, alignment=alignment)
    assert samples_of(path) == hand.read(path.read_bytes()) == samples
    assert all(begin % alignment == 0 for begin in ZCShard(path).begins)
    before = path.read_bytes()
    write(path, samples, alignment=alignment)
    assert path.read_bytes() == before


def test_samples_larger_than_the_writers_buffer_come_back(tmp_path):
    rng = np.random.default_rng(0)
    samples = [rng.bytes(size) for size in (10, 3 << 20, 1 << 20, (1 << 20) + 1, 7, (1 << 20) - 1, 0, 900_000, 900_000)]
    write(tmp_path / "a.zc", samples)
    assert samples_of(tmp_path / "a.zc") == samples


def test_a_table_of_many_samples_comes_back(tmp_path):
    sizes = np.random.default_rng(1).integers(0, 5, 200_000)
    data = np.random.default_rng(2).bytes(int(sizes.sum()))
    ends = np.cumsum(sizes)
    write(tmp_path / "a.zc", [data[end - size : end] for end, size in zip(ends, sizes, strict=True)], alignment=1)
    shard = ZCShard(tmp_path / "a.zc")
    assert np.array_equal(shard.ends - shard.data_begin, ends)
    assert np.array_equal(shard.ends - shard.begins, sizes)
    assert shard.data.tobytes() == data
