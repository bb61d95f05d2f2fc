"""Archives in a store, mounted: the same bytes, fetched in blocks as they are asked for."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import numpy as np
import pytest
from tests.stores.fault_proxy import fault_proxy

from fastloader.archive.conversion import sink_at
from fastloader.formats.entries import Entry
from fastloader.mount.contents import BLOCK
from fastloader.mount.operations import ArchiveFiles
from fastloader.mount.shown import shown_at
from fastloader.stores import open_store
from fastloader.testing.seaweed import S3Server

LARGE = np.random.default_rng(0).bytes(5 * BLOCK + 1000)


@pytest.mark.parametrize("kind", ["fld", "tar", "tar.gz", "zip", "barecat"])
def test_no_more_is_fetched_than_the_blocks_that_are_read(s3: S3Server, tmp_path: Path, kind: str) -> None:
    with sink_at(str(tmp_path / f"x.{kind}")) as sink:  # type: ignore[attr-defined]
        sink.add(Entry.of("small", b"hello"))
        sink.add(Entry.of("folder/large", LARGE))
    at = f"s3://mounted/{secrets.token_hex(4)}"
    store, key = open_store(at, s3.storage_options())
    for path in tmp_path.iterdir():
        store.put(f"{key}/{path.name}", path.read_bytes())
    with fault_proxy(s3.endpoint) as proxy:
        options = s3.storage_options(proxy.url, hedge_after=60.0)
        files = ArchiveFiles(shown_at(f"{at}/x.{kind}", options), pytest.fail)
        assert sorted(name for name, *_ in files.readdir("/", 0)) == [".", "..", "folder", "small"]
        number = files.open("/folder/large", os.O_RDONLY)
        proxy.requests.clear()
        place = 3 * BLOCK + 500
        for offset in (place, place + 70_000, place + 1000):
            assert files.read("/folder/large", 65_536, offset, number) == LARGE[offset : offset + 65_536]
        if kind != "tar.gz":  # whose restart points are told by how it is packed
            spans = [span.removeprefix("bytes=").split("-") for *_, span in proxy.requests]
            assert sum(int(end) - int(begin) + 1 for begin, end in spans) == BLOCK
        small = files.open("/small", os.O_RDONLY)
        assert files.read("/small", 100, 0, small) == b"hello"
