"""Streams of tokens in a bucket: the windows of the local copy, each byte of ours checked, in few requests."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from http_server import web_server
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stores.fault_proxy import Fault, Proxy, fault_proxy

import fastloader as fl
from fastloader import kernels
from fastloader.cli import main
from fastloader.errors import NotFoundError, StoreError
from fastloader.formats.fld import Dataset
from fastloader.formats.fld.layout import Kind
from fastloader.stores import MemoryStore, ObjectPath, open_store
from fastloader.testing.seaweed import ACCESS, SECRET, S3Server

BUCKET = "s3://tokens"
SEQ = 500
COUNT = 1_400_000
"""Tokens of two bytes each: two pages, and 43 blocks of checksums."""
QUICK = {"attempt_timeout": 1.0, "deadline": 20.0, "first_wait": 0.01, "longest_wait": 0.05}
KINDS: dict[str, dict[str, Any]] = {
    "one.fld": {}, "shards.fld": {}, "raw.bin": {"dtype": "uint16", "header_bytes": 1000}, "part*.bin": {}, "list": {},
}  # fmt: skip


def upload(file: Path, url: str, s3: S3Server) -> None:
    """A file, or all of a folder."""
    store, key = open_store(url, s3.storage_options())
    for one in sorted(file.iterdir()) if file.is_dir() else [file]:
        store.put(f"{key}/{one.name}" if file.is_dir() else key, one.read_bytes())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Path:
    """The same streams on disk and in a bucket."""
    folder = tmp_path_factory.mktemp("tokens")
    tokens = np.random.default_rng(0).integers(0, 50_000, COUNT).astype(np.uint16)
    for name, size in (("one.fld", None), ("shards.fld", "700KB")):
        with fl.TokenStreamWriter(folder / name, vocab_size=50_000, shard_size=size) as writer:
            writer.write(tokens)
    (folder / "raw.bin").write_bytes(bytes(1000) + tokens.tobytes())
    index = b"MMIDIDX\x00\x00" + struct.pack("<QB", 1, 8)
    for number, part in enumerate(np.array_split(tokens, 3)):
        part.tofile(folder / f"part{number}.bin")
        (folder / f"part{number}.idx").write_bytes(index)
    for one in folder.iterdir():
        upload(one, f"{BUCKET}/{one.name}", s3)
    return folder


def paths_of(kind: str, root: Any) -> Any:
    return [f"{root}/part2.bin", f"{root}/part*1.bin"] if kind == "list" else f"{root}/{kind}"


def both(folder: Path, s3: S3Server, kind: str, seq_len: int = SEQ, **options: Any) -> tuple[fl.TokenStream, ...]:
    """The stream on disk and in the bucket."""
    far = {name: options.pop(name) for name in ("cache_dir", "cache_size", "storage_options") if name in options}
    far = {"storage_options": s3.storage_options()} | far
    options = KINDS[kind] | options
    local = fl.TokenStream(paths_of(kind, folder), seq_len, **options)
    return local, fl.TokenStream(paths_of(kind, BUCKET), seq_len, **options, **far)


def epoch(stream: fl.TokenStream, order: Any = "random", **options: Any) -> np.ndarray[Any, Any]:
    loader = fl.DataLoader(stream, 64, order=order, seed=5, **{"num_workers": 2, "window": 2, **options})
    return np.concatenate([batch["tokens"] for batch in loader])


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_those_of_the_local_copy(folder: Path, s3: S3Server, kind: str) -> None:
    local, remote = both(folder, s3, kind)
    assert (len(remote), remote.num_tokens, remote.dtype) == (len(local), local.num_tokens, local.dtype)
    assert (remote.source is None) == kind.endswith((".bin", "list"))
    for index in (0, 5, 131, len(local) - 1, -1):
        assert np.array_equal(remote[index]["tokens"], local[index]["tokens"])
    some = np.random.default_rng(1).integers(0, len(local), 200)
    assert np.array_equal(remote.read_batch(some)["tokens"], local.read_batch(some)["tokens"])


@pytest.mark.parametrize("order", ["sequential", "random", "quasi_random"])
@pytest.mark.parametrize("kind", KINDS)
def test_epochs_are_those_of_the_local_copy(folder: Path, s3: S3Server, kind: str, order: str) -> None:
    local, remote = both(folder, s3, kind)
    assert np.array_equal(epoch(remote, order), epoch(local, order))


@pytest.mark.parametrize("kind", ["one.fld", "raw.bin"])
@pytest.mark.parametrize("options", [{"windows": "random"}, {"stride": 170}, {"stride": 90_000}, {"seq_len": 100_000}])
def test_so_are_windows_anywhere_and_of_any_size(folder: Path, s3: S3Server, kind: str, options: Any) -> None:
    local, remote = both(folder, s3, kind, **options)
    orders = ["random"] if "windows" in options else ["random", "quasi_random"]
    for order in orders:
        assert np.array_equal(epoch(remote, order), epoch(local, order))
    assert np.array_equal(remote[3]["tokens"], local[3]["tokens"])


@pytest.mark.parametrize("order", ["random", "quasi_random", "sequential"])
@pytest.mark.parametrize("kind", ["one.fld", "part*.bin"])
def test_a_cache_gives_the_same_and_a_second_epoch_asks_for_nothing(
    folder: Path, s3: S3Server, tmp_path: Path, kind: str, order: str
) -> None:
    with fault_proxy(s3.endpoint) as proxy:
        options = s3.storage_options(proxy.url, hedge_after=60.0)
        local, remote = both(folder, s3, kind, storage_options=options, cache_dir=tmp_path, cache_size="50MB")
        wanted = epoch(local, order)
        assert np.array_equal(epoch(remote, order), wanted)
        before = len(proxy.requests)
        assert np.array_equal(epoch(remote, order), wanted)
        assert np.array_equal(remote.read_batch([1, 2000])["tokens"], local.read_batch([1, 2000])["tokens"])
        assert len(proxy.requests) == before
