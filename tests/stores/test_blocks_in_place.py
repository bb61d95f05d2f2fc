"""Blocks of a cache, mapped where they lie in their object.

Later epochs find them there, as long as they are what they were.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from left_behind import until
from orders import in_order
from tests.stores.fault_proxy import Proxy, fault_proxy

import fastloader as fl
from fastloader.loader import fetching
from fastloader.stores import cache as caches
from fastloader.stores.cache import BLOCK
from fastloader.testing.seaweed import S3Server

SAMPLES = 120
SIZE = 90_001
"""Bytes of a sample: many lie in two blocks."""


def sample(number: int) -> bytes:
    """What it holds."""
    return np.random.default_rng(number).bytes(SIZE)


@pytest.fixture(scope="module")
def url(s3: S3Server) -> str:
    """A dataset of several objects, each of several blocks."""
    where = "s3://in-place/some"
    fields = {"x": fl.BytesField(), "id": fl.IntField()}
    with fl.DatasetWriter(where, fields, "64KiB", shard_size="6MB", storage_options=s3.storage_options()) as to:
        for i in range(SAMPLES):
            to.write_sample({"x": sample(i), "id": i})
    return where


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    """Sees what is asked of the server."""
    with fault_proxy(s3.endpoint) as between:
        yield between


def loader_of(url: str, s3: S3Server, proxy: Proxy, folder: Path, **options: Any) -> fl.DataLoader:
    """One that asks through the proxy. Nothing is asked for twice for being slow."""
    reader = fl.open(url, s3.storage_options(proxy.url, hedge_after=60.0), cache_dir=folder, cache_size="100MB")
    return fl.DataLoader(reader, batch_size=8, num_workers=2, **({"order": "random"} | options))


def check(batches: Any) -> None:
    """Every sample comes once, and is what it was."""
    seen = []
    for batch in batches:
        for number, data in zip(batch["id"].tolist(), batch["x"], strict=True):
            assert bytes(data) == sample(number)
            seen.append(number)
    assert sorted(seen) == list(range(SAMPLES))


def blocks_of(folder: Path) -> list[Path]:
    """The files of all blocks."""
    return sorted(folder.glob("*/*/*.block"))


def in_place(folder: Path, *, removed: bool = False) -> list[str]:
    """Whole blocks that are mapped without their tails; those only whose files were removed."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(one, 16) for one in line.split()[0].split("-"))
        if str(folder) in line and end - begin == BLOCK and (not removed or line.endswith("(deleted)")):
            found.append(line)
    return found


@pytest.mark.parametrize("order", ["random", "quasi_random", "sequential"])
def test_later_epochs_find_the_blocks_where_they_are(
    url: str, s3: S3Server, proxy: Proxy, tmp_path: Path, order: str
) -> None:
    loader = loader_of(url, s3, proxy, tmp_path, **in_order(order, 4))
    check(loader)
    whole = [path for path in blocks_of(tmp_path) if path.stat().st_size > BLOCK]
    assert len(in_place(tmp_path)) == len(whole) > 3
    before = loader.stats()["io"]
    proxy.requests.clear()
    for _ in range(3):
        check(loader)
    after = loader.stats()["io"]
    assert not proxy.requests
    assert after["reads"] == before["reads"]  # nothing was asked for, not even of the cache
    assert after["cache_hits"] == before["cache_hits"] + 3 * len(blocks_of(tmp_path))
    assert after["payload_bytes"] == before["payload_bytes"] * 4
    assert len(in_place(tmp_path)) == len(whole)
    del loader
    until(lambda: not in_place(tmp_path))  # a thread that read for it may let go of it last


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "replace"])
def test_a_block_that_changed_between_epochs_is_fetched_again(
    url: str, s3: S3Server, proxy: Proxy, tmp_path: Path, harm: str
) -> None:
    loader = loader_of(url, s3, proxy, tmp_path)
    check(loader)
    victim = max(blocks_of(tmp_path), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[1_000_000] ^= 1
    if harm == "cut":
        os.truncate(victim, 5000)
    elif harm == "remove":
        victim.unlink()
    elif harm == "replace":
        victim.unlink()
        victim.write_bytes(data)
    else:
        victim.write_bytes(data)
    proxy.requests.clear()
    check(loader)
    assert len(proxy.requests) == 1
    proxy.requests.clear()
    check(loader)  # and is in its place again
    assert not proxy.requests
    assert not in_place(tmp_path, removed=True)


@pytest.mark.parametrize("remover", ["another process", "our own eviction"])
def test_blocks_removed_under_an_epoch_are_let_go(
    url: str, s3: S3Server, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remover: str
) -> None:
    loader = loader_of(url, s3, proxy, tmp_path)
    check(loader)
    cache = loader.reader.dataset.path.cache  # type: ignore[union-attr]
    assert cache is not None
    if remover == "another process":
        monkeypatch.setattr(fetching, "LOOK", 0.0)

    def remove() -> None:
        if remover == "another process":
            for path in blocks_of(tmp_path):
                path.unlink()
        else:
            limit, cache.limit = cache.limit, 0
            cache._evict(0)
            cache.limit = limit
        assert not blocks_of(tmp_path)

    def batches() -> Iterator[Any]:
        """With all blocks removed twice: when coming batches hold them, and when none does."""
        for number, batch in enumerate(loader):
            yield batch
            if number in (2, len(loader) - 1):
                remove()
            if number == len(loader) - 1:
                patience = time.monotonic() + 10  # without an eviction of ours it is looked for them every 30 s
                while in_place(tmp_path, removed=True) and time.monotonic() < patience:
                    time.sleep(0.01)
                assert not in_place(tmp_path, removed=True)

    check(batches())
    check(loader)


def test_a_use_is_told_to_who_removes_what_was_not_used(
    url: str, s3: S3Server, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(loader_of(url, s3, proxy, tmp_path))
    for path in blocks_of(tmp_path):
        os.utime(path, (1e9, 1e9))
    monkeypatch.setattr(caches, "_TOUCH", 1e18)
    loader = loader_of(url, s3, proxy, tmp_path)
    check(loader)
    assert all(path.stat().st_mtime == 1e9 for path in blocks_of(tmp_path))
    before = loader.stats()["io"]["reads"]
    check(loader)
    assert all(path.stat().st_mtime > 1e9 for path in blocks_of(tmp_path))
    check(loader)  # which is no reason to read them again
    assert loader.stats()["io"]["reads"] == before


def test_where_no_addresses_are_left_blocks_are_read_as_before(
    url: str, s3: S3Server, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = loader_of(url, s3, proxy, tmp_path)
    folder = tmp_path / caches.FOLDER
    real = caches.CachedObject.stamp
    monkeypatch.setattr(
        caches.CachedObject, "stamp", lambda self, number: (1, 1) if real(self, number) else None
    )  # no file is like that, so none is mapped
    for _ in range(2):
        check(loader)
        assert not in_place(folder)
