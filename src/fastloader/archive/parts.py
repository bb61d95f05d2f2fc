"""Parts of large files in an archive, read without the rest."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from fastloader import kernels
from fastloader.archive.archive import Archive
from fastloader.archive.encoding import DATA, IMAGE
from fastloader.errors import StoreError
from fastloader.formats.fld import FldFile, explain
from fastloader.formats.fld.layout import EXTENT, Kind
from fastloader.formats.objects import Handle
from fastloader.types import Buffer


def part_of(archive: Archive, path: bytes) -> Callable[[int, int], Buffer] | None:
    """What gives a file's bytes from an offset on, unchecked; ``None`` where they are compressed."""
    for shard in archive.tree.shards:
        row = shard.file.find(path)
        if row is not None and not shard.is_removed(False, row):
            begin = _begin(shard.file, row)
            return None if begin is None else _reading(shard.file, begin)
    return None


def _begin(file: FldFile, row: int) -> int | None:
    """Where a file's content begins, if it is stored as it is. What lies behind that of a JPEG file is its index."""
    field = DATA if file.is_missing(IMAGE, row) else IMAGE
    try:
        table = file.table(Kind.EXTENTS, field, file.alone(row))
        assert table is not None
        extent = np.frombuffer(table.row(row), EXTENT)[0]
    except kernels.Failure as failure:
        raise explain(failure, file.path, row, file.descriptors[field].name) from failure
    begin, size = int(extent["pointer"]), int(extent["size"])
    if not file.data.offset <= begin <= begin + size <= file.data.offset + file.data.size:
        raise file.broken(f"has bytes of sample {row} outside of its data")
    return begin if extent["codec"] == 0 else None


def _reading(file: FldFile, begin: int) -> Callable[[int, int], Buffer]:
    """Reads what lies behind a place of a file. Its mapping is not looked into, for a file may become shorter."""
    remote = file.remote
    if remote is not None:
        return lambda offset, size: remote.fetched([(begin + offset, size)])[begin + offset :][:size].data
    handle = Handle(str(file.path))
    status = os.fstat(handle.fd)
    if (status.st_dev, status.st_ino) != file.inode:
        raise StoreError("is another file than was opened", path=file.path, hint="open the archive anew")

    def read(offset: int, size: int) -> Buffer:
        data = os.pread(handle.fd, size, begin + offset)
        if len(data) < size:
            raise StoreError(f"ends {size - len(data)} bytes before they do", path=file.path)
        return data

    return read
