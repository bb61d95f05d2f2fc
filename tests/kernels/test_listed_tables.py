"""Tables whose checksums are a table of their own: the same rows, and no checksum is believed that was not checked."""

from __future__ import annotations

import os
import struct

import crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sources import make_table, numbers

from fastloader import kernels


def sums(data: bytes, block_size: int) -> bytes:
    blocks = [data[at : at + block_size] for at in range(0, len(data), block_size)]
    return struct.pack(f"<{len(blocks)}I", *map(crc32c.crc32c, blocks))


def listed(rows: bytes, width: int, block_size: int, list_block: int) -> tuple[bytearray, kernels.Table]:
    """A table in memory of its own: rows, their checksums, the checksums of these."""
    crcs = sums(rows, block_size)
    memory = bytearray(rows + crcs + sums(crcs, list_block))
    beyond = len(rows) + len(crcs)
    return memory, kernels.Table(memory, 0, len(rows), width, block_size, len(rows), (list_block, beyond))


def taken(table: kernels.Table, rows: list[int], width: int) -> bytes:
    out = np.full(len(rows) * width, 255, np.uint8)
    kernels.take([table], None, numbers(rows), out)
    return out.tobytes()


@given(st.integers(1, 40), st.integers(1, 70), st.sampled_from([4, 8, 12, 64]), st.integers(0, 60), st.data())
@settings(max_examples=200, deadline=None)
def test_rows_are_those_of_a_table_that_is_not_listed(width, block_size, list_block, rows, data):
    content = data.draw(st.binary(min_size=rows * width, max_size=rows * width))
    picks = data.draw(st.lists(st.integers(-2, rows - 1), max_size=80))
    _, plain = make_table(content, width, block_size)
    _, table = listed(content, width, block_size, list_block)
    assert taken(table, picks, width) == taken(plain, picks, width)
    assert table.check(0, table.blocks) == []


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_bit_that_was_flipped_anywhere_is_told_before_a_row_is_given_that_depends_on_it(data):
    width, block_size, list_block, rows = 8, 16, 12, 20  # 10 blocks, 4 parts of 3 checksums
    content = bytes(range(rows * width))
    memory, table = listed(content, width, block_size, list_block)
    at = data.draw(st.integers(0, len(memory) - 1))
    memory[at] ^= 1 << data.draw(st.integers(0, 7))
    crcs, beyond = len(content), len(content) + 40
    if at < crcs:
        bad, what = {at // block_size}, f"block {at // block_size} is damaged"
    else:
        part = (at - crcs) // list_block if at < beyond else (at - beyond) // 4
        last = min(3 * part + 2, 9)
        bad, what = set(range(3 * part, last + 1)), f"checksums of blocks {3 * part} to {last} are damaged"
    for row in data.draw(st.permutations(range(rows))):
        if row * width // block_size in bad:
            with pytest.raises(kernels.Failure) as caught:
                taken(table, [row], width)
            assert caught.value.args[:2] == ("table", what)
            assert caught.value.args[3] != caught.value.args[4]
        else:
            assert taken(table, [row], width) == content[row * width : (row + 1) * width]


@pytest.mark.parametrize("far", [False, True])
def test_blocks_that_are_read_are_checked_so_too(tmp_path, far):
    content = bytes(range(160))
    memory, table = listed(content, 8, 16, 12)
    path = tmp_path / "rows"
    path.write_bytes(content)
    if far:
        table.read_from(os.fsencode(path), path.stat().st_dev, path.stat().st_ino, 0)
    memory[160 + 4] ^= 1  # of block 1, in the first part
    assert taken(table, [6], 8) == content[48:56]
    with pytest.raises(kernels.Failure, match="checksums of blocks 0 to 2 are damaged"):
        taken(table, [4], 8)


@pytest.mark.parametrize(("list_block", "beyond"), [(0, 200), (6, 200), (4, 199), (4, 2**63), (8, 2**64 - 4)])
def test_lists_that_can_not_be_are_refused(list_block, beyond):
    with pytest.raises(kernels.Failure):
        kernels.Table(bytes(200 + 36), 0, 160, 8, 16, 160, (list_block, beyond))
