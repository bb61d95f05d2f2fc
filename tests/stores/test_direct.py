"""Reads over connections of our own: the same bytes and errors as through obstore, which has the last word."""

from __future__ import annotations

import multiprocessing
import secrets
import socket
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from tests.left_behind import until
from tests.stores.fault_proxy import fault_proxy
from tests.stores.http_server import web_server
from tests.stores.scripted_server import (
    CLOSE,
    DATA,
    ETAG,
    MODIFIED,
    WAIT,
    Request,
    Scripted,
    good,
    scripted_server,
)

from fastloader.errors import NotFoundError, StoreError
from fastloader.stores import open_store
from fastloader.stores.base import ChangedError, RefusedError, Store
from fastloader.stores.cloud import CloudStore
from fastloader.stores.connections import connections
from fastloader.stores.direct import IN_A_ROW, direct_reads
from fastloader.testing.seaweed import PUBLIC, S3Server

QUICK = {"first_wait": 0.001, "longest_wait": 0.01, "deadline": 20.0, "hedge_after": 60.0}
ODD = [
    "plain.bin", "a b", "a+b", "a%20b", "100%", "ü/ö.jpg", "a&b=c", "x;y,z", "q?r", "h#i", "[1]", "it's", 'say "hi"',
    "~t", "a:b@c", "back\\slash", "日本", "(1)*!$", "tail.", ".hidden", "a/b/c",
]  # fmt: skip


