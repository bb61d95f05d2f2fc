"""Data on its way to the file: whatever the sizes, it arrives in place, and past the page cache where it should."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.formats.fld import staging
from fastloader.formats.fld.staging import Staging
from fastloader.stores import DIRECT_ALIGNMENT, AtomicFile

BEGIN = 128


@pytest.fixture(autouse=True, scope="module")
def _small():
    """Pieces and files of kilobytes, so that little data takes all ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "PIECE", 8192)
        patch.setattr(staging, "_ROOM", 3 * 8192)
        patch.setattr(staging, "CACHED", 65_536)
        yield


def stage(file, sizes):
    """Parts of these sizes, and what the file should hold then."""
    staged = Staging(file, BEGIN)
    random = np.random.default_rng(len(sizes))
    parts = [random.integers(0, 256, size, np.uint8) for size in sizes]
    for part in parts:
        staged.room(len(part))[:] = part
    staged.flush()
    return b"\0" * BEGIN + b"".join(part.tobytes() for part in parts)


@given(sizes=st.lists(st.one_of(st.integers(0, 9000), st.sampled_from([4096, 8192, 24_576, 50_000])), max_size=60))
@settings(max_examples=60, deadline=None)
def test_what_is_staged_arrives(tmp_path_factory, sizes):
    path = tmp_path_factory.mktemp("staging") / "file"
    file = AtomicFile(path)
    wanted = stage(file, sizes)
    file.publish(len(wanted))
    assert path.read_bytes() == wanted


def test_what_lies_beyond_the_cached_part_goes_past_the_page_cache(tmp_path):
    cached, direct, begun = [], [], []

    class Noting(AtomicFile):
        def write_at(self, offset, data):
            cached.append((offset, len(data)))
            super().write_at(offset, data)

        def write_directly(self, offset, data):
            direct.append((offset, len(data), data.ctypes.data))
            assert os.pwrite(self._fd, data, offset) == len(data)

        def begin_sync(self, offset, size):
            begun.append((offset, size))
            super().begin_sync(offset, size)

    file = Noting(tmp_path / "file")
    wanted = stage(file, [5000] * 40)
    assert begun == cached, "each piece is sent to the disk at once"
    assert cached[0][0] == BEGIN
    assert all(offset < 65_536 and (offset + size) % 8192 == 0 for offset, size in cached[:-1])
    assert all(number % DIRECT_ALIGNMENT == 0 for piece in direct for number in piece)
    assert direct[0][0] >= 65_536
    assert sum(size for _, size, _ in direct) > 100_000
    assert cached[-1][0] > direct[-1][0], "the end need not be aligned"
    file.publish(len(wanted))
    assert (tmp_path / "file").read_bytes() == wanted
