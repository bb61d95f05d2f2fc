"""The native client: exact answers come whole, however they are cut; all else is a failure, and harms no other."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.left_behind import until
from tests.stores.scripted_server import (
    CLOSE,
    DATA,
    ETAG,
    MODIFIED,
    PAUSE,
    RESET,
    WAIT,
    Request,
    Scripted,
    good,
    scripted_server,
)

from fastloader.kernels import NetClient
from fastloader.stores.connections import Reply

MANY = 400


class Net:
    """A client with one server."""

    def __init__(self, addresses: list[tuple[str, int]]) -> None:
        self.client = NetClient()
        self.server = self.client.add_server(addresses)
        self._came: dict[int, Reply] = {}

    def ask(self, begin: int = 0, size: int = 1000, at_most: bool = False) -> int:
        """Sends a request for a range."""
        head = f"GET /object HTTP/1.1\r\nHost: here\r\nRange: bytes={begin}-{begin + size - 1}\r\n\r\n"
        return self.client.ask(self.server, head.encode(), begin, size, at_most)

    def reply(self, ticket: int) -> Reply:
        """Waits for it."""
        while ticket not in self._came:
            told = self.client.take(30_000)
            assert told, "nothing came"
            self._came |= {one[0]: Reply(*one) for one in told}
        return self._came.pop(ticket)

    def get(self, begin: int = 0, size: int = 1000, at_most: bool = False) -> Reply:
        """Both."""
        return self.reply(self.ask(begin, size, at_most))


@contextlib.contextmanager
def served(answer: Any) -> Iterator[tuple[Net, Scripted]]:
    """A client, and a server that answers so."""
    with scripted_server(answer) as server:
        net = Net([("127.0.0.1", server.port)])
        yield net, server
        del net.client  # it ends before the server, which would wait for it


def body(reply: Reply) -> bytes:
    """What came, or why not."""
    assert reply.body is not None, reply.wrong
    return bytes(memoryview(reply.body))


@settings(max_examples=80, deadline=None)
@given(
    begin=st.integers(0, 190_000), size=st.integers(1, 120_000), at_most=st.booleans(),
    cuts=st.lists(st.floats(0, 1), max_size=5), early=st.lists(st.integers(0, 260), max_size=4),
)  # fmt: skip
def test_an_answer_may_be_cut_anywhere(begin, size, at_most, cuts, early):
    size = size if at_most else min(size, len(DATA) - begin)

    def answer(request: Request) -> list[object]:
        whole = good(request)
        places = sorted({0, len(whole), *(int(cut * len(whole)) for cut in cuts), *(min(e, len(whole)) for e in early)})
        return [part for a, b in pairwise(places) for part in (whole[a:b], PAUSE)]

    with served(answer) as (net, server):
        for _ in range(2):
            reply = net.get(begin, size, at_most)
            assert body(reply) == DATA[begin : begin + size]
            assert (reply.status, reply.total, reply.etag, reply.modified) == (206, len(DATA), ETAG, MODIFIED)
        assert server.connections == 1


def head(*lines: str) -> bytes:
    """Of an answer with a body of 1,000 bytes behind it."""
    return "\r\n".join([*lines, "", ""]).encode() + DATA[:1000]


RANGE, LENGTH = "Content-Range: bytes 0-999/200000", "Content-Length: 1000"
FIRST = "HTTP/1.1 206 Partial Content"
WRONG: dict[str, bytes] = {
    "another status": head("HTTP/1.1 200 OK", RANGE, LENGTH),
    "a redirect": head("HTTP/1.1 307 Elsewhere", "Location: /there", LENGTH),
    "refused": head("HTTP/1.1 403 Forbidden", LENGTH),
    "not there": head("HTTP/1.1 404 Not Found", LENGTH),
    "a server's error": head("HTTP/1.1 503 Slow Down", LENGTH),
    "to be continued": head("HTTP/1.1 100 Continue") + head(FIRST, RANGE, LENGTH),
    "another protocol": head("HTTP/2 206", RANGE, LENGTH),
    "no protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "nothing but an end": b"\r\n\r\n",
    "no status": head("HTTP/1.1 abc Partial", RANGE, LENGTH),
    "a long status": head("HTTP/1.1 2060 Partial", RANGE, LENGTH),
    "no length": head(FIRST, RANGE),
    "no range": head(FIRST, LENGTH),
    "a shorter length": head(FIRST, RANGE, "Content-Length: 999"),
    "a longer length": head(FIRST, RANGE, "Content-Length: 1001"),
    "a length that is no number": head(FIRST, RANGE, "Content-Length: 1000x"),
    "a length below zero": head(FIRST, RANGE, "Content-Length: -1000"),
    "a length of too many digits": head(FIRST, RANGE, "Content-Length: " + "9" * 40),
    "two lengths": head(FIRST, RANGE, LENGTH, "Content-Length: 900"),
    "two ranges": head(FIRST, RANGE, RANGE, LENGTH),
    "another range": head(FIRST, "Content-Range: bytes 1-1000/200000", LENGTH),
    "a shorter range": head(FIRST, "Content-Range: bytes 0-998/200000", "Content-Length: 999"),
    "a range beyond the end": head(FIRST, "Content-Range: bytes 0-999/500", LENGTH),
    "a range that is none": head(FIRST, "Content-Range: bytes 999-0/200000", LENGTH),
    "a range of unknown whole": head(FIRST, "Content-Range: bytes 0-999/*", LENGTH),
    "a range in other units": head(FIRST, "Content-Range: lines 0-999/200000", LENGTH),
    "chunks": head(FIRST, RANGE, "Transfer-Encoding: chunked"),
    "chunks and a length": head(FIRST, RANGE, LENGTH, "Transfer-Encoding: chunked"),
    "packed": head(FIRST, RANGE, LENGTH, "Content-Encoding: gzip"),
    "a line that is none": head(FIRST, RANGE, LENGTH, "nothing"),
    "a line that goes on": head(FIRST, RANGE, LENGTH, "X-A: b", "  c"),
    "a name with a space": head(FIRST, RANGE, "Content-Length : 1000"),
    "an ETag of control characters": head(FIRST, RANGE, LENGTH, 'ETag: "a\x01b"'),
    "two ETags": head(FIRST, RANGE, LENGTH, 'ETag: "a"', 'ETag: "b"'),
    "a head without an end": b"X: " + b"y" * 9000,
    "more than was announced": head(FIRST, RANGE, LENGTH) + b"more",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_exactly_the_range_is_a_failure(name):
    wrong = [True]

    def answer(request: Request) -> list[object]:
        return [WRONG[name], PAUSE] if wrong.pop(0) else [good(request)]

    with served(answer) as (net, server):
        reply = net.get()
        assert reply.body is None
        assert reply.wrong
        assert not reply.unheard
        wrong.append(False)
        assert body(net.get()) == DATA[:1000]
        assert server.connections == 2  # what else may be on the first is nobody's answer


def test_a_status_is_told():
    with served(lambda request: [WRONG["a server's error"]]) as (net, _):
        assert net.get().status == 503


@pytest.mark.parametrize("where", ["before", "in the head", "in the body", "at the last byte"])
@pytest.mark.parametrize("how", [CLOSE, RESET])
def test_a_connection_that_breaks_is_a_failure(how, where):
    def answer(request: Request) -> list[object]:
        if request.connection:
            return [good(request)]
        whole = good(request)
        size = {"before": 0, "in the head": 60, "in the body": len(whole) - 500, "at the last byte": len(whole) - 1}
        return [whole[: size[where]], PAUSE, how]

    with served(answer) as (net, _):
        reply = net.get()
        assert reply.body is None
        assert not reply.unheard  # it was the first on its connection
        assert body(net.get(5, 10)) == DATA[5:15]


def test_nobody_hears_a_request_over_a_connection_that_was_just_closed():
    def answer(request: Request) -> list[object]:
        return [good(request)] if request.number == 0 else [CLOSE]

    with served(answer) as (net, _):
        body(net.get())
        reply = net.get()
        assert (reply.body, reply.status, reply.unheard) == (None, 0, True)


@pytest.mark.parametrize("more", ["Connection: close", "connection: Keep-Alive, Close"])
def test_a_connection_that_shall_be_closed_is_not_used_again(more):
    with served(lambda request: [good(request, more)]) as (net, server):
        for _ in range(3):
            body(net.get())
        assert server.connections == 3


def test_answers_of_old_servers_close_the_connection():
    with served(lambda request: [good(request).replace(b"HTTP/1.1", b"HTTP/1.0")]) as (net, server):
        for _ in range(2):
            body(net.get())
        assert server.connections == 2


def test_what_comes_behind_an_answer_is_not_taken_for_the_next_one():
    def answer(request: Request) -> list[object]:
        return (
            [good(request), PAUSE, good(Request(b"", 500, 1500, 0, 0))] if request.connection == 0 else [good(request)]
        )

    with served(answer) as (net, server):
        first = net.get(0, 1000)  # a slow client has both at once, and believes neither
        assert first.wrong == "more came than was announced" or body(first) == DATA[:1000]
        until(lambda: not net.client.connections or len(server.ended))
        assert body(net.get(0, 1000)) == DATA[:1000]
        assert server.connections == 2


def test_many_at_once_all_come_over_a_bounded_number_of_connections():
    with served(lambda request: [good(request)]) as (net, server):
        tickets = {net.ask(i, 500 + i): i for i in range(MANY)}
        for ticket, i in tickets.items():
            assert body(net.reply(ticket)) == DATA[i : i + 500 + i]
        assert server.connections <= 256


def test_a_server_that_many_wait_for_leaves_a_connection_to_another():
    gate = threading.Semaphore(0)

    def slow(request: Request) -> list[object]:
        gate.acquire()
        return [good(request)]

    with scripted_server(slow) as busy, scripted_server(lambda request: [good(request)]) as other:
        net = Net([("127.0.0.1", busy.port)])
        second = net.client.add_server([("127.0.0.1", other.port)])
        try:
            asked = {net.ask() for _ in range(600)}
            until(lambda: len(busy.requests) == 256)
            net.server = second
            ticket = net.ask(5, 100)
            gate.release(3)
            assert body(net.reply(ticket)) == DATA[5:105]
            assert len(asked & net._came.keys()) <= 3
        finally:
            gate.release(1000)
        for one in asked:
            if one not in net._came:
                net._came[one] = net.reply(one)
        assert all(body(net._came[one]) == DATA[:1000] for one in asked)
        del net.client


def test_bytes_that_are_held_stay_and_memory_is_used_again():
    with served(lambda request: [good(request)]) as (net, _):
        held = [net.get(i, 50_000) for i in range(20)]
        for i, reply in enumerate(held):
            assert body(reply) == DATA[i : i + 50_000]
        view = memoryview(held[3].body)  # type: ignore[arg-type]
        del held, reply
        gc.collect()
        idle = net.client.idle_bytes
        assert idle >= 19 * 50_000
        again = [net.get(i, 50_000) for i in range(19)]
        assert net.client.idle_bytes == 0
        assert bytes(view) == DATA[3 : 3 + 50_000]
        del again
    assert bytes(view) == DATA[3 : 3 + 50_000]  # the client is gone


def test_memory_that_nobody_needs_is_given_back():
    with served(lambda request: [good(request)]) as (net, _):
        held = [net.get(0, 190_000)]
        held.clear()
        assert net.client.idle_bytes >= 190_000
        until(lambda: net.client.idle_bytes == 0)


def test_a_server_is_found_at_the_address_that_answers():
    with socket.socket() as nobody, scripted_server(lambda request: [good(request)]) as server:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        net = Net([("127.0.0.1", nobody.getsockname()[1]), ("127.0.0.1", server.port)])
        for _ in range(3):
            assert body(net.get()) == DATA[:1000]
        assert server.connections == 1
        net.client.move_server(net.server, [("127.0.0.1", nobody.getsockname()[1])])
        reply = net.get()
        assert (reply.body, reply.status) == (None, 0)
        assert "connection" in reply.wrong
        net.client.move_server(net.server, [])
        assert net.get().body is None
        del net.client


def test_ipv6():
    with scripted_server(lambda request: [good(request)], socket.AF_INET6) as server:
        net = Net([("::1", server.port)])
        assert body(net.get(7, 9)) == DATA[7:16]
        del net.client


def test_addresses_are_numbers_and_servers_known():
    client = NetClient()
    with pytest.raises(ValueError, match="localhost is no address"):
        client.add_server([("localhost", 80)])
    with pytest.raises(IndexError):
        client.ask(0, b"", 0, 1)
    with pytest.raises(IndexError):
        client.move_server(0, [])


def test_what_is_called_off_is_never_told_and_its_connection_is_closed():
    with served(lambda request: [WAIT] if request.begin else [good(request)]) as (net, server):
        lost = net.ask(1, 10)
        until(lambda: server.requests)
        net.client.call_off(lost)
        net.client.call_off(12345)
        assert body(net.get()) == DATA[:1000]
        until(lambda: net.client.connections == 1)
        assert net.client.take(20) == []


def test_what_waits_for_a_connection_can_be_called_off():
    with served(lambda request: [WAIT] if request.begin else [good(request)]) as (net, server):
        lost = [net.ask(1, 10) for _ in range(256)]
        until(lambda: len(server.requests) == 256)
        waiting = net.ask(0, 10)
        later = net.ask(0, 20)
        net.client.call_off(waiting)
        net.client.call_off(lost[0])
        assert len(body(net.reply(later))) == 20
        assert net.client.take(20) == []


def test_a_client_ends_though_servers_are_silent():
    with served(lambda request: [WAIT]) as (net, server):
        for _ in range(5):
            net.ask()
        until(lambda: len(server.requests) == 5)
    assert sorted(server.ended) == []  # they were waiting; nobody hung


def test_whoever_waits_can_be_woken():
    client = NetClient()
    told: list[Any] = []
    thread = threading.Thread(target=lambda: told.append(client.take(60_000)))
    thread.start()
    client.wake()  # whether or not it waits already
    thread.join(50)
    assert told == [[]]


def test_children_of_a_fork_hold_no_connection_open():
    """The child has the parent's sockets; what the parent closes must be closed for the server, too."""
    with served(lambda request: [good(request)]) as (net, server):
        reply = net.get()
        ready, go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:  # no handlers of ours run for this client: it is none of the process's own
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            held = bytes(memoryview(reply.body)) == DATA[:1000]  # type: ignore[arg-type]
            refused = False
            try:
                net.client.take(0)
            except ValueError:
                refused = True
            net.client.abandon()
            del reply, net.client  # neither hangs
            os._exit(0 if held and refused else 1)
        os.read(ready[0], 1)
        assert body(net.get()) == DATA[:1000]
        connection = server.connections - 1
        net.client.move_server(net.server, [("127.0.0.1", server.port)])  # connections from before are closed
        assert body(net.get()) == DATA[:1000]
        until(lambda: connection in server.ended)
        os.write(go[1], b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for end in (*ready, *go):
            os.close(end)
