"""Searching keys against a dictionary, in tables laid by the kernel and in crowded ones."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sources import make_table, numbers

from fastloader import kernels


def lay(keys: list[bytes], homes: int) -> list[int]:
    """All slots at once, by the kernel; the last is empty."""
    hashes = np.array([xxhash.xxh64_intdigest(key) for key in keys], np.uint64)
    order = np.argsort(hashes, kind="stable")
    out = np.zeros(homes + len(keys) + 1, np.uint64)
    free = kernels.lay_slots(hashes[order], order.astype(np.uint64), homes, 0, 0, out)
    return out[: max(free, homes) + 1].tolist()


def index(keys: list[bytes], slots: list[int], homes: int) -> kernels.Keys:
    offsets = np.cumsum([0, *map(len, keys)]).astype("<u8").tobytes()
    tables = (offsets, 8), (b"".join(keys), 1), (struct.pack(f"<{len(slots) + 1}Q", homes, *slots), 8)
    return kernels.Keys(*(make_table(content, width)[1] for content, width in tables))


@given(
    st.lists(st.binary(max_size=30), unique=True, max_size=100), st.integers(1, 300), st.lists(st.binary(max_size=30))
)
@settings(max_examples=150, deadline=None)
def test_find_is_a_dictionary(keys, homes, others):
    known = {key: i for i, key in enumerate(keys)}
    found = index(keys, lay(keys, homes), homes)
    assert len(found) == len(keys)
    for i, key in enumerate(keys):
        assert found.find(key) == i
        assert found.key(i) == key
    for other in others:
        assert found.find(other) == known.get(other)
    assert found.check(0, len(keys)) == []


@pytest.mark.parametrize("homes", [1, 2, 5])
def test_keys_that_share_a_home_are_all_found(homes):
    keys = [f"key {i}".encode() for i in range(200)]
    found = index(keys, lay(keys, homes), homes)
    assert [found.find(key) for key in keys] == list(range(200))
    assert found.find(b"absent") is None


def test_empty_and_long_keys():
    keys = [b"", b"\0", b"x" * 100_000, b"x" * 99_999, bytes(range(256))]
    found = index(keys, lay(keys, 8), 8)
    assert [found.find(key) for key in keys] == list(range(5))
    assert found.find(b"x" * 99_998) is None
    assert index([], [0] * 9, 8).find(b"") is None


@given(st.lists(st.integers(0, 2**64 - 1), max_size=80), st.integers(1, 60), st.integers(0, 80))
@settings(max_examples=150, deadline=None)
def test_lay_slots_agrees_with_its_twin_in_one_go_and_in_two(hashes, homes, cut):
    hashes.sort()
    samples = [7 * i % 1000 for i in range(len(hashes))]
    slots = [0] * (homes + len(hashes))
    following = 0
    for digest, sample in zip(hashes, samples, strict=True):
        slot = max(following, digest * homes >> 64)
        slots[slot] = (digest & 0xFFFF) << 48 | sample + 1
        following = slot + 1
    out = np.zeros(len(slots), np.uint64)
    free = 0
    for part in (slice(0, cut), slice(cut, None)):
        free = kernels.lay_slots(numbers(hashes[part], "uint64"), numbers(samples[part], "uint64"), homes, free, 0, out)
    assert free == following
    assert out.tolist() == slots


def test_slots_that_overflow_their_room_are_refused():
    hashes, samples = numbers([0, 0, 2**64 - 1], "uint64"), numbers([0, 1, 2], "uint64")
    with pytest.raises(kernels.Failure, match="overflow"):
        kernels.lay_slots(hashes, samples, 10, 0, 0, np.zeros(9, np.uint64))
    with pytest.raises(kernels.Failure, match="overflow"):
        kernels.lay_slots(hashes, samples, 10, 0, 1, np.zeros(100, np.uint64))


def test_a_table_without_an_empty_slot_ends_the_search_at_its_end():
    keys = [b"a", b"b", b"c"]
    full = [slot for slot in lay(keys, 3) if slot]
    found = index(keys, full, 1)
    assert [found.find(key) for key in keys] == [0, 1, 2]
    assert found.find(b"absent") is None


def test_a_slot_that_names_no_sample_is_told():
    key = b"key"
    tag = (xxhash.xxh64_intdigest(key) & 0xFFFF) << 48
    with pytest.raises(kernels.Failure, match="past the last sample"):
        index([key], [tag | 2, 0], 1).find(key)
    with pytest.raises(kernels.Failure, match="more slots than it has"):
        index([key], [tag | 1, 0], 3).find(key)


def test_check_names_keys_that_the_index_does_not_find():
    keys = [b"a", b"b", b"c"]
    slots = lay(keys, 8)
    at = next(i for i, slot in enumerate(slots) if slot & 0xFFFF == 2)
    slots[at] = 0
    assert [(row, message) for row, _, message, *_ in index(keys, slots, 8).check(0, 3)] == [
        (1, "the key index does not find its key")
    ]


def test_key_offsets_that_run_backwards_or_away_are_told():
    for offsets in ([0, 5, 3], [0, 2, 2**63]):
        tables = (struct.pack("<3Q", *offsets), 8), (b"abcdef", 1), (struct.pack("<2Q", 1, 0), 8)
        broken = kernels.Keys(*(make_table(content, width)[1] for content, width in tables))
        with pytest.raises(kernels.Failure):
            broken.key(1)
