import os
import resource
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from left_behind import files

from fastloader.errors import StoreError
from fastloader.formats.fld import spill
from fastloader.formats.fld.spill import SpillFile

APPENDS = st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=30)), max_size=60)


@given(appends=APPENDS, limit=st.sampled_from([0, 1, 10, 50, 10_000]), chunk=st.integers(1, 40), data=st.data())
@settings(max_examples=150, deadline=None)
def test_columns_read_back_what_was_appended(tmp_path_factory, appends, limit, chunk, data):
    before, spill.MEMORY_LIMIT = spill.MEMORY_LIMIT, limit
    spills = SpillFile(tmp_path_factory.getbasetemp() / "x.fld")
    try:
        columns = [spills.column() for _ in range(4)]
        expected = [b""] * 4
        for number, piece in appends:
            columns[number].append(piece)
            expected[number] += piece
            assert sum(column.held() for column in columns) <= limit
        for column, whole in zip(columns, expected, strict=True):
            assert column.size == len(whole)
            assert list(column.chunks(chunk)) == [whole[at : at + chunk] for at in range(0, len(whole), chunk)]
            begin = data.draw(st.integers(0, len(whole)))
            end = data.draw(st.integers(begin, len(whole)))
            assert column.read(begin, end - begin) == whole[begin:end]
            column.append(b"more")
            assert column.read(begin, column.size - begin) == whole[begin:] + b"more"
    finally:
        spills.close()
        spill.MEMORY_LIMIT = before


def test_the_largest_column_goes_to_disk_first(tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "MEMORY_LIMIT", 100)
    spills = SpillFile(tmp_path / "x.fld")
    small, large = spills.column(), spills.column()
    small.append(bytes(20))
    large.append(bytes(81))
    assert (small.held(), large.held()) == (20, 0)
    spills.close()


def test_columns_leave_no_file_and_share_one_descriptor(tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "MEMORY_LIMIT", 10)
    before = files()
    spills = SpillFile(tmp_path / "x.fld")
    for _ in range(50):
        spills.column().append(bytes(100))
    assert len(files() - before) == 1
    assert os.listdir(tmp_path) == []
    spills.close()
    assert not files() - before


def test_a_temporary_file_that_was_cut_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "MEMORY_LIMIT", 10)
    spills = SpillFile(tmp_path / "x.fld")
    column = spills.column()
    column.append(bytes(100))
    monkeypatch.setattr(spill.os, "pread", lambda *_: b"")
    with pytest.raises(StoreError, match=r"x\.fld: the temporary file beside it was cut short"):
        column.read(0, 50)
    spills.close()


WIDE = """
import resource, sys
import fastloader as fl
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from fastloader.formats.fld import spill
spill.MEMORY_LIMIT = 10_000
fields = {f"f{i}": fl.BytesField() for i in range(300)}
with fl.DatasetWriter(sys.argv[1], fields, num_workers=0) as writer:
    for i in range(1000):
        writer.write_sample([b""] * 299 + [b"%d" % i])
reader = fl.open(sys.argv[1])
print(len(reader), reader[999]["f299"], fl.verify(sys.argv[1]).ok)
"""


def test_a_wide_dataset_needs_few_descriptors(tmp_path):
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 64
    command = [sys.executable, "-c", WIDE, tmp_path / "x.fld"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1000 b'999' True\n"
