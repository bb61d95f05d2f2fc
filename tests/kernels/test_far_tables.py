"""Tables whose blocks are read when they are first needed: the same rows as from the mapping, checked the same way."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sources import make_table, numbers
from left_behind import files

import fastloader as fl
from fastloader import kernels
from fastloader.formats.fld import file as fld_file

AHEAD = 5  # bytes of the file before the table


def on_disk(path, content, table):
    """The same content in a file, which the table is to read."""
    path.write_bytes(bytes(AHEAD) + content)
    status = path.stat()
    table.read_from(os.fsencode(path), status.st_dev, status.st_ino, AHEAD)
    return table


def taken(table, rows, width):
    out = np.full(len(rows) * width, 255, np.uint8)
    kernels.take([table], None, numbers(rows), out)
    return out.tobytes()


@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 60), st.data())
@settings(max_examples=200, deadline=None)
def test_rows_are_those_of_the_mapping(tmp_path_factory, width, rows_a_block, rows, data):
    content = data.draw(st.binary(min_size=rows * width, max_size=rows * width))
    picks = data.draw(st.lists(st.integers(-2, rows - 1), max_size=80))
    _, table = make_table(content, width, rows_a_block * width)
    path = tmp_path_factory.getbasetemp() / "far"
    wanted = b"".join(content[r * width : (r + 1) * width] if r >= 0 else bytes(width) for r in picks)
    assert taken(on_disk(path, content, table), picks, width) == wanted
    assert taken(table, picks, width) == wanted  # now that blocks were seen


def test_blocks_come_from_the_file_once_and_then_from_the_mapping(tmp_path):
    memory, table = make_table(bytes(range(64)), 8, 16)
    on_disk(tmp_path / "far", bytes(range(64)), table)
    memory[:64] = bytes(64)  # nobody looks
    assert taken(table, [1], 8) == bytes(range(8, 16))
    assert taken(table, [1, 0, 2], 8) == bytes(16) + bytes(range(16, 24))


def test_a_damaged_block_is_told_and_never_believed(tmp_path):
    content = bytearray(range(64))
    _, table = make_table(bytes(content), 8, 16)
    content[17] ^= 1
    on_disk(tmp_path / "far", bytes(content), table)
    for _ in range(2):
        with pytest.raises(kernels.Failure, match="block 1 is damaged") as caught:
            taken(table, [0, 3], 8)
        assert caught.value.args[0] == "table"
        assert caught.value.args[2] == 1


def test_a_file_that_became_shorter_is_told(tmp_path):
    path = tmp_path / "far"
    _, table = make_table(bytes(range(64)), 8, 16)
    on_disk(path, bytes(range(64)), table)
    os.truncate(path, AHEAD + 20)
    assert taken(table, [0], 8) == bytes(range(8))
    with pytest.raises(kernels.Failure, match="became shorter") as caught:
        taken(table, [3], 8)
    assert caught.value.args[0] == "io"


@pytest.mark.parametrize(("width", "block_size"), [(10, 16), (8, 32 << 10)])
def test_blocks_that_cut_rows_or_are_large_come_from_the_mapping(tmp_path, width, block_size):
    content = np.random.default_rng(0).integers(0, 256, 8000, np.uint8).tobytes()
    _, table = make_table(content, width, block_size)
    on_disk(tmp_path / "far", bytes(8000), table)
    assert taken(table, [0, 700], width) == content[:width] + content[700 * width : 701 * width]


def test_the_descriptor_ends_with_the_table(tmp_path):
    before = files()
    _, table = make_table(bytes(64), 8, 16)
    on_disk(tmp_path / "far", bytes(64), table)
    assert len(files() - before) == 1
    del table
    assert not files() - before


@pytest.mark.parametrize("order", ["random", "sequential"])
def test_loaders_read_large_tables_so(tmp_path, monkeypatch, order):
    path = tmp_path / "numbers.fld"
    values = np.random.default_rng(1).integers(0, 1 << 40, 70_000)  # beyond 65,536 samples, blocks have 2 KiB
    with fl.DatasetWriter(path, {"number": fl.IntField(), "text": fl.BytesField()}) as writer:
        for value in values.tolist():
            writer.write_sample({"number": value, "text": value.to_bytes(8, "little")})
    with fl.open(path) as reader, fl.DataLoader(reader, 1000, order=order, seed=3) as loader:
        wanted = [(batch["number"].copy(), list(batch["text"])) for batch in loader]
    monkeypatch.setattr(fld_file, "FAR_TABLE", 1)
    with fl.open(path) as reader, fl.DataLoader(reader, 1000, order=order, seed=3) as loader:
        got = [(batch["number"].copy(), list(batch["text"])) for batch in loader]
    for (numbers_there, texts_there), (numbers_here, texts_here) in zip(wanted, got, strict=True):
        assert np.array_equal(numbers_there, numbers_here)
        assert texts_there == texts_here


def test_a_file_whose_name_means_another_is_looked_at_in_the_mapping(tmp_path, monkeypatch):
    monkeypatch.setattr(fld_file, "FAR_TABLE", 1)
    path, other = tmp_path / "numbers.fld", tmp_path / "other.fld"
    for where, first in ((path, 0), (other, 1000)):
        with fl.DatasetWriter(where, {"number": fl.IntField()}) as writer:
            for value in range(100):
                writer.write_sample({"number": first + value})
    with fl.open(path) as reader:
        os.replace(other, path)
        assert reader.read_batch([0, 99])["number"].tolist() == [0, 99]
