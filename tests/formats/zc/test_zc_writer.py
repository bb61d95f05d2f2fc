"""Writing shards: what may be stored, and that a shard is whole or not there."""

from __future__ import annotations

import os

import numpy as np
import pytest
import zc_by_hand as hand
from forking import forked

from fastloader.errors import SampleError, StoreError
from fastloader.formats.zc import ZCWriter, writer
from fastloader.stores import AtomicFile


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (b"abc", b"abc"),
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"abcdef")[1:3], b"bc"),
        (np.arange(3, dtype="<u2"), b"\0\0\1\0\2\0"),
        (np.arange(6, dtype=np.uint8).reshape(2, 3).T, b"\0\3\1\4\2\5"),
        (np.float32(1.0).reshape(()), b"\0\0\x80?"),
        (np.zeros((3, 0)), b""),
        (memoryview(np.zeros((3, 0))), b""),
        (np.array(["1970-01-02"], "M8[D]"), b"\1" + bytes(7)),
    ],
    ids=["bytes", "bytearray", "memoryview", "array", "strided", "0-d", "empty", "empty view", "dates"],
)
def test_any_buffer_and_any_array_can_be_stored(tmp_path, given, stored):
    with ZCWriter(tmp_path / "a.zc") as file:
        assert [file.write_sample(b"first"), file.write_sample(given), file.num_samples] == [0, 1, 2]
    assert hand.read((tmp_path / "a.zc").read_bytes()) == [b"first", stored]


@pytest.mark.parametrize(
    "bad", ["text", 5, None, [1, 2], np.array([object()]), memoryview(b"abcd")[::2]], ids=lambda bad: type(bad).__name__
)
def test_what_has_no_bytes_is_refused_by_number_and_the_rest_goes_on(tmp_path, bad):
    with ZCWriter(tmp_path / "a.zc") as file:
        file.write_sample(b"a")
        with pytest.raises(SampleError, match=r"a\.zc: sample 1: a \w+ has no bytes to store"):
            file.write_sample(bad)
        file.write_sample(b"b")
    assert hand.read((tmp_path / "a.zc").read_bytes()) == [b"a", b"b"]


@pytest.mark.parametrize("alignment", [0, -1, 3, 1 << 22])
def test_an_alignment_is_a_power_of_two(tmp_path, alignment):
    with pytest.raises(ValueError, match=f"alignment={alignment}: a power of two"):
        ZCWriter(tmp_path / "a.zc", alignment=alignment)
    assert os.listdir(tmp_path) == []


def test_the_caller_may_reuse_its_memory(tmp_path):
    buffer = np.zeros(10, np.uint8)
    with ZCWriter(tmp_path / "a.zc") as file:
        for i in range(5):
            buffer[:] = i
            file.write_sample(buffer)
    assert hand.read((tmp_path / "a.zc").read_bytes()) == [bytes([i]) * 10 for i in range(5)]


def test_nothing_is_seen_before_it_is_whole(tmp_path):
    (tmp_path / "a.zc").write_bytes(b"old")
    file = ZCWriter(tmp_path / "a.zc")
    file.write_sample(bytes(3 << 20))
    assert (tmp_path / "a.zc").read_bytes() == b"old"
    file.close()
    file.close()
    assert len(hand.read((tmp_path / "a.zc").read_bytes())[0]) == 3 << 20
    assert os.listdir(tmp_path) == ["a.zc"]
    with pytest.raises(ValueError, match="this writer is closed"):
        file.write_sample(b"")


def test_an_error_in_between_leaves_what_was_there(tmp_path):
    (tmp_path / "a.zc").write_bytes(b"old")

    def interrupted():
        with ZCWriter(tmp_path / "a.zc") as file:
            file.write_sample(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "a.zc").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.zc"]


@pytest.mark.parametrize("when", ["sample", "close"])
def test_a_disk_that_is_full_ends_the_writer_and_publishes_nothing(tmp_path, monkeypatch, when):
    def full(self, offset, data):
        raise StoreError("No space left on device", path=self.path)

    file = ZCWriter(tmp_path / "a.zc")
    file.write_sample(b"small")
    monkeypatch.setattr(AtomicFile, "write_at", full)
    with pytest.raises(StoreError, match="No space left"):
        file.write_sample(bytes(writer._TOGETHER + 1)) if when == "sample" else file.close()
    monkeypatch.undo()
    with pytest.raises(ValueError, match="this writer is closed"):
        file.write_sample(b"next")
    file.close()
    assert os.listdir(tmp_path) == []


def test_a_writer_that_is_dropped_warns_and_leaves_nothing(tmp_path):
    file = ZCWriter(tmp_path / "a.zc")
    file.write_sample(b"lost")
    with pytest.warns(ResourceWarning, match="never closed"):
        del file
    assert os.listdir(tmp_path) == []


def test_a_forked_child_that_drops_its_copy_leaves_the_writer_alone(tmp_path):
    file = ZCWriter(tmp_path / "a.zc")
    file.write_sample(b"kept")
    assert forked(lambda: file.__del__() is None)
    file.close()
    assert hand.read((tmp_path / "a.zc").read_bytes()) == [b"kept"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link.zc").symlink_to("real.zc")
    with ZCWriter(tmp_path / "link.zc") as file:
        file.write_sample(b"x")
    assert (tmp_path / "link.zc").is_symlink()
    assert hand.read((tmp_path / "real.zc").read_bytes()) == [b"x"]
