"""Small parts of the stores: URLs, waiting times, ranges, and how many requests are in flight."""

from __future__ import annotations

import random
from queue import SimpleQueue

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.errors import StoreError
from fastloader.loader.fetching import Concurrency
from fastloader.stores import MemoryStore, ObjectPath, RetryPolicy, client, is_url, open_store, parse_url
from fastloader.stores.connecting import shortened
from fastloader.stores.remote import RemoteFile
from fastloader.stores.retrying import Pace
from fastloader.stores.urls import Location, local_path

CONTENT = bytes(range(251)) * 3200


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("s3://bucket/a/b.fld", ("s3", "s3://bucket", "a/b.fld")),
        ("s3a://bucket/a/", ("s3", "s3://bucket", "a")),
        ("gs://bucket", ("gs", "gs://bucket", "")),
        ("az://container/x", ("az", "az://container", "x")),
        ("abfss://box@account.host/x", ("az", "abfss://box@account.host", "x")),
        ("https://host:8080/a%20b/c", ("http", "https://host:8080", "a b/c")),
        ("memory://name/key", ("memory", "memory://name", "key")),
        ("file:///data/x", ("file", "file:///", "/data/x")),
    ],
)  # fmt: skip
def test_urls_come_apart(url: str, parts: tuple[str, str, str]) -> None:
    assert parse_url(url) == Location(*parts)


@pytest.mark.parametrize("url", ["s3://", "ftp://host/x", "https:///x", "https://host/x?signature=y", "no/url"])
def test_what_is_no_url_is_told(url: str) -> None:
    with pytest.raises(ValueError, match=r"://|host|no URL|query"):
        parse_url(url)


def test_local_paths_are_no_urls() -> None:
    assert [is_url(path) for path in ("a/b", "/a:/b", "C:/x", "s3://b/k")] == [False, False, False, True]
    assert local_path("file:///a%20b") == "/a b"
    assert local_path("s3://b/k") is None


@given(attempt=st.integers(0, 2000), draw=st.floats(0, 1, exclude_max=True))
@settings(max_examples=50)
def test_waits_grow_and_stay_within_bounds(attempt: int, draw: float) -> None:
    policy = RetryPolicy(first_wait=0.1, longest_wait=5)
    longest = min(5, 0.1 * 2.0 ** min(attempt, 60))
    assert longest / 2 <= policy.wait(attempt, draw) <= longest


def test_waiting_takes_none_of_a_programs_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", lambda: pytest.fail("a program's own"))
    assert len({RetryPolicy().wait(3) for _ in range(9)}) > 1


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"deadline": 0}, {"attempt_timeout": "x"}, {"hedge_after": -1}])
def test_policies_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetryPolicy(**wrong)  # type: ignore[arg-type]


def test_few_reads_are_asked_for_twice() -> None:
    pace = Pace()
    assert pace.hedge_after(1000) is None
    for _ in range(100):
        pace.took(1000, 0.4)
    assert pace.hedge_after(1000) == pytest.approx(1.2)
    assert pace.hedge_after(10**6) is None
    assert sum(pace.may_hedge() for _ in range(100)) == 4


def test_concurrency_grows_until_throughput_stops_growing() -> None:
    chosen = Concurrency(4)
    for _ in range(60):
        chosen.observe(min(chosen.limit, 20), 1.0)  # the server gives no more than twenty at a time do
    assert 14 <= chosen.limit <= 30
    endless = Concurrency(4, most=100)
    for _ in range(60):
        endless.observe(endless.limit, 1.0)
    assert endless.limit == 100
    none = Concurrency(8)
    for _ in range(60):
        none.observe(1000, 1.0)
    assert none.limit <= 12


@given(st.lists(st.tuples(st.integers(0, 700_000), st.integers(0, 50_000)), max_size=12))
@settings(max_examples=30, deadline=None)
def test_ranges_of_an_object_are_where_they_belong(ranges: list[tuple[int, int]]) -> None:
    content, store = CONTENT, MemoryStore("ranges")
    store.put("x", content)
    file = RemoteFile(ObjectPath(store, "x"))
    file.ensure(ranges)
    alone = file.fetched(ranges)
    for begin, size in ranges:
        assert file.bytes[begin : begin + size].tobytes() == content[begin : begin + size]
        assert alone[begin : begin + size].tobytes() == content[begin : begin + size]
    assert not file.bytes.flags.writeable


