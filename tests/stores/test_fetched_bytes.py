"""What a loader asks a store for: each byte once, in few requests, and memory that is given back."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orders import in_order
from tests.stores.fault_proxy import Proxy, fault_proxy

import fastloader as fl
from fastloader.formats.fld import FldFile
from fastloader.formats.fld.layout import REMOTE_PAGE_SIZE
from fastloader.formats.fld.spans import payload_spans
from fastloader.loader.reading import REQUEST
from fastloader.stores import ObjectPath, RemoteFile, open_store
from fastloader.stores.cloud import CloudStore
from fastloader.stores.direct import Direct
from fastloader.testing.seaweed import S3Server

COUNT, SIZE = 240, 101_000
NEEDED = COUNT * SIZE


def sample(i: int) -> Any:
    """Bytes that tell whose they are."""
    return np.random.default_rng(i).integers(0, 256, SIZE, np.uint8)


@pytest.fixture(scope="module")
def url(s3: S3Server) -> str:
    """Two shards of pages of 1 MiB, on which every second one ends with a sample that goes on behind it."""
    to = f"s3://fetched/{secrets.token_hex(6)}"
    fields = {"data": fl.NDArrayField(np.uint8, (SIZE,))}
    with fl.DatasetWriter(to, fields, "1MiB", shard_size="13MB", storage_options=s3.storage_options()) as writer:
        writer.write_many({"data": sample(i)} for i in range(COUNT))
    return to


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    """What comes through it is known."""
    with fault_proxy(s3.endpoint) as made:
        yield made


def asked(proxy: Proxy) -> list[tuple[str, int, int]]:
    """Which object, from where and how many bytes, of each request since the last call."""
    found = []
    for _, path, span in proxy.requests:
        begin, _, end = span.removeprefix("bytes=").partition("-")
        found.append((path, int(begin), int(end) - int(begin) + 1) if end else (path, 0, 0))
    proxy.requests.clear()
    return found


def opened(url: str, s3: S3Server, proxy: Proxy, **options: Any) -> fl.DatasetReader:
    """Through the proxy; a slow machine must not ask twice."""
    return fl.open(url, s3.storage_options(proxy.url, hedge_after=60.0), **options)


@pytest.mark.parametrize(
    ("order", "memory", "most_requests", "most_bytes"),
    [
        ("sequential", "70MB", -(-NEEDED // REQUEST) + 3, 1.03),
        # Little memory, so that nothing is there by chance when it is needed a second time.
        ("quasi_random", "20MB", 26, 1.02),
        ("random", "20MB", COUNT, 1.1),
    ],
)
def test_an_epoch_asks_for_what_it_needs_once(
    url: str, s3: S3Server, proxy: Proxy, order: Any, memory: str, most_requests: int, most_bytes: float
) -> None:
    with opened(url, s3, proxy) as reader:
        loader = fl.DataLoader(reader, batch_size=8, **in_order(order, 3), memory_limit=memory, num_workers=2)
        for shard in range(2):
            reader.dataset.file(shard).payloads(0)  # the tables
        proxy.requests.clear()
        assert sum(len(batch["data"]) for batch in loader) == COUNT
        requests = asked(proxy)
        assert len(requests) <= most_requests
        assert NEEDED <= sum(size for _, _, size in requests) <= most_bytes * NEEDED
        for path in {path for path, _, _ in requests}:
            ranges = sorted((begin, begin + size) for one, begin, size in requests if one == path)
            assert all(end <= begin for (_, end), (begin, _) in pairwise(ranges))
        io = loader.stats()["io"]
        assert (io["requests"], io["fetched_bytes"]) == (len(requests), sum(size for _, _, size in requests))


def test_opening_asks_for_no_more_than_the_tables(url: str, s3: S3Server, proxy: Proxy) -> None:
    with opened(url, s3, proxy) as reader:
        for shard in range(2):
            reader.dataset.file(shard).payloads(0)
        assert sum(size for _, _, size in asked(proxy)) < 100_000


def test_both_ends_of_a_shard_are_asked_for_before_one_is_there(
    url: str, s3: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, held, done = Direct.ask, [], []

    def once_both_are_asked_for(self: Direct, *wanted: Any) -> Any:
        held.append(wanted)
        if len(held) == 2:
            done.extend(ask(self, *one) for one in held)
        return lambda late: None

    with opened(url, s3, proxy) as reader:
        monkeypatch.setattr(Direct, "ask", once_both_are_asked_for)
        reader.dataset.file(0)
    assert len(done) == 2
    assert len({path for _, path, span in proxy.requests if span}) == 1


def test_opening_asks_for_each_thing_once_and_for_both_ends_of_a_shard_at_the_same_time(
    url: str, s3: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, under_way = CloudStore._get, set()

    async def once_both_are_asked_for(self: CloudStore, wanted: Any) -> Any:
        if not shards[1].endswith(wanted.key):
            return await get(self, wanted)  # of another test, which still repeats what nobody waits for
        under_way.add(wanted.begin)
        for _ in range(2000):
            if len(under_way) == 2:
                break
            await asyncio.sleep(0.01)
        assert len(under_way) == 2
        return await get(self, wanted)

    at = f"/{url.removeprefix('s3://')}"
    with fl.open(url, s3.storage_options(proxy.url, hedge_after=60.0, direct=False)) as reader:
        assert [(method, path) for method, path, _ in proxy.requests] == [("GET", f"{at}/manifest.json")]
        reader.dataset.file(0)
        shards = [f"{at}/{shard.path}" for shard in reader.dataset.shards]
        assert [path for _, path, _ in proxy.requests[1:]] == [shards[0]] * 2
        proxy.requests.clear()
        monkeypatch.setattr(CloudStore, "_get", once_both_are_asked_for)
        reader.dataset.file(1)
        assert [path for _, path, _ in proxy.requests] == [shards[1]] * 2


@pytest.mark.parametrize(
    "told", [(10_000, 500), (70_200, 500), (90_000, 500), (70_000, 0), (70_000, 70_000), (70_000, 10**9)]
)
def test_what_is_told_of_an_object_may_be_wrong(s3: S3Server, told: tuple[int, int]) -> None:
    store, at = open_store(f"s3://fetched/{secrets.token_hex(6)}", s3.storage_options())
    data = np.random.default_rng(1).bytes(70_000)
    store.put(at, data)
    file = RemoteFile(ObjectPath(store, at), lambda head, size: 2_000, told)
    assert file.size == len(data)
    assert bytes(file.bytes[:4096]) == data[:4096]
    assert bytes(file.bytes[-2_000:]) == data[-2_000:]
    file.ensure([(30_000, 1_000)])
    assert bytes(file.bytes[30_000:31_000]) == data[30_000:31_000]


def test_a_server_that_never_answers_is_waited_for_once(s3: S3Server, proxy: Proxy) -> None:
    url = f"s3://fetched/{secrets.token_hex(6)}"
    there, at = open_store(url, s3.storage_options())
    there.put(at, b"a" * 70_000)
    store, _ = open_store(url, s3.storage_options(proxy.url, deadline=1.0, attempt_timeout=0.3))
    proxy.fault = "silence"
    proxy.requests.clear()
    with pytest.raises(fl.StoreError, match="no answer within"):
        RemoteFile(ObjectPath(store, at), told=(70_000, 500))
    assert {span for _, _, span in proxy.requests} == {"bytes=0-4095", "bytes=69500-69999"}
    asked = [span for _, _, span in proxy.requests].count("bytes=0-4095")
    assert asked <= 4  # rather than as often again, to look at it from the front


def test_both_ends_are_of_one_version(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store, at = open_store(f"s3://fetched/{secrets.token_hex(6)}", s3.storage_options())
    assert isinstance(store, CloudStore)
    store.put(at, b"a" * 70_000)
    read = CloudStore._read
    ended: list[bool] = []

    async def late(self: CloudStore, wanted: Any) -> Any:
        if not wanted.begin:
            while not ended:
                await asyncio.sleep(0.01)
            return await read(self, wanted)
        found = await read(self, wanted)
        await asyncio.to_thread(store.put, at, b"b" * 70_000)
        ended.append(True)
        return found

    monkeypatch.setattr(CloudStore, "_read", late)
    head, last, _ = store.read_ends(at, 4096, 70_000, 100)
    assert (bytes(head), bytes(last)) == (b"b" * 4096, b"")


def test_a_folder_is_listed_once(s3: S3Server, proxy: Proxy) -> None:
    store, at = open_store(f"s3://fetched/{secrets.token_hex(6)}", s3.storage_options())
    for i in range(5):
        store.put(f"{at}/{i}.bin", bytes([i]))
    found = fl.open(f"s3://fetched/{at}/", s3.storage_options(proxy.url, hedge_after=60.0))
    assert len(found) == 5
    assert sum("list-type" in path for _, path, _ in proxy.requests) == 1


def test_pages_in_a_bucket_are_as_large_as_a_request(s3: S3Server, tmp_path: Path) -> None:
    to = f"s3://fetched/{secrets.token_hex(6)}"
    for path, options in ((to, s3.storage_options()), (tmp_path / "local", None)):
        with fl.DatasetWriter(path, {"n": fl.IntField()}, storage_options=options) as writer:
            writer.write_sample({"n": 1})
    with fl.open(to, s3.storage_options()) as there, fl.open(tmp_path / "local") as here:
        assert (there.dataset.page_size, here.dataset.page_size) == (REMOTE_PAGE_SIZE, 2 << 20)


class Lent(np.ndarray):
    """Bytes of which is known when they are gone."""


def lending(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], set[int]]:
    """Sizes of all buffers lent to engines, and those that are there."""
    lent: list[int] = []
    there: set[int] = set()
    begin_read = RemoteFile.begin_read

    def watched(self: RemoteFile, begin: int, size: int, done: Any) -> None:
        def wrapped(data: Any, error: BaseException | None) -> None:
            if error is None:
                data = np.array(np.frombuffer(data, np.uint8)).view(Lent)
                number = len(lent)
                lent.append(len(data))
                there.add(number)
                weakref.finalize(data, there.discard, number)
            done(data, error)

        begin_read(self, begin, size, wrapped)

    monkeypatch.setattr(RemoteFile, "begin_read", watched)
    return lent, there


@pytest.mark.parametrize("order", ["sequential", "quasi_random", "random"])
def test_memory_that_was_lent_is_within_the_limit_and_given_back(
    url: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    lent, there = lending(monkeypatch)
    most = 0
    with fl.open(url, s3.storage_options()) as reader:
        loader = fl.DataLoader(reader, batch_size=4, **in_order(order, 2), memory_limit="24MB", num_workers=1)
        for batch in loader:
            most = max(most, sum(lent[number] for number in list(there)))
            for row in batch["data"]:
                assert row.any()
        assert sum(lent) >= NEEDED
        # What a batch lets go is let go in fact when the next request is made: one may be left at that moment.
        assert most <= 12_000_000 + max(lent)
        end = time.monotonic() + 30
        while there and time.monotonic() < end:  # the thread that brought the last one may still be on its way back
            time.sleep(0.01)
        assert not there


@pytest.mark.parametrize("order", ["sequential", "quasi_random", "random"])
def test_what_was_used_up_is_let_go_though_there_is_memory(
    url: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    lent, there = lending(monkeypatch)
    with fl.open(url, s3.storage_options()) as reader:
        loader = fl.DataLoader(reader, batch_size=4, **in_order(order, 2), memory_limit="4GB", num_workers=1)
        held = [sum(lent[number] for number in list(there)) for _ in loader]
    assert sum(lent) >= NEEDED
    assert held[-1] < sum(lent) * 0.6  # rather than all


def test_bytes_of_a_batch_outlive_those_that_were_lent(url: str, s3: S3Server) -> None:
    with fl.open(url, s3.storage_options()) as reader:
        kept = [batch["data"] for batch in fl.DataLoader(reader, batch_size=16, order="sequential", num_workers=2)]
    numbers = iter(range(COUNT))
    for rows in kept:
        for row in rows:
            assert np.array_equal(row, sample(next(numbers)))


SHRINKING = """
import json, sys
from pathlib import Path
sys.path.append("tests")
import fastloader as fl
from tests.stores.test_fetched_bytes import COUNT, sample

