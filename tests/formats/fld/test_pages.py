"""Where records go: the native placement against a twin in Python, its promises, and the allocation table."""

from __future__ import annotations

import itertools
import random
import struct
import sys

import fld_by_hand as hand
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels
from fastloader.formats.fld.layout import DATA_BEGIN

NO_LIMIT = 2**64 - 1
PAGE_SIZES = [1 << bits for bits in range(12, 22)]


def align_up(at: int, to: int) -> int:
    return -(-at // to) * to


def alignment_of(size: int) -> int:
    return min(64, 1 << (size // 64 + 1).bit_length() - 1)


def lay(sizes: tuple[int, ...], at: int) -> tuple[list[int], int]:
    """Offsets of one record's payloads from ``at`` on, and its end."""
    offsets = []
    for size in sizes:
        at = align_up(at, alignment_of(size)) if size else at
        offsets.append(at)
        at += size
    return offsets, at


def place_slowly(records, page_size, limit, cursor):
    """The rules of the document, a record at a time; returns all offsets, starts, and the cursor."""
    at, payload, padding = cursor
    all_offsets, starts = [], []
    for sizes in records:
        mine = sum(sizes)
        offsets, end = lay(sizes, at)
        begin = next((o for o, size in zip(offsets, sizes, strict=True) if size), at)
        if mine and begin // page_size != (end - 1) // page_size:
            next_page = align_up(at, page_size)
            length = lay(sizes, next_page)[1] - next_page
            spent = padding + next_page - at + page_size // 32
            if length <= page_size // 32 or (length <= page_size and 32 * spent <= payload + mine):
                offsets, end = lay(sizes, next_page)
        if end > limit and payload + padding:
            break
        begin = next((o for o, size in zip(offsets, sizes, strict=True) if size), at - 1 if at else 0)
        all_offsets.append(offsets)
        starts.append(begin)
        padding += end - at - mine
        payload += mine
        at = end
    return all_offsets, starts, (at, payload, padding)


def place(records, page_size, limit=NO_LIMIT, cursor=(DATA_BEGIN, 0, 0)):
    sizes = np.array(records, np.uint64).reshape(len(records), -1)
    offsets, starts = np.zeros_like(sizes), np.zeros(len(records), np.uint64)
    count, cursor = kernels.place(sizes, sizes.shape[1], page_size, limit, cursor, offsets, starts)
    return offsets[:count].tolist(), starts[:count].tolist(), cursor


def sizes_around(page_size: int) -> st.SearchStrategy[int]:
    """Payload sizes of every kind, and those where a rule changes its mind."""
    edges = [
        0,
        63,
        64,
        191,
        192,
        4031,
        4032,
        page_size // 64,
        page_size // 32,
        page_size // 2,
        page_size,
        3 * page_size,
    ]
    near = st.sampled_from(edges).flatmap(lambda e: st.integers(max(0, e - 2), e + 2))
    return near | st.integers(0, page_size // 16) | st.integers(0, 2 * page_size)


@st.composite
def mixes(draw):
    page_size = draw(st.sampled_from(PAGE_SIZES))
    fields = draw(st.integers(1, 4))
    one = sizes_around(page_size)
    records = draw(st.lists(st.tuples(*[one] * fields), max_size=60))
    if records and draw(st.booleans()):  # the same few records over and over drive the padding up
        records = (records[:3] * 40)[:100]
    return page_size, records


@given(mixes(), st.none() | st.integers(1, 1 << 22), st.integers(0, 1 << 16))
@settings(max_examples=300, deadline=None)
def test_placement_agrees_with_its_twin(mix, limit, begin):
    page_size, records = mix
    if not records:
        return
    limit = NO_LIMIT if limit is None else begin + limit
    cursor = (begin, 0, 0)
    assert place(records, page_size, limit, cursor) == place_slowly(records, page_size, limit, cursor)


@given(mixes(), st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_placing_in_two_goes_is_placing_in_one(mix, cut):
    page_size, records = mix
    first, second = records[:cut], records[cut:]
    if not first or not second:
        return
    offsets, starts, cursor = place(first, page_size)
    more, more_starts, end = place(second, page_size, cursor=cursor)
    assert (offsets + more, starts + more_starts, end) == place(records, page_size)


def alone(size: int) -> tuple[int, ...]:
    """A record of sixty fields of which one has bytes."""
    return (size,) + (0,) * 59


@given(mixes())
@settings(max_examples=300, deadline=None)
@example((8192, [(241,)] * 17))  # too much, if the header took half of the first page
@example((4096, [alone(3730), (65,) * 60, alone(10), alone(128)]))  # and if nothing were put by for the last gap
def test_promises_of_placement(mix):
    page_size, records = mix
    if not records:
        return
    offsets, starts, (end, payload, padding) = place(records, page_size)
    at = DATA_BEGIN
    for sizes, mine, start in zip(records, offsets, starts, strict=True):
        filled = [(offset, size) for offset, size in zip(mine, sizes, strict=True) if size]
        for offset, size in filled:
            assert offset >= at, "ascending, without overlap"
            assert offset % alignment_of(size) == 0
            at = offset + size
        if filled:
            assert start == filled[0][0]
            length = lay(sizes, 0)[1]
            if length <= page_size // 32:
                assert start // page_size == (at - 1) // page_size, "a small record straddles"
    assert end == at
    assert payload == sum(map(sum, records))
    assert padding == end - DATA_BEGIN - payload
    assert padding < 0.05 * payload or padding == 0


def mixtures(page_size: int) -> dict[str, list[int]]:
    """Long runs of sizes of many shapes, and the ones that hurt most."""
    rng = np.random.default_rng(page_size)
    small = page_size // 32
    tuned = [65, 193, 449, 961, 1985]  # each wastes the most on alignment
    return {
        "uniform": rng.integers(0, 2 * page_size, 400).tolist(),
        "log-normal": np.exp(rng.normal(np.log(page_size / 40), 2, 1000)).astype(int).tolist(),
        "bimodal": np.where(rng.random(1000) < 0.9, rng.integers(1, 200, 1000), page_size * 3 // 4).tolist(),
        **{f"all {size}": [size] * 500 for size in (*tuned, small - 1, small, small + 1)},
        **{f"all {size}": [size] * 500 for size in (page_size // 2 + 1, page_size - 1)},
        "small, medium, huge": [small, page_size // 2 + 1, 5 * page_size + 1] * 100,
        "just too long for the rest": [page_size - small - 1, small] * 200,
        "medium then small": list(itertools.islice(itertools.cycle([page_size - 2 * small, 1, small, small - 1]), 400)),
        "wasteful then small": [s for _ in range(60) for s in (*[t for t in tuned if t <= small], small, small)],
    }  # fmt: skip


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_padding_stays_under_5_percent_at_every_moment(page_size):
    for name, sizes in mixtures(page_size).items():
        cursor = (DATA_BEGIN, 0, 0)
        for size in sizes:
            _, _, cursor = place([(size,)], page_size, cursor=cursor)
            assert cursor[2] < 0.05 * cursor[1] or cursor[2] == 0, (name, cursor)


@pytest.mark.parametrize("page_size", [4096, 8192, 16384, 65536])
def test_padding_against_an_adversary(page_size):
    """Greedy: of many candidates, take the record that leaves the worst ratio a little later."""
    rng = random.Random(page_size)
    small = page_size // 32
    tuned = [t for t in (65, 193, 449, 961) if t <= small]
    for _ in range(6):
        cursor, worst = (DATA_BEGIN, 0, 0), 0.0
        for _ in range(150):
            room = page_size - cursor[0] % page_size
            wasteful = rng.choice(tuned or [1])
            candidates = [
                (room + 1,), (small,), (max(1, room - small + 1),), (max(1, room - 2 * small),), (small + 1,),
                (wasteful,), (wasteful,) * 8, (rng.randint(1, page_size),),
            ]  # fmt: skip
            tried = []
            for candidate in candidates:
                _, _, after = place([candidate], page_size, cursor=cursor)
                _, _, later = place([(page_size - after[0] % page_size + 1,)], page_size, cursor=after)
                tried.append((max(after[2] / after[1], later[2] / later[1]), rng.random(), after))
            cursor = max(tried)[2] if rng.random() < 0.8 else rng.choice(tried)[2]
            worst = max(worst, cursor[2] / cursor[1])
        assert worst < 0.05


def write(path, payloads, page_size, fields=1, **options):
    with fl.DatasetWriter(path, {f"f{i}": fl.BytesField() for i in range(fields)}, page_size, **options) as writer:
        writer.write_many(payloads)
    return path.read_bytes()


def check_allocation(data: bytes) -> None:
    """The table partitions the samples, and names the page on which each record begins."""
    head = hand.header(data)
    section = hand.entry(data, hand.DATA)
    table = hand.pages(data)
    assert len(table) == -(-(section.offset + section.size) // head.page_size)
    page_of = []
    for page, (first, count) in enumerate(table):
        assert first == len(page_of)
        page_of += [page] * count
    assert len(page_of) == head.num_samples
    with_payload = [i for i, d in enumerate(hand.descriptors(data)) if d.flags & 1]
    columns = [hand.extents(data, field) for field in with_payload]
    last = head.data - 1  # the byte before
    for sample in range(head.num_samples):
        mine = [column[sample] for column in columns if column[sample].size]
        begin = mine[0].pointer if mine else last
        assert page_of[sample] == begin // head.page_size, sample
        last = mine[-1].pointer + mine[-1].size - 1 if mine else last


def test_allocation_of_the_golden_file():
    data = (hand.VECTORS / "pages.fld").read_bytes()
    check_allocation(data)
    assert hand.pages(data) == [(0, 3), (3, 3), (6, 3), (9, 0), (9, 2), (11, 1), (12, 2), (14, 3)]
    a, b = hand.extents(data, 0), hand.extents(data, 1)
    assert (a[0].pointer, a[0].size) == (128, 100)
    assert a[5].pointer // 4096 != (a[5].pointer + 4095) // 4096, "a whole page that nothing could pay for moving"
    assert (a[8].pointer + 8999) // 4096 == a[8].pointer // 4096 + 2, "three pages"
    assert (a[3].pointer, b[2].pointer + 8) == (4096, 4084), "a small record moved to the next page"
    assert (a[14].pointer, a[13].pointer + 2500) == (28672, 28324), "and one of 1,000 bytes, which was affordable"
    assert b[4] == hand.Extent(0, 0, 0, 0, 0)
    assert a[4].size == 0
    assert a[4].pointer == b[3].pointer + 64, "an empty payload's pointer is the next free byte"


@pytest.mark.parametrize("page_size", [4096, 65536])
def test_padding_and_allocation_of_written_files(tmp_path, page_size):
    rng = np.random.default_rng(5)
    sizes = np.exp(rng.normal(np.log(page_size / 30), 1.5, 700)).astype(int).clip(0, 4 * page_size)
    sizes[rng.random(700) < 0.1] = 0
    noise = rng.bytes(int(sizes.max()))
    payloads = [(noise[:size], noise[: size // 7] if i % 5 else None) for i, size in enumerate(sizes.tolist())]
    data = write(tmp_path / "mix.fld", payloads, page_size, 2)
    check_allocation(data)
    extents = sorted(e for field in (0, 1) for e in hand.extents(data, field) if e.size)
    for one, other in itertools.pairwise(extents):
        assert one.pointer + one.size <= other.pointer
    section = hand.entry(data, hand.DATA)
    covered = sum(e.size for e in extents)
    assert section.offset + section.size == extents[-1].pointer + extents[-1].size
    assert 0 < section.size - covered < 0.05 * section.size
    holes = bytearray(data[section.offset : section.offset + section.size])
    for e in extents:
        holes[e.pointer - section.offset : e.pointer - section.offset + e.size] = bytes(e.size)
    assert not any(holes), "skipped bytes are zero"
    assert fl.verify(tmp_path / "mix.fld").ok


@pytest.mark.parametrize(
    "payloads",
    [
        [],
        [b""] * 5,
        [None] * 5,
        [b"x" * (4096 - DATA_BEGIN), b"", None],
        [b"", b"x" * (4096 - DATA_BEGIN), b"", b"y", b"z" * 30_000, b"", b""],
        [b"x" * 100_000],
        [b"x" * 5000] * 40,
    ],
    ids=["nothing", "empty", "missing", "up to a boundary", "all sorts", "many pages", "straddling"],
)
def test_allocation_table_of_odd_files(tmp_path, payloads):
    check_allocation(write(tmp_path / "odd.fld", [[p] for p in payloads], 4096))
    assert fl.verify(tmp_path / "odd.fld").ok


def test_allocation_table_without_any_payload_field(tmp_path):
    with fl.DatasetWriter(tmp_path / "ints.fld", {"n": fl.IntField()}, 4096) as writer:
        writer.write_many([[i] for i in range(1000)])
    data = (tmp_path / "ints.fld").read_bytes()
    check_allocation(data)
    assert hand.pages(data) == [(0, 1000)]
    assert hand.entry(data, hand.DATA).size == 0
    assert fl.verify(tmp_path / "ints.fld").ok


def test_allocation_table_over_many_chunks(tmp_path):
    """The table is made chunk by chunk; a chunk's end is no page's end."""
    rng = np.random.default_rng(1)
    data = write(tmp_path / "long.fld", [[b"x" * n] for n in rng.integers(0, 900, 3000).tolist()], 4096)
    check_allocation(data)


def test_placement_refuses_nonsense():
    for page_size in (0, 3, 4097):
        with pytest.raises(kernels.Failure, match="power of two"):
            place([(1,)], page_size)
    with pytest.raises(kernels.Failure, match="too large"):
        place([(2**63, 2**63)], 4096)
    with pytest.raises(kernels.Failure, match="differ"):
        kernels.place(
            np.zeros(3, np.uint64), 2, 4096, NO_LIMIT, (0, 0, 0), np.zeros(3, np.uint64), np.zeros(1, np.uint64)
        )


def test_a_limit_stops_before_the_record_that_would_pass_it_but_never_before_the_first():
    assert place([(100,)] * 10, 4096, limit=DATA_BEGIN + 250)[1] == [128, 228]
    assert len(place([(1000,)] * 10, 4096, limit=DATA_BEGIN + 250)[1]) == 1


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.integers(0, 200))
@settings(max_examples=100, deadline=None)
def test_assemble_copies_and_zeroes(parts, gap):
    import crc32c

    offsets = list(itertools.accumulate([1000, *(len(p) + gap for p in parts[:-1])]))
    out = np.full(offsets[-1] - 1000 + len(parts[-1]) + 7, 255, np.uint8)
    crcs = np.zeros(len(parts), np.uint32)
    kernels.assemble(parts, np.array(offsets, np.uint64), 1000, out, crcs)
    wanted = bytearray(len(out))
    for part, offset in zip(parts, offsets, strict=True):
        wanted[offset - 1000 : offset - 1000 + len(part)] = part
    assert bytes(out) == bytes(wanted)
    assert crcs.tolist() == [crc32c.crc32c(p) for p in parts]


def test_assemble_refuses_parts_outside_the_output():
    out, crcs = np.zeros(10, np.uint8), np.zeros(1, np.uint32)
    for offset in (999, 1006, 1 << 63):
        with pytest.raises(kernels.Failure, match="outside the output"):
            kernels.assemble([b"12345"], np.array([offset], np.uint64), 1000, out, crcs)
    with pytest.raises(kernels.Failure, match="outside the output"):
        kernels.assemble([b"12", b"34"], np.array([1000, 1001], np.uint64), 1000, out, np.zeros(2, np.uint32))


def paged(tmp_path, payloads):
    """A file of two payload fields and pages of 4 KiB, and where its allocation table lies."""
    path = tmp_path / "x.fld"
    with fl.DatasetWriter(path, {"a": fl.BytesField(), "n": fl.IntField(), "b": fl.BytesField()}, 4096) as writer:
        writer.write_many([a, 1, b] for a, b in payloads)
    where = hand.entry(path.read_bytes(), hand.PAGES)
    assert where is not None
    return path, where.offset


def move(path, at, page, by):
    """Let the allocation table name the last ``by`` samples of a page on the next one."""
    data = bytearray(path.read_bytes())
    count, first, following = (hand.u8(data, at + 16 * page + place) for place in (8, 16, 24))
    struct.pack_into("<QQQ", data, at + 16 * page + 8, count - by, first - by, following + by)
    path.write_bytes(hand.reseal_all(data))


MIXED = [(None, None), (b"", b"x" * 100), (None, b"y" * 90), (b"z" * 110, b""), (b"", b""), (b"w" * 3000, b"v" * 9000)]


@pytest.mark.parametrize("rows", [1, 3, 7, 65536])
def test_verify_knows_on_which_page_each_sample_begins(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(sys.modules["fastloader.verification"], "PAGED_ROWS", rows)
    path, at = paged(tmp_path, MIXED * 20)
    whole, pages = path.read_bytes(), hand.pages(path.read_bytes())
    assert fl.verify(path).ok
    moved = 0
    for page, (first, count) in enumerate(pages[:-1]):
        if not count:
            continue
        path.write_bytes(whole)
        move(path, at, page, 1)
        sample = first + count - 1
        assert fl.open(path)[sample] == fl.open(path)[sample % len(MIXED)]
        problems = {p.sample: p.message for p in fl.verify(path).problems}
        assert problems[sample] == f"begins on page {page}, the allocation table says {page + 1}"
        assert set(problems) <= {sample, sample + 1}, "one without payload goes with the one before it"
        moved += 1
    assert moved > 5


@pytest.mark.parametrize("rows", [2, 65536])
def test_verify_knows_the_page_of_samples_without_payload(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(sys.modules["fastloader.verification"], "PAGED_ROWS", rows)
    path, at = paged(tmp_path, [(None, b"")] * 5 + [(b"q" * 4096, None)] + [(None, None)] * 9 + [(b"e", None)])
    assert hand.pages(path.read_bytes()) == [(0, 6), (6, 10)]
    assert fl.verify(path).ok
    move(path, at, 0, 2)
    found = fl.verify(path).bad_samples
    assert found == [4, 5]


def test_verify_does_not_look_at_the_extents_of_missing_values(tmp_path):
    path, _ = paged(tmp_path, [(None, b"x"), (b"q" * 4096, b"y"), (b"z", b"")])
    data = bytearray(path.read_bytes())
    where = hand.entry(data, hand.EXTENTS, 0)
    assert where is not None
    struct.pack_into("<QQ", data, where.offset, hand.extents(data, 0)[2].pointer, 1)
    path.write_bytes(hand.reseal_all(data))
    assert fl.verify(path).ok


def test_verify_tells_once_of_a_table_that_names_samples_twice(tmp_path):
    path, at = paged(tmp_path, MIXED * 5)
    data = bytearray(path.read_bytes())
    struct.pack_into("<Q", data, at + 8, hand.u8(data, at + 8) + 1)
    path.write_bytes(hand.reseal_all(data))
    (problem,) = fl.verify(path).problems
    assert problem.message == "the allocation table does not name each sample once"