def test_paths_of_objects_stay_in_their_store() -> None:
    path = ObjectPath(MemoryStore("paths"), "a/b")
    assert str(path / "../c/d.fld") == "memory://paths/a/c/d.fld"
    assert str(path / "memory://paths/x") == "memory://paths/x"
    for wrong in ("../../../x", "s3://other/x"):
        with pytest.raises(ValueError, match="store"):
            path / wrong


@pytest.mark.parametrize("url", ["s3://x y/k", "gs://a%b", "az://a\nb/k", "s3://b*/k", "abfss://a b@host/k"])
def test_names_that_no_bucket_can_have_are_told(url: str) -> None:
    with pytest.raises(ValueError, match=r"can't be the name of a (bucket|container)"):
        parse_url(url)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9000", "localhost", "s3.example.org/path", "http://", "http://a b"])
@pytest.mark.parametrize("named", ["endpoint", "endpoint_url", "environment"])
def test_endpoints_that_are_no_urls_are_told(endpoint: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint if named == "environment" else "")
    options = {"anonymous": True} | ({} if named == "environment" else {named: endpoint})
    with pytest.raises(StoreError, match=rf"^s3://b: endpoint='{endpoint}' is no URL; .*'http://127\.0\.0\.1:9000'"):
        open_store("s3://b/k", options)


@pytest.mark.parametrize("name", ["RustPanic", "PanicException"])
def test_a_client_that_panics_is_not_asked_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = open_store("s3://bucket", {"endpoint": "http://127.0.0.1:9", "anonymous": True, "direct": False})
    asked: list[str] = []
    panic = type(name, (BaseException if name == "PanicException" else Exception,), {})

    def ask(_reader: object, key: str, **options: object) -> None:
        asked.append(key)
        raise panic("rust future panicked")

    class Client:
        get = get_async = staticmethod(ask)

    monkeypatch.setattr(client, "module", lambda: Client)
    told: SimpleQueue[BaseException | None] = SimpleQueue()
    store.begin_read("k", 0, 10, None, lambda data, error: told.put(error))
    error = told.get(timeout=60)
    assert isinstance(error, StoreError)
    assert str(error).startswith("s3://bucket/k: the request failed: rust future panicked")
    assert asked == ["k"]


def test_of_a_servers_page_its_message_alone_is_told() -> None:
    page = "status code: 501 Not Implemented: <!DOCTYPE HTML>\n<html><body>so much</body></html>\n\nDebug source:\nmore"
    assert shortened(OSError(page)) == "status code: 501 Not Implemented:"
    xml = "status code: 404: <?xml version='1'?><Error><Message>It is gone</Message></Error>"
    assert shortened(OSError(xml)) == "status code: 404: It is gone"


@pytest.mark.parametrize("key", ["a\nb", "a/\x01", "\x7f"])
def test_keys_that_can_not_be_printed_are_told(key: str) -> None:
    store, _ = open_store("s3://bucket", {"endpoint": "http://127.0.0.1:9", "anonymous": True})
    for ask in (store.stat, lambda key: store.put(key, b"x")):
        with pytest.raises(StoreError, match=r"has a character that can't be printed; give it another name"):
            ask(key)


@pytest.mark.parametrize("key", ["a//b", "a/../b"])
def test_a_key_that_no_client_can_ask_for_is_refused_at_once(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = open_store("s3://bucket", {"endpoint": "http://127.0.0.1:9", "anonymous": True})
    failed: list[int] = []
    wait = RetryPolicy.wait

    def noted(policy: RetryPolicy, attempt: int) -> float:
        if policy is store.policy:  # of other stores, requests of other tests may still be repeated
            failed.append(attempt)
        return wait(policy, attempt)

    monkeypatch.setattr(RetryPolicy, "wait", noted)
    for ask in (store.read, store.stat, lambda key: store.begin_whole(key, 10).result()):
        with pytest.raises(StoreError, match=rf"^s3://bucket/{key}: can't be asked for: .*; keys have no '//'"):
            ask(key)
    assert failed == [0, 0, 0]
