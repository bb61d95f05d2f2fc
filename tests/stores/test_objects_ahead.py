"""Objects that are samples: each is asked for once, those of later batches while earlier ones are waited for."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from left_behind import until
from tests.stores.fault_proxy import Proxy, fault_proxy

import fastloader as fl
from fastloader.formats.files import AHEAD, AHEAD_BYTES, Coming
from fastloader.formats.objects import Files, Places
from fastloader.stores import open_store
from fastloader.testing.seaweed import S3Server

COUNT = 200


@pytest.fixture(scope="module")
def url(s3: S3Server) -> str:
    store, at = open_store(f"s3://ahead/{secrets.token_hex(6)}", s3.storage_options())
    for i in range(COUNT):
        store.put(f"{at}/{i:03}.bin", bytes([i]) * (100 + i))
    return f"{store.url}/{at}"


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    with fault_proxy(s3.endpoint) as made:
        yield made


def reads(proxy: Proxy) -> Counter[str]:
    return Counter(path.split("?")[0] for method, path, span in proxy.requests if method == "GET" and span)


@pytest.mark.parametrize("steps", ["samples", "batches", "mapped", "taken"])
def test_every_object_is_asked_for_once(url: str, s3: S3Server, proxy: Proxy, steps: str) -> None:
    data = fl.open(url, s3.storage_options(proxy.url, hedge_after=60.0)).shuffle(seed=3)
    proxy.requests.clear()
    ways: dict[str, Any] = {
        "samples": lambda: [sample["data"] for sample in data],
        "batches": lambda: [one for batch in data.batch(16) for one in batch["data"]],
        "mapped": lambda: [one for batch in data.map(lambda s: s["data"]).batch(7) for one in batch],
        "taken": lambda: [one for batch in data.take(90).batch(16) for one in batch["data"]],
    }
    found = ways[steps]()
    wanted = 90 if steps == "taken" else COUNT
    assert len({bytes(one) for one in found}) == wanted
    assert all(len(one) == 100 + one[0] for one in found)
    asked = reads(proxy)
    assert len(asked) == wanted
    assert set(asked.values()) == {1}


def test_objects_of_the_next_batch_are_on_their_way(url: str, s3: S3Server, proxy: Proxy) -> None:
    batches = iter(fl.open(url, s3.storage_options(proxy.url, hedge_after=60.0)).batch(8))
    proxy.requests.clear()
    next(batches)
    until(lambda: len(reads(proxy)) > 8)
    assert len(reads(proxy)) <= 16
    first = [one[0] for _ in range(24) for one in next(batches)["data"]]
    assert first == list(range(8, COUNT))


def test_names_alone_fetch_nothing(url: str, s3: S3Server, proxy: Proxy) -> None:
    data = fl.open(url, s3.storage_options(proxy.url), fields=["path"])
    proxy.requests.clear()
    assert [sample["path"] for sample in data][:2] == ["000.bin", "001.bin"]
    assert not reads(proxy)


def test_an_object_that_is_gone_is_told_at_its_turn(s3: S3Server) -> None:
    store, at = open_store(f"s3://ahead/{secrets.token_hex(6)}", s3.storage_options())
    for i in range(10):
        store.put(f"{at}/{i}.bin", bytes([i]))
    data = fl.open(f"{store.url}/{at}", s3.storage_options())
    store.delete(f"{at}/7.bin")
    given = []
    with pytest.raises(fl.StoreError, match=r"7\.bin"):
        given.extend(sample["data"][0] for sample in data)
    assert given == list(range(7))
    skipping = data.options(on_error="skip")
    assert [sample["data"][0] for sample in skipping] == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def test_few_that_are_large_are_asked_for_ahead() -> None:
    coming = Coming(Files(("s3://x/y",), Places()))
    assert coming.window == AHEAD
    coming._largest = AHEAD_BYTES // 4
    assert coming.window == 4
    coming._largest = 10 * AHEAD_BYTES
    assert coming.window == 2


class Counted:
    """Files of which is noted what was asked for."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    def begin(self, number: int) -> Any:
        """One is on its way."""
        self.begun.append(number)

        class Here:
            here = 100

        return Here()


def test_some_are_always_on_their_way_though_others_were_left_behind() -> None:
    files = Counted()
    coming = Coming(files)  # type: ignore[arg-type]
    coming.begin(range(1000, 1100))  # and somebody goes elsewhere
    for at in range(600):
        coming.begin(range(at, 700))
        taken = coming.take(at)
        assert taken is not None
        ahead = max(files.begun[AHEAD:]) - at
        assert ahead >= AHEAD // 2  # the pipe never runs empty
    assert files.begun[AHEAD:] == list(range(max(files.begun[AHEAD:]) + 1))