@pytest.fixture
def by_obstore(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys that obstore was asked for."""
    keys: list[str] = []
    plain, at_once = CloudStore._get, CloudStore._get_now

    async def get(self: CloudStore, wanted: Any) -> Any:
        keys.append(wanted.key)
        return await plain(self, wanted)

    def get_now(self: CloudStore, wanted: Any) -> Any:
        keys.append(wanted.key)
        return at_once(self, wanted)

    monkeypatch.setattr(CloudStore, "_get", get)
    monkeypatch.setattr(CloudStore, "_get_now", get_now)
    return keys


@pytest.fixture(scope="module")
def bucket(s3: S3Server) -> str:
    """With an object of DATA in it."""
    url = f"s3://direct-{secrets.token_hex(4)}"
    open_store(url, s3.storage_options())[0].put("data", DATA)
    return url


def read(store: Store, key: str, begin: int, size: int, version: str | None = None) -> bytes:
    """As the engine reads."""
    coming: Future[bytes] = Future()

    def done(data: Any, error: BaseException | None) -> None:
        coming.set_exception(error) if error else coming.set_result(bytes(data))

    store.begin_read(key, begin, size, version, done)
    return coming.result(30)


def test_every_way_to_read_goes_over_connections_of_our_own(bucket, s3, by_obstore):
    store, _ = open_store(bucket, s3.storage_options())
    assert isinstance(store, CloudStore)
    assert bytes(store.read("data", 100, 500)) == DATA[100:600]
    version = store.stat("data").version
    assert read(store, "data", 5, 150_000, version) == DATA[5:150_005]
    assert [bytes(part) for part in store.read_ranges("data", [(0, 3), (9, 90_000)], version=version)] == [
        DATA[:3], DATA[9:90_009]
    ]  # fmt: skip
    head, found = store.read_with_stat("data", 0, 10**6)
    assert (bytes(head), found) == (DATA, store.stat("data"))
    first, last, found = store.read_ends("data", 10, len(DATA), 7)
    assert (bytes(first), bytes(last), found.size) == (DATA[:10], DATA[-7:], len(DATA))
    data, found = store.begin_whole("data", 10**6).result(30)
    assert (bytes(data), found) == (DATA, store.stat("data"))
    assert by_obstore == []
    assert connections().counts()["opened"] > 0


def test_it_can_be_switched_off(bucket, s3, by_obstore):
    store, _ = open_store(bucket, s3.storage_options(direct=False))
    assert bytes(store.read("data", 1, 5)) == DATA[1:6]
    assert by_obstore == ["data"]
    with pytest.raises(ValueError, match="direct='no'"):
        open_store(bucket, s3.storage_options(direct="no"))


@pytest.mark.parametrize("key", ODD)
def test_keys_of_odd_characters_are_the_same_objects_both_ways(s3, bucket, by_obstore, key):
    writer, _ = open_store(bucket, s3.storage_options())
    content = key.encode() * 3
    writer.put(f"odd/{key}", content)
    direct, _ = open_store(bucket, s3.storage_options())
    other, _ = open_store(bucket, s3.storage_options(direct=False))
    size = len(content)
    assert read(direct, f"odd/{key}", 0, size) == read(other, f"odd/{key}", 0, size) == content
    assert by_obstore == [f"odd/{key}"]


@pytest.mark.parametrize("key", [key for key in ODD if "/" not in key])
def test_keys_of_odd_characters_on_web_servers(tmp_path: Path, by_obstore: list[str], key: str) -> None:
    (tmp_path / key).write_bytes(DATA)
    with web_server(tmp_path) as url:
        store, _ = open_store(url)
        assert read(store, key, 3, 1000) == DATA[3:1003]
        assert by_obstore == []


@pytest.mark.parametrize("key", ["a//b", "a/../data", "./data", "../x"])
def test_keys_that_lead_elsewhere_are_left_to_obstore(s3, bucket, key):
    store, _ = open_store(bucket, s3.storage_options(attempts=2, first_wait=0.001))
    with fault_proxy(s3.endpoint) as proxy:
        through, _ = open_store(bucket, s3.storage_options(proxy.url, attempts=2, first_wait=0.001))
        with pytest.raises((StoreError, ValueError)):
            read(through, key, 0, 10)
        assert not any("X-Amz-Signature" in path for _, path, _ in proxy.requests)
    assert read(store, "data", 0, 3) == DATA[:3]


def test_public_buckets_need_no_signature(s3, by_obstore):
    open_store(f"s3://{PUBLIC}", s3.storage_options())[0].put("direct/a b", DATA)
    store, _ = open_store(f"s3://{PUBLIC}", {"endpoint": s3.endpoint, "anonymous": True})
    assert read(store, "direct/a b", 10, 20) == DATA[10:30]
    assert by_obstore == []


def test_keys_of_the_environment_are_taken(s3, bucket, by_obstore, monkeypatch):
    options = s3.storage_options()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret_access_key"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    store, _ = open_store(bucket, {"region": "us-east-1"})
    assert read(store, "data", 10, 20) == DATA[10:30]
    assert by_obstore == []


def test_where_obstore_sends_all_requests(monkeypatch):
    def direct(kind: str = "s3", url: str = "s3://bucket", **config: Any) -> bool:
        return direct_reads(kind, url, config, lambda: None) is not None

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    assert direct(endpoint="http://127.0.0.1:9000", **keys)
    assert direct(endpoint="http://127.0.0.1:9000", skip_signature=True)
    assert direct("http", "http://127.0.0.1:9000")
    assert not direct(endpoint="https://127.0.0.1:9000", **keys)
    assert not direct(**keys)
    assert not direct(endpoint="http://127.0.0.1:9000")
    assert not direct(endpoint="http://127.0.0.1:9000", client_options={"proxy_url": "http://127.0.0.1:1"}, **keys)
    assert not direct(endpoint="http://127.0.0.1:9000", request_payer=True, **keys)
    assert not direct("http", "https://127.0.0.1:9000")
    assert not direct("http", "http://127.0.0.1:9000", client_options={})
    assert not direct("az", "az://container", endpoint="http://127.0.0.1:9000", **keys)
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")  # for URLs that obstore does not sign it is unknown
    assert not direct(endpoint="http://127.0.0.1:9000", skip_signature=True)
    assert direct(endpoint="http://127.0.0.1:9000", **keys)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert not direct(endpoint="http://127.0.0.1:9000", **keys)


@pytest.fixture
def web() -> Iterator[Scripted]:
    """A server of DATA that tests may make answer otherwise, by a function in ``answers``."""
    with scripted_server(lambda request: answers.get(0, default)(request)) as server:
        yield server
    answers.clear()


def default(request: Request) -> list[object]:
    """As asked, in chunks of what was asked, and to questions about the object, too."""
    if request.head.startswith(b"HEAD"):
        lines = [
            "HTTP/1.1 200 OK",
            f"Content-Length: {len(DATA)}",
            f"ETag: {ETAG}",
            f"Last-Modified: {MODIFIED}",
            "",
            "",
        ]
        return ["\r\n".join(lines).encode()]
    return [good(request)]


answers: dict[int, Any] = {}


def ours(request: Request) -> bool:
    """Whether it did not come from obstore."""
    return b"User-Agent: fastloader\r\n" in request.head


@pytest.mark.parametrize(
    "spoilt",
    [
        [b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"],
        [b"HTTP/1.1 307 There\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"],
        [b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"],
        [b"garbage\r\n\r\n", CLOSE],
        [CLOSE],
    ],
)
def test_what_fails_is_asked_for_through_obstore_and_at_last_everything_is(web, spoilt):
    answers[0] = lambda request: spoilt if ours(request) else default(request)
    store, _ = open_store(web.url, QUICK)
    for i in range(IN_A_ROW + 4):
        assert read(store, "x", i, 100) == DATA[i : i + 100]
    assert sum(map(ours, web.requests)) == IN_A_ROW
    assert sum(not ours(request) for request in web.requests) == IN_A_ROW + 4


def test_after_a_rest_it_is_tried_once_more(web):
    answers[0] = lambda request: [CLOSE] if ours(request) else default(request)
    store, _ = open_store(web.url, QUICK)
    assert isinstance(store, CloudStore)
    assert store._direct is not None
    for i in range(IN_A_ROW + 1):
        read(store, "x", i, 100)
    assert not store._direct.works
    store._direct._rests_until = 0.0
    for i in range(3):
        read(store, "x", i, 100)
    assert sum(map(ours, web.requests)) == IN_A_ROW + 1
    del answers[0]
    store._direct._rests_until = 0.0
    for i in range(3):
        read(store, "x", i, 100)
    assert sum(map(ours, web.requests)) == IN_A_ROW + 4


def test_where_no_connection_can_be_made_obstore_reads(web, by_obstore, monkeypatch):
    def none() -> Any:
        raise RuntimeError("no descriptors are left")

    monkeypatch.setattr("fastloader.stores.direct.connections", none)
    store, _ = open_store(web.url, QUICK)
    assert read(store, "x", 3, 100) == DATA[3:103]
    assert by_obstore == ["x"]


def test_what_a_url_of_ours_does_not_find_obstore_looks_for(web):
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    answers[0] = lambda request: [missing] if ours(request) else default(request)
    store, _ = open_store(web.url, QUICK)
    assert read(store, "x", 3, 100) == DATA[3:103]


def test_nothing_is_held_once_it_was_told(web):
    class Held:
        """Whoever asks."""

    held, told = Held(), threading.Event()
    gone = weakref.ref(held)
    store, _ = open_store(web.url, QUICK)
    store.begin_read("x", 0, 10, None, lambda data, error, held=held: told.set())
    assert told.wait(30)
    del held
    until(lambda: gone() is None)


def test_one_good_answer_and_the_count_begins_anew(web):
    turn = [0]

    def answer(request: Request) -> list[object]:
        turn[0] += ours(request)
        return [CLOSE] if ours(request) and turn[0] % 4 else default(request)

    answers[0] = answer
    store, _ = open_store(web.url, QUICK)
    for i in range(40):
        assert read(store, "x", i, 100) == DATA[i : i + 100]
    assert sum(map(ours, web.requests)) == 40


def test_a_server_without_a_time_is_left_to_obstore(web):
    answers[0] = lambda request: [
        part.replace(b"Last-Modified", b"X") if ours(request) else part for part in default(request)
    ]  # type: ignore[attr-defined]
    store, _ = open_store(web.url, QUICK)
    assert read(store, "x", 1, 10) == DATA[1:11]
    assert [ours(request) for request in web.requests] == [True, False]


def test_another_version_is_an_error_at_once(web):
    store, _ = open_store(web.url, QUICK)
    assert read(store, "x", 0, 10, ETAG) == DATA[:10]
    assert b'If-Match: "abc"\r\n' in web.requests[-1].head
    with pytest.raises(ChangedError, match=r'its version is "abc", not "other"'):
        read(store, "x", 0, 10, '"other"')
    assert all(map(ours, web.requests))


def test_no_version_writes_lines_of_its_own_into_a_request(web):
    store, _ = open_store(web.url, QUICK)
    with pytest.raises((StoreError, ValueError)):
        read(store, "x", 0, 10, '"a"\r\nX-Injected: 1')
    with pytest.raises((StoreError, ValueError)):
        read(store, "x", 0, 10, '"ü"')
    assert not any(b"Injected" in request.head and ours(request) for request in web.requests)


def test_what_is_not_there_is_asked_for_once(s3, bucket):
    with fault_proxy(s3.endpoint) as proxy:
        store, _ = open_store(bucket, s3.storage_options(proxy.url, **QUICK))
        for _ in range(IN_A_ROW + 2):
            with pytest.raises(NotFoundError, match=r"there is no such object"):
                read(store, "not-there", 0, 10)
        assert len(proxy.requests) == IN_A_ROW + 2
        assert read(store, "data", 0, 10) == DATA[:10]
        assert isinstance(store, CloudStore)
        assert store._direct is not None
        assert store._direct.works


def test_wrong_keys_are_refused_with_what_the_server_says(s3, bucket):
    store, _ = open_store(bucket, s3.storage_options(secret_access_key="wrong", **QUICK))
    with pytest.raises(RefusedError, match="access is refused"):
        read(store, "data", 0, 10)


def test_more_than_there_is_is_an_error_and_at_most_is_none(s3, bucket):
    store, _ = open_store(bucket, s3.storage_options(**QUICK))
    with pytest.raises(StoreError, match=f"has {len(DATA)} bytes"):
        read(store, "data", len(DATA) - 10, 20)
    assert isinstance(store, CloudStore)
    found, stat = store.read_with_stat("data", len(DATA) - 10, 20)
    assert (bytes(found), stat.size) == (DATA[-10:], len(DATA))


def test_a_straggler_is_hedged_and_its_connection_given_up(web):
    answers[0] = lambda request: [WAIT] if ours(request) else default(request)
    store, _ = open_store(web.url, QUICK | {"hedge_after": 0.05})
    assert isinstance(store, CloudStore)
    assert read(store, "x", 0, 10) == DATA[:10]
    assert store.hedged == 1


def test_silence_ends_with_the_attempt_and_counts(web):
    answers[0] = lambda request: [WAIT] if ours(request) else default(request)
    store, _ = open_store(web.url, QUICK | {"attempt_timeout": 0.1})
    assert isinstance(store, CloudStore)
    for i in range(IN_A_ROW + 2):
        assert read(store, "x", i, 10) == DATA[i : i + 10]
    assert sum(map(ours, web.requests)) == IN_A_ROW


def test_a_name_is_looked_up_while_obstore_reads(web, by_obstore):
    store, _ = open_store(f"http://localhost:{web.port}", QUICK)
    assert read(store, "x", 0, 10) == DATA[:10]
    until(lambda: connections().server("localhost", web.port) is not None)
    before = len(by_obstore)
    assert read(store, "x", 1, 10) == DATA[1:11]
    assert len(by_obstore) == before
    assert connections().server("no-such-name.invalid", 80) is None


def test_names_are_looked_up_now_and_then_and_connections_stay(web, monkeypatch):
    asked: list[str] = []
    looks = [["127.0.0.1"], ["127.0.0.1"], []]

    def look(host: str, port: int, **_: Any) -> Any:
        asked.append(host)
        found = looks[min(len(asked), len(looks)) - 1]
        if not found:
            raise OSError("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr("fastloader.stores.connections.socket.getaddrinfo", look)
    mine, name = connections(), "direct.test"
    until(lambda: mine.server(name, web.port) is not None)
    number, known = mine.server(name, web.port), mine._servers[name, web.port]
    moved: list[Any] = []
    monkeypatch.setattr(mine, "_client", Watched(mine._client, moved))
    for turn in (2, 3):
        known.until = 0.0
        assert mine.server(name, web.port) == number  # as it was, until it is known anew
        until(lambda turn=turn: len(asked) == turn and not mine._looking)
    assert moved == []
    for _ in range(5):
        mine.server(name, web.port)
    assert len(asked) == 3  # a name that is not found is not asked for again at once


class Watched:
    """A client of which servers that move are noted."""

    def __init__(self, client: Any, moved: list[Any]) -> None:
        self._client, self._moved = client, moved

    def __getattr__(self, name: str) -> Any:
        return self._moved.append if name == "move_server" else getattr(self._client, name)


def test_names_and_passwords_in_a_url_are_left_to_obstore(web, by_obstore):
    store, _ = open_store(f"http://user:secret@127.0.0.1:{web.port}", QUICK)
    assert read(store, "x", 0, 10) == DATA[:10]
    assert by_obstore == ["x"]


def test_many_threads_at_once(s3, bucket, by_obstore):
    store, _ = open_store(bucket, s3.storage_options(**QUICK))
    wrong: list[int] = []

    def some(first: int) -> None:
        for i in range(first, first + 50):
            if read(store, "data", i * 37, 1000 + i) != DATA[i * 37 : i * 37 + 1000 + i]:
                wrong.append(i)

    threads = [threading.Thread(target=some, args=(50 * i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert by_obstore == []


def in_child(store: CloudStore, queue: Any) -> None:
    before = connections().counts()["opened"]
    queue.put((read(store, "data", 7, 70_000) == DATA[7:70_007], before, connections().counts()["opened"]))


def test_forked_children_have_connections_of_their_own(s3, bucket):
    store, _ = open_store(bucket, s3.storage_options(**QUICK))
    assert read(store, "data", 0, 1000) == DATA[:1000]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(store, queue))
    child.start()
    assert queue.get(timeout=60) == (True, 0, 1)
    child.join(30)
    assert child.exitcode == 0
    assert read(store, "data", 0, 1000) == DATA[:1000]


def test_signatures_are_renewed(s3, bucket, monkeypatch, by_obstore):
    store, _ = open_store(bucket, s3.storage_options(**QUICK))
    assert isinstance(store, CloudStore)
    assert store._direct is not None
    assert read(store, "data", 0, 10) == DATA[:10]
    host, port, prefix, _ = store._direct._heads["data"]
    store._direct._heads["data"] = (host, port, prefix.replace("X-Amz-Signature=", "X-Amz-Signature=0"), 0.0)
    assert read(store, "data", 0, 10) == DATA[:10]
    assert by_obstore == []


def test_urls_of_very_many_objects_are_not_all_kept(web):
    store, _ = open_store(web.url, QUICK)
    assert isinstance(store, CloudStore)
    assert store._direct is not None
    for i in range(5000):
        store._direct._head(f"k{i}")
    assert len(store._direct._heads) <= 4096


def test_who_is_told_may_fail_and_others_are_told_still(web, monkeypatch):
    seen: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: seen.append(kind))
    store, _ = open_store(web.url, QUICK)
    store.begin_read("x", 0, 10, None, lambda data, error: 1 / 0)
    assert read(store, "x", 0, 10) == DATA[:10]
    until(lambda: seen == [ZeroDivisionError])
