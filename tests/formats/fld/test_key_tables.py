"""The key index: the golden tables by hand, the builder against its rules, and search against a dictionary."""

from __future__ import annotations

import fld_by_hand as hand
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels
from fastloader.errors import SampleError
from fastloader.formats.fld import key_index
from fastloader.formats.fld.key_index import KeyIndexBuilder, home_slots
from fastloader.formats.fld.spill import SpillFile

BASIC = (hand.VECTORS / "basic.fld").read_bytes()
KEYS = [key.encode() for key in hand.vectors()["key_list"](9)]


def test_key_offsets_and_bytes_of_the_golden_file():
    assert [hand.key(BASIC, i) for i in range(9)] == KEYS
    assert b"".join(hand.table(BASIC, hand.KEY_BYTES)) == b"".join(KEYS)
    offsets = [hand.u8(row, 0) for row in hand.table(BASIC, hand.KEY_OFFSETS)]
    assert offsets == [0, 0, 7, 17, 317, 332, 347, 362, 377, 392]


def test_key_slots_of_the_golden_file():
    rows = [hand.u8(row, 0) for row in hand.table(BASIC, hand.KEY_SLOTS)]
    assert rows[0] == 13, "9 samples fill seven tenths of 13 home slots"
    assert rows[1:] == slots_slowly(KEYS)
    assert rows[-1] == 0


def test_finding_keys_of_the_golden_file():
    reader = fl.open(hand.VECTORS / "basic.fld")
    for i, key in enumerate(KEYS):
        assert hand.find(BASIC, key) == i == reader.index_of(key)
        assert reader.key_of(i) == key.decode()
    assert hand.find(BASIC, b"absent") is None
    assert "absent" not in reader


def slots_slowly(keys: list[bytes]) -> list[int]:
    """The slots as the document lays them."""
    homes = max(8, -(-len(keys) * 10 // 7))
    slots: list[int] = []
    for digest, sample in sorted((xxhash.xxh64_intdigest(key), i) for i, key in enumerate(keys)):
        slot = max(len(slots), digest * homes >> 64)
        slots += [0] * (slot - len(slots)) + [(digest & 0xFFFF) << 48 | sample + 1]
    return slots + [0] * (max(len(slots), homes) + 1 - len(slots))


def build(folder, keys: list[bytes], chunk: int = 7) -> tuple[bytes, bytes, bytes]:
    spills = SpillFile(folder / "x.fld")
    builder = KeyIndexBuilder(spills)
    try:
        for at in range(0, len(keys), chunk):
            builder.append(keys[at : at + chunk])
        return b"".join(builder.offsets()), b"".join(builder.key_bytes()), b"".join(builder.slots())
    finally:
        spills.close()


@given(st.sets(st.binary(max_size=40), max_size=200))
@settings(max_examples=60, deadline=None)
def test_the_builder_lays_slots_as_documented(tmp_path_factory, keys):
    ordered = sorted(keys, key=xxhash.xxh32_intdigest)
    offsets, text, slots = build(tmp_path_factory.getbasetemp(), ordered)
    assert text == b"".join(ordered)
    assert np.frombuffer(offsets, "<u8").tolist() == np.cumsum([0, *map(len, ordered)]).tolist()
    found = np.frombuffer(slots, "<u8").tolist()
    assert found[0] == home_slots(len(ordered))
    assert found[1:] == slots_slowly(ordered)


@pytest.mark.parametrize("partition", [1, 2, 7, 100, 999])
@pytest.mark.parametrize("count", [0, 1, 2, 50, 1000])
def test_many_partitions_give_what_one_gives(tmp_path, monkeypatch, partition, count):
    keys = [f"key {i}".encode() for i in range(count)]
    whole = build(tmp_path, keys)
    monkeypatch.setattr(key_index, "PARTITION", partition)
    assert build(tmp_path, keys) == whole


@pytest.mark.parametrize("partition", [3, 1 << 21])
def test_a_key_given_twice_is_refused_by_name(tmp_path, monkeypatch, partition):
    monkeypatch.setattr(key_index, "PARTITION", partition)
    keys = [f"key {i}".encode() for i in range(40)]
    keys[31] = keys[5]
    with pytest.raises(SampleError, match="'key 5' was given to sample 5 already") as caught:
        build(tmp_path, keys)
    assert caught.value.sample == 31


def test_equal_hashes_of_different_keys_are_no_duplicates(tmp_path, monkeypatch):
    """Real collisions of 64 bits are too rare to test with, so all keys are made to collide."""
    monkeypatch.setattr(kernels, "xxh64", lambda key: 12345)
    keys = [f"key {i}".encode() for i in range(20)]
    _, _, slots = build(tmp_path, keys)
    filled = [slot for slot in np.frombuffer(slots, "<u8")[1:].tolist() if slot]
    assert [(slot & (1 << 48) - 1) - 1 for slot in filled] == list(range(20)), "in the order of the samples"
    keys[7] = keys[3]
    with pytest.raises(SampleError, match="given to sample 3 already"):
        build(tmp_path, keys)


def test_a_duplicate_leaves_no_file(tmp_path):
    with (
        pytest.raises(SampleError, match="'same'"),
        fl.DatasetWriter(tmp_path / "keys.fld", {"n": fl.IntField()}, keys=True) as writer,
    ):
        writer.write_many([[1], [2]], ["same", "same"])
    assert list(tmp_path.iterdir()) == []
