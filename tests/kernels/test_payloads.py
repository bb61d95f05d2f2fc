"""Gathering payloads against reading them one by one in Python."""

from __future__ import annotations

import struct

import crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sources import make_payloads, make_table, numbers

from fastloader import kernels

codecs = st.sampled_from([0, 0, 1, 2])


@st.composite
def batches(draw, payload):
    """Several sources of payloads, compressed here and there, and picks among them with some missing."""
    contents = draw(st.lists(st.lists(st.tuples(payload, codecs), max_size=30), min_size=1, max_size=3))
    places = [(w, r) for w, content in enumerate(contents) for r in range(len(content))]
    pick = st.sampled_from(places) if places else st.nothing()
    picks = draw(st.lists(pick | st.tuples(st.integers(0, len(contents) - 1), st.integers(-3, -1)), max_size=60))
    return contents, picks


def prepare(contents, picks):
    sources = [make_payloads([p for p, _ in content], [c for _, c in content])[1] for content in contents]
    return sources, numbers([w for w, _ in picks], "int32"), numbers([r for _, r in picks])


@given(batches(st.binary(max_size=200)))
@settings(max_examples=150, deadline=None)
def test_gather_bytes_and_ragged(case):
    contents, picks = case
    wanted = [contents[w][r][0] if r >= 0 else b"" for w, r in picks]
    arguments = prepare(contents, picks)
    assert kernels.gather_bytes(*arguments) == wanted
    values, offsets = kernels.gather_ragged(*arguments)
    assert values.tobytes() == b"".join(wanted)
    assert offsets.tolist() == np.cumsum([0, *map(len, wanted)]).tolist()


@given(st.integers(0, 100).flatmap(lambda n: st.tuples(st.just(n), batches(st.binary(min_size=n, max_size=n)))))
@settings(max_examples=150, deadline=None)
def test_gather_fixed(case):
    size, (contents, picks) = case
    out = np.full((len(picks), size), 255, np.uint8)
    kernels.gather_fixed(*prepare(contents, picks), size, out)
    assert out.tobytes() == b"".join(contents[w][r][0] if r >= 0 else bytes(size) for w, r in picks)


@given(st.lists(st.tuples(st.binary(max_size=300), codecs), min_size=1, max_size=10))
@settings(max_examples=100, deadline=None)
def test_one_payload_at_a_time(content):
    memory, source = make_payloads([p for p, _ in content], [c for _, c in content])
    for row, (payload, codec) in enumerate(content):
        assert bytes(source.read(row)) == payload
        assert source.extent(row)[2] == len(payload)
        where = source.locate(row)
        assert (where is None) == (codec != 0), "a compressed payload is nowhere to be seen as it is"
        if where is not None:
            assert bytes(memory[where[0] : where[0] + where[1]]) == payload
    assert source.check(0, len(content)) == []


def test_without_which_the_first_source_is_meant():
    _, source = make_payloads([b"a", b"bb"])
    assert kernels.gather_bytes([source], None, numbers([1, 0, -1])) == [b"bb", b"a", b""]


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_a_damaged_payload_is_named_with_both_sums(codec):
    payloads = [bytes([i]) * 50 for i in range(5)]
    memory, source = make_payloads(payloads, [codec] * 5)
    pointer, _, _, crc, _ = source.extent(3)
    memory[pointer + 4] ^= 0x10  # in a zstd frame, its size
    rows = numbers([0, -1, 3, 1])
    calls = [
        lambda: kernels.gather_bytes([source], None, rows),
        lambda: kernels.gather_ragged([source], None, rows),
        lambda: kernels.gather_fixed([source], None, rows, 50, np.zeros(200, np.uint8)),
    ]
    for call in calls:
        with pytest.raises(kernels.Failure) as caught:
            call()
        kind, _, position, stored, computed = caught.value.args
        assert (kind, position, stored) == ("checksum", 2, crc)
        assert computed != stored
    with pytest.raises(kernels.Failure, match="damaged"):
        source.read(3)
    assert [(row, kind) for row, kind, *_ in source.check(0, 5)] == [(3, "checksum")]
    assert kernels.gather_bytes([source], None, numbers([4, 2])) == [payloads[4], payloads[2]]


def source_of(pointer: int, size: int, raw_size: int, codec: int = 0) -> kernels.Payloads:
    crc = crc32c.crc32c(bytes(min(size, 100)))
    memory, extents = bytes(100), make_table(struct.pack("<QQQIB3x", pointer, size, raw_size, crc, codec), 32)[1]
    return kernels.Payloads(memory, extents, 20, 80)


@pytest.mark.parametrize(
    ("extent", "kind"),
    [
        ((19, 1, 1), "extent"),
        ((79, 2, 2), "extent"),
        ((81, 0, 0), "extent"),
        ((2**63, 5, 5), "extent"),
        ((30, 2**64 - 20, 2**64 - 20), "extent"),
        ((30, 5, 6), "extent"),
        ((30, 5, 2**40, 1), "codec"),
        ((30, 5, 2**40, 2), "codec"),
        ((30, 5, 5, 3), "codec"),
        ((30, 5, 5, 255), "codec"),
    ],
)
def test_an_extent_that_can_not_be_is_refused_before_anything_is_allocated(extent, kind):
    source = source_of(*extent)
    for call in (
        lambda: source.extent(0),
        lambda: source.read(0),
        lambda: kernels.gather_bytes([source], None, numbers([0])),
        lambda: kernels.gather_ragged([source], None, numbers([0])),
    ):
        with pytest.raises(kernels.Failure) as caught:
            call()
        assert caught.value.args[0] == kind


def test_extents_at_the_very_edges_are_fine():
    assert bytes(source_of(20, 0, 0).read(0)) == b""
    assert bytes(source_of(80, 0, 0).read(0)) == b""


def test_another_size_than_the_fixed_one_is_named():
    _, source = make_payloads([b"abc", b"abcd"])
    with pytest.raises(kernels.Failure, match="has 4 bytes, not 3") as caught:
        kernels.gather_fixed([source], None, numbers([0, 1]), 3, np.zeros(6, np.uint8))
    assert caught.value.args[0] == "size"
    assert caught.value.args[2] == 1
    with pytest.raises(kernels.Failure, match="wrong size"):
        kernels.gather_fixed([source], None, numbers([0]), 3, np.zeros(6, np.uint8))


def test_sources_and_rows_that_are_not_there_are_refused():
    _, source = make_payloads([b"abc"])
    for call in (kernels.gather_bytes, kernels.gather_ragged):
        with pytest.raises(kernels.Failure, match="outside"):
            call([source], None, numbers([1]))
        with pytest.raises(kernels.Failure, match="no such source"):
            call([source], numbers([1], "int32"), numbers([0]))


def test_data_outside_the_file_is_refused():
    _, extents = make_table(bytes(32), 32)
    for begin, end in ((20, 10), (0, 101)):
        with pytest.raises(kernels.Failure, match="outside the file"):
            kernels.Payloads(bytes(100), extents, begin, end)
    with pytest.raises(kernels.Failure, match="32 bytes"):
        kernels.Payloads(bytes(100), make_table(bytes(16), 16)[1], 0, 100)
