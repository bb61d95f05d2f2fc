"""Bringing pages into memory: they are there afterwards, as the kernel counts them."""

from __future__ import annotations

import errno
import mmap
import os

import numpy as np
import pytest
from page_cache import drop, is_resident, on_disk

from fastloader.stores import MappedFile, populate

SIZE = 20 << 20


def never() -> bool:
    return False


@pytest.fixture(params=["one call", "an old kernel"])
def way(request, monkeypatch):
    """Both ways to do it: by the kernel's own call, and where the kernel does not know that."""
    if request.param == "an old kernel":
        monkeypatch.setattr(populate, "_POPULATE_READ", 9999)
    return request.param


@pytest.fixture
def path(tmp_path):
    with on_disk(tmp_path) as folder:
        (folder / "file").write_bytes(np.random.default_rng(0).bytes(SIZE))
        yield folder / "file"


@pytest.mark.parametrize(("begin", "end"), [(0, SIZE), (4097, SIZE - 4097), (100, 4096 * 3 + 50), (5, 6), (7, 7)])
def test_the_pages_are_in_memory_afterwards(path, way, begin, end):
    drop(path)
    view = MappedFile(path).bytes[begin:end]
    assert not is_resident(view).any()
    populate.populate(view, never)
    assert is_resident(view).all()


@pytest.mark.parametrize(("begin", "end"), [(0, 1 << 20), (100, 4096 * 3 + 50), (5000, 5001), (4095, 4097)])
def test_each_page_is_looked_at_where_the_kernel_takes_no_advice(path, monkeypatch, begin, end):
    drop(path)
    mapped = MappedFile(path).bytes
    for advice in (mmap.MADV_NOHUGEPAGE, mmap.MADV_RANDOM):  # no page read because its neighbour is
        assert populate._advise(mapped.ctypes.data, mapped.nbytes, advice) == 0
    monkeypatch.setattr(populate, "_advise", lambda *_: errno.EINVAL)
    populate.populate(mapped[begin:end], never)
    assert is_resident(mapped[begin:end]).all()
    assert not is_resident(mapped[end + 4095 :]).any()


def test_only_the_part_asked_for_is_mapped_in_pieces(path, monkeypatch):
    asked = []
    monkeypatch.setattr(populate, "_advise", lambda *call: asked.append(call) or 0)
    view = MappedFile(path).bytes
    start = view.ctypes.data
    populate.populate(view[5000 : (9 << 20)], never)
    done = [(address - start, size) for address, size, advice in asked if advice == populate._POPULATE_READ]
    assert done == [(4096, 8 << 20), (4096 + (8 << 20), (1 << 20) - 4096)]
    assert all(address % mmap.PAGESIZE == 0 for address, _, _ in asked)


def test_it_stops_between_pieces_when_told(path, way):
    drop(path)
    view = MappedFile(path).bytes
    answers = iter([False, True])
    populate.populate(view, lambda: next(answers))
    assert is_resident(view[: 8 << 20]).all()
    assert not is_resident(view[-(1 << 20) :]).any()


def test_bytes_that_are_gone_are_an_error_and_no_crash(path):
    view = MappedFile(path).bytes
    os.truncate(path, 4 << 20)
    with pytest.raises(OSError, match="Bad address") as caught:
        populate.populate(view, never)
    assert caught.value.errno == errno.EFAULT
