from __future__ import annotations

import mmap

from page_cache import on_disk

from fastloader.stores import forget, resident_bytes


def test_a_forgotten_file_is_on_disk_only_until_it_is_read(tmp_path):
    with on_disk(tmp_path) as folder:
        path = folder / "x"
        size = 50 * mmap.PAGESIZE + 17
        path.write_bytes(b"x" * size)
        assert resident_bytes(path) == 51 * mmap.PAGESIZE
        forget(path)
        assert resident_bytes(path) == 0
        path.read_bytes()
        assert resident_bytes(path) == 51 * mmap.PAGESIZE


def test_nothing_of_an_empty_file_is_in_memory(tmp_path):
    (tmp_path / "x").touch()
    forget(tmp_path / "x")
    assert resident_bytes(tmp_path / "x") == 0
