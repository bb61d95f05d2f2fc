"""Behind a network that fails: an epoch comes whole, each sample intact and once, or an error names the object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from orders import in_order
from tests.stores.fault_proxy import QUICK, Fault, Proxy, fault_proxy, hurry

import fastloader as fl
from fastloader.errors import StoreError
from fastloader.testing.seaweed import S3Server

COUNT = 240
URL = "s3://faults/data"
WAY: dict[str, bool] = {}
"""How a test gets there."""


def payload(i: int) -> bytes:
    """What sample i holds."""
    return np.random.default_rng(i).bytes(20_000 + 37 * i)


@pytest.fixture(scope="module")
def dataset(s3: S3Server) -> str:
    """Samples in shards, in a bucket."""
    fields = {"data": fl.BytesField(), "number": fl.IntField()}
    with fl.DatasetWriter(URL, fields, "64KiB", shard_size="1MB", storage_options=s3.storage_options()) as writer:
        for i in range(COUNT):
            writer.write_sample({"data": payload(i), "number": i})
    return URL


@pytest.fixture(params=["direct", "obstore"])
def proxy(s3: S3Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Between us and the server, and both ways to it: over connections of our own, and through obstore alone."""
    monkeypatch.setitem(WAY, "direct", request.param == "direct")
    with fault_proxy(s3.endpoint) as one:
        yield one


def load(dataset: str, s3: S3Server, proxy: Proxy, order: Any, **options: Any) -> fl.DataLoader:
    """A loader that reads through the proxy."""
    reader = fl.open(dataset, s3.storage_options(proxy.url, **{**QUICK, **WAY, **options}))
    return fl.DataLoader(reader, batch_size=16, **in_order(order, 8), seed=3, num_workers=2)


def check_epoch(loader: fl.DataLoader) -> None:
    """Every sample once, with its own bytes."""
    seen: list[int] = []
    for batch in loader:
        for number, data in zip(batch["number"].tolist(), batch["data"], strict=True):
            assert bytes(data) == payload(number)
            seen.append(number)
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("order", ["random", "quasi_random"])
@pytest.mark.parametrize("fault", ["500", "503", "429", "drip", "reset", "truncated", "short_length"])
def test_one_request_in_four_fails_and_the_epoch_is_whole(
    dataset: str, s3: S3Server, proxy: Proxy, fault: Fault, order: str
) -> None:
    proxy.fault, proxy.every = fault, 4
    check_epoch(load(dataset, s3, proxy, order))
    assert proxy.spoilt >= 5


def test_a_server_that_falls_silent_is_asked_again(dataset: str, s3: S3Server, proxy: Proxy) -> None:
    loader = load(dataset, s3, proxy, "random", attempt_timeout=0.3)
    proxy.fault, proxy.every = "silence", 20
    check_epoch(loader)
    assert proxy.spoilt >= 3


def test_stragglers_are_asked_for_a_second_time(dataset: str, s3: S3Server, proxy: Proxy) -> None:
    loader = load(dataset, s3, proxy, "random", hedge_after=0.1)  # a second request may be spoilt too
    proxy.fault, proxy.every = "silence", 20
    check_epoch(loader)
    assert proxy.spoilt >= 3
    assert loader.stats()["io"]["hedged"] >= 3


@pytest.mark.parametrize("fault", ["503", "reset", "truncated", "short_length", "silence"])
def test_a_server_that_never_recovers_is_an_error_that_names_the_object(
    dataset: str, s3: S3Server, proxy: Proxy, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = load(dataset, s3, proxy, "random")
    loader.reader.read_batch(range(COUNT), ["number"])  # all tables are there
    proxy.fault = fault
    hurry(monkeypatch)
    with pytest.raises(StoreError, match=r"s3://faults/data/shard-\w+-\d+\.fld"):
        check_epoch(loader)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_what_a_store_refuses_is_never_left_out(dataset: str, s3: S3Server, proxy: Proxy, on_error: Any) -> None:
    reader = fl.open(dataset, s3.storage_options(proxy.url, **{**QUICK, "attempts": 1, "attempt_timeout": 60.0}))
    loader = fl.DataLoader(reader, batch_size=16, on_error=on_error)
    proxy.fault, proxy.every, proxy.concerns = "503", 1, lambda path: path.endswith("-00002.fld")
    with pytest.raises(StoreError, match=r"-00002\.fld"):
        check_epoch(loader)


def test_another_etag_is_an_error_that_names_the_object(dataset: str, s3: S3Server, proxy: Proxy) -> None:
    loader = load(dataset, s3, proxy, "random")
    loader.reader.read_batch(range(COUNT), ["number"])
    proxy.fault, proxy.every = "etag", 7
    with pytest.raises(StoreError, match=r"s3://faults/data/shard-\w+-\d+\.fld: is not the object it was"):
        check_epoch(loader)


def test_a_flipped_bit_is_noticed(dataset: str, s3: S3Server, proxy: Proxy) -> None:
    loader = load(dataset, s3, proxy, "random")
    loader.reader.read_batch(range(COUNT), ["number"])
    proxy.fault, proxy.every = "flip", 7
    with pytest.raises(fl.ChecksumError, match=r"s3://faults/data/shard-\w+-\d+\.fld"):
        check_epoch(loader)


def test_single_samples_and_batches_are_asked_for_again_too(dataset: str, s3: S3Server, proxy: Proxy) -> None:
    reader = fl.open(dataset, s3.storage_options(proxy.url, **QUICK, **WAY))
    proxy.fault, proxy.every = "truncated", 3
    assert bytes(reader.read_sample(5)["data"]) == payload(5)
    numbers = [200, 3, 77, 4]
    assert [bytes(data) for data in reader.read_batch(numbers)["data"]] == [payload(i) for i in numbers]
    assert proxy.spoilt


@pytest.mark.parametrize("fault", ["reset", "truncated", "short_length"])
def test_shards_whose_upload_breaks_off_are_sent_again(fault: Fault, s3: S3Server, proxy: Proxy) -> None:
    """One broken answer in a day's conversion must not end it."""
    url = f"s3://faults/uploads-{fault}"
    proxy.uploads, proxy.fault, proxy.every = True, fault, 3
    options = s3.storage_options(proxy.url, **QUICK)
    with fl.DatasetWriter(
        url, {"x": fl.NDArrayField("uint8", (1 << 20,))}, shard_size="9MB", storage_options=options
    ) as writer:
        writer.write_many({"x": np.full(1 << 20, i, np.uint8)} for i in range(30))
    assert proxy.spoilt
    proxy.fault = "none"
    reader = fl.open(url, s3.storage_options())
    assert [int(sample["x"][-1]) for sample in reader] == list(range(30))
