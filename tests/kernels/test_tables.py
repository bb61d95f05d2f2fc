"""Tables: rows against a slice of the bytes, and blocks that are checked when they are touched, not before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sources import make_table, numbers

from fastloader import kernels


@st.composite
def sources(draw):
    """Tables of one row size, and picks among them."""
    width = draw(st.integers(1, 40))
    tables = draw(st.lists(st.integers(0, 60), min_size=1, max_size=4))
    contents = [draw(st.binary(min_size=n * width, max_size=n * width)) for n in tables]
    places = [(w, r) for w, n in enumerate(tables) for r in range(n)]
    pick = st.sampled_from(places) if places else st.nothing()
    picks = draw(st.lists(pick | st.tuples(st.integers(0, len(tables) - 1), st.integers(-5, -1)), max_size=50))
    return width, draw(st.integers(1, 100)), contents, picks


@given(sources())
@settings(max_examples=200, deadline=None)
def test_take_is_copying_row_by_row(case):
    width, block_size, contents, picks = case
    tables = [make_table(content, width, block_size)[1] for content in contents]
    out = np.full(len(picks) * width, 255, np.uint8)
    kernels.take(tables, numbers([w for w, _ in picks], "int32"), numbers([r for _, r in picks]), out)
    wanted = b"".join(contents[w][r * width : (r + 1) * width] if r >= 0 else bytes(width) for w, r in picks)
    assert out.tobytes() == wanted


@given(sources())
@settings(max_examples=100, deadline=None)
def test_take_without_which_takes_from_the_first(case):
    width, block_size, contents, picks = case
    rows = [r for w, r in picks if w == 0]
    out = np.full(len(rows) * width, 255, np.uint8)
    kernels.take([make_table(contents[0], width, block_size)[1]], None, numbers(rows), out)
    assert out.tobytes() == b"".join(contents[0][r * width : (r + 1) * width] if r >= 0 else bytes(width) for r in rows)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=100), min_size=1, max_size=3), st.data())
@settings(max_examples=100, deadline=None)
def test_take_bits_is_reading_bit_by_bit(bitmaps, data):
    tables = [make_table(np.packbits(bits, bitorder="little").tobytes(), 1, 7)[1] for bits in bitmaps]
    places = [(w, r) for w, bits in enumerate(bitmaps) for r in range(len(bits))] + [(0, -1), (len(bitmaps) - 1, -9)]
    picks = data.draw(st.lists(st.sampled_from(places), max_size=60))
    out = np.full(len(picks), 255, np.uint8)
    kernels.take_bits(tables, numbers([w for w, _ in picks], "int32"), numbers([r for _, r in picks]), out)
    assert out.tolist() == [int(r >= 0 and bitmaps[w][r]) for w, r in picks]


@given(st.binary(min_size=1, max_size=600), st.integers(1, 50), st.integers(1, 90), st.data())
@settings(max_examples=150, deadline=None)
def test_rows_are_slices(content, width, block_size, data):
    content = content[: len(content) // width * width]
    _, table = make_table(content, width, block_size)
    assert table.rows == len(content) // width
    assert table.blocks == -(-len(content) // block_size)
    first = data.draw(st.integers(0, table.rows))
    count = data.draw(st.integers(0, table.rows - first))
    assert table.row(first, count) == content[first * width : (first + count) * width]
    assert table.check(0, table.blocks) == []


@pytest.mark.parametrize("damaged", range(8))
def test_a_damaged_block_is_told_by_the_rows_that_touch_it_and_by_no_other(damaged):
    width, block_size, rows = 10, 16, 12  # 120 bytes, 8 blocks; rows lie in up to two blocks
    memory, table = make_table(bytes(range(width * rows)), width, block_size)
    memory[damaged * block_size] ^= 1
    for row in range(rows):
        touched = range(row * width // block_size, ((row + 1) * width - 1) // block_size + 1)
        if damaged in touched:
            with pytest.raises(kernels.Failure, match=f"block {damaged} is damaged") as caught:
                table.row(row)
            kind, _, _, stored, computed = caught.value.args
            assert kind == "table"
            assert stored != computed
        else:
            assert table.row(row) == bytes(range(row * width, (row + 1) * width))
    assert [block for block, _, _ in table.check(0, 100)] == [damaged]


def test_a_row_in_two_blocks_is_checked_in_both():
    for byte in (8, 17):  # row 1 is bytes 10 to 19, of blocks 0 and 1
        memory, table = make_table(bytes(40), 10, 16)
        memory[byte] ^= 1
        with pytest.raises(kernels.Failure, match="damaged"):
            table.row(1)


def test_a_block_that_was_seen_is_not_read_again_but_check_does():
    memory, table = make_table(bytes(64), 8, 16)
    assert table.row(1) == bytes(8)
    memory[0] = 1
    assert table.row(1) == bytes(8)
    assert [block for block, _, _ in table.check(0, 4)] == [0]
    assert table.check(1, 4) == []


def test_a_batch_names_the_pick_that_failed():
    memory, table = make_table(bytes(64), 8, 16)
    memory[40] ^= 1
    with pytest.raises(kernels.Failure) as caught:
        kernels.take([table], None, numbers([0, 1, -1, 4, 0]), np.zeros(40, np.uint8))
    assert caught.value.args[0] == "table"
    assert caught.value.args[2] == 3


@pytest.mark.parametrize("count", [255, 256, 257, 1000])
def test_a_batch_of_any_size_is_copied_whole_and_names_the_pick_that_failed(count):
    content = np.arange(100, dtype=np.uint64)
    _, table = make_table(content.tobytes(), 8, 64)
    rows = np.random.default_rng(0).integers(-1, 100, count)
    out = np.zeros(count, np.uint64)
    kernels.take([table], None, rows, out)
    assert out.tolist() == [0 if row < 0 else int(content[row]) for row in rows.tolist()]
    rows[-1] = 100
    with pytest.raises(kernels.Failure, match="outside") as caught:
        kernels.take([table], None, rows, out)
    assert caught.value.args[2] == count - 1


@pytest.mark.parametrize("row", [8, 9, 1 << 62])
def test_rows_outside_the_table_are_refused(row):
    _, table = make_table(bytes(64), 8, 16)
    with pytest.raises(kernels.Failure, match="outside"):
        table.row(row)
    with pytest.raises(kernels.Failure, match="outside"):
        kernels.take([table], None, numbers([row]), np.zeros(8, np.uint8))
    with pytest.raises(kernels.Failure, match="outside"):
        kernels.take_bits([make_table(bytes(1), 1)[1]], None, numbers([row]), np.zeros(1, np.uint8))
    with pytest.raises(kernels.Failure, match="outside"):
        table.row(1, 2**64 - 1)


def test_wrong_arguments_are_refused():
    _, table = make_table(bytes(64), 8, 16)
    rows = numbers([0, 1])
    for out in (np.zeros(15, np.uint8), np.zeros(17, np.uint8)):
        with pytest.raises(kernels.Failure, match="wrong size"):
            kernels.take([table], None, rows, out)
    with pytest.raises(kernels.Failure, match="wrong size"):
        kernels.take_bits([make_table(bytes(4), 1)[1]], None, rows, np.zeros(3, np.uint8))
    with pytest.raises(kernels.Failure, match="bits come in rows of one byte"):
        kernels.take_bits([table], None, rows, np.zeros(2, np.uint8))
    for which in (numbers([0, 1], "int32"), numbers([0, -1], "int32")):
        with pytest.raises(kernels.Failure, match="no such source"):
            kernels.take([table], which, rows, np.zeros(16, np.uint8))
    with pytest.raises(ValueError, match="different lengths"):
        kernels.take([table], numbers([0], "int32"), rows, np.zeros(16, np.uint8))
    with pytest.raises(kernels.Failure, match="different row sizes"):
        kernels.take([table, make_table(bytes(4), 4)[1]], None, rows, np.zeros(16, np.uint8))
    with pytest.raises(BufferError):
        kernels.take([table], None, rows, bytes(16))


@pytest.mark.parametrize(
    ("size", "row_size", "block_size", "crcs_offset"),
    [(64, 0, 16, 64), (64, 8, 0, 64), (64, 7, 16, 64), (200, 8, 16, 64), (64, 8, 16, 65), (64, 8, 16, 2**63)],
)
def test_tables_that_do_not_fit_their_memory_are_refused(size, row_size, block_size, crcs_offset):
    memory, _ = make_table(bytes(64), 8, 16)
    with pytest.raises(kernels.Failure):
        kernels.Table(memory, 0, size, row_size, block_size, crcs_offset)