url, options, folder = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])

def check(batches, first=0):
    for batch in batches:
        for row in batch["data"]:
            assert (row == sample(first)).all(), first
            first += 1
    assert first == COUNT, first

def loader(**more):
    return fl.DataLoader(reader, batch_size=8, order="sequential", num_workers=1, **more)

with fl.open(url, options, cache_dir=folder, cache_size="100MB") as reader:
    check(loader())
    for attempt in range(20):
        passing = iter(loader(memory_limit="12MB"))
        next(passing)
        for block in folder.glob("*/*/*.block"):
            with block.open("r+b") as file:
                file.truncate(1000)
        # Blocks that are mapped and were not yet read are gone: an error. Those that are not mapped yet, or that
        # somebody found changed in time, are fetched again.
        try:
            check(passing, 8)
        except fl.FastLoaderError as error:
            assert "the file became shorter" in str(error), error
            print("error")
            break
    check(loader())
"""


def test_a_block_that_shrinks_under_an_epoch_is_an_error(url: str, s3: S3Server, tmp_path: Path) -> None:
    """In a process of its own: in this one, who knows who else has taken the signal, and where they let it go."""
    words = [sys.executable, "-c", SHRINKING, url, json.dumps(s3.storage_options()), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout) == (0, "error\n"), done.stderr


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, 3_000, 4_000, 9_000, 30_000]), min_size=1, max_size=60),
    each=st.sampled_from([1, 2, 8]),
    missing=st.sets(st.integers(0, 59)),
)
def test_spans_hold_all_payloads_and_do_not_overlap(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], each: int, missing: set[int]
) -> None:
    path = tmp_path_factory.mktemp("spans") / "some.fld"
    with fl.DatasetWriter(path, {"a": fl.BytesField(), "b": fl.BytesField()}, "4KiB") as writer:
        for i, size in enumerate(sizes):
            writer.write_sample({"a": None if i in missing else b"a" * size, "b": b"b" * (size // 3)})
    all_have_some = all(size >= 3 or (size and i not in missing) for i, size in enumerate(sizes))
    file = FldFile(path)
    spans = payload_spans(file, [0, 1], each * 4096).tolist()
    assert all(begin < end for begin, end, _ in spans)
    assert all(end <= begin for (_, end, _), (begin, *_) in pairwise(spans))
    counted = dict.fromkeys((low for low, *_ in spans), 0)
    with fl.open(path) as reader:
        address = reader.dataset.file(0).bytes.ctypes.data
        for i in range(len(sizes)):
            for field in ("a", "b"):
                data = reader.read_payload(i, field)
                begin = np.frombuffer(data, np.uint8).ctypes.data - address if data else 0
                held = [low for low, high, _ in spans if data and low <= begin and begin + len(data) <= high]
                for low in held:
                    counted[low] += 1
                # No span begins or ends within a payload; where all samples have some, each is held.
                assert not any(begin < edge < begin + len(data or b"") for edges in spans for edge in edges[:2])
                assert held or not data or not all_have_some
    # No more payloads are there than a span tells, and just as many where none is missing.
    assert all(counted[low] <= payloads for low, _, payloads in spans)
    assert missing or min(sizes) < 3 or all(counted[low] == payloads for low, _, payloads in spans)
