"""A proxy that spoils some of a server's answers, as networks and servers do.

Which ones is counted, not drawn: of the requests that a fault is for, every ``every``-th meets it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal
from urllib.parse import urlsplit

import pytest

from fastloader.stores import RetryPolicy
from fastloader.stores.cloud import CloudStore

Fault = Literal[
    "500", "503", "429", "drip", "reset", "truncated", "short_length", "etag", "silence", "flip", "none"
]  # fmt: skip

QUICK: dict[str, Any] = {
    "attempts": 40, "attempt_timeout": 5.0, "deadline": 60.0, "first_wait": 0.01, "longest_wait": 0.05,
}  # fmt: skip
"""Storage options with which faults cost little time, and those that a busy machine adds to them do no harm."""


def hurry(monkeypatch: pytest.MonkeyPatch, deadline: float = 0.5) -> None:
    """From now on what does not come soon is given up: a server that never recovers need not be waited for.

    Not from the beginning on, since a busy machine takes longer than this to open a dataset.
    """
    policy = RetryPolicy(**{**QUICK, "deadline": deadline, "attempt_timeout": deadline / 3})
    monkeypatch.setattr(CloudStore, "policy", property(lambda _: policy, lambda *_: None), raising=False)


@dataclass
class Proxy:
    """What it does, and what it has seen."""

    url: str = ""
    fault: Fault = "none"
    every: int = 1
    concerns: Callable[[str], bool] = lambda path: True
    silence: float = 30.0
    all_requests: bool = False
    """Not reads of ranges alone: also questions about objects, and lists of them."""
    uploads: bool = False
    """Not reads, but requests by which uploads in parts begin and end."""
    seen: int = 0
    spoilt: int = 0
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next_fault(self, method: str, path: str, span: str) -> Fault:
        """What happens to this request: of writing, the beginning and the end of uploads alone is ever spoilt."""
        with self._lock:
            self.requests.append((method, path, span))
            reads = (method == "GET" and span) or (self.all_requests and method in ("GET", "HEAD"))
            concerned = method == "POST" if self.uploads else reads
            if not concerned or self.fault == "none" or not self.concerns(path):
                return "none"
            self.seen += 1
            if self.seen % self.every:
                return "none"
            self.spoilt += 1
            return self.fault


@contextlib.contextmanager
def fault_proxy(upstream: str) -> Iterator[Proxy]:
    """Stand in front of a server on this machine, until the block ends."""
    proxy = Proxy()
    parts = urlsplit(upstream)
    server = (str(parts.hostname), int(parts.port or 80))
    listener = socket.create_server(("127.0.0.1", 0))
    proxy.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    sockets: set[socket.socket] = set()
    threads: list[threading.Thread] = []
    lock = threading.Lock()

    def serve(client: socket.socket) -> None:
        with client, socket.create_connection(server) as behind:
            with lock:
                sockets.update((client, behind))
            with contextlib.suppress(OSError, EOFError), client.makefile("rb") as asks, behind.makefile("rb") as tells:
                while not proxy.ended.is_set() and _exchange(proxy, client, asks, behind, tells):
                    pass
            with lock:
                sockets.difference_update((client, behind))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(client,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield proxy
    finally:
        proxy.ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
        listener.close()
        with lock:
            for one in sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _head(stream: BinaryIO) -> tuple[str, dict[str, str], bytes]:
    raw = b""
    while not raw.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            raise EOFError
        raw += line
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    return first, headers, raw


def _exchange(
    proxy: Proxy, client: socket.socket, asks: BinaryIO, server: socket.socket, tells: BinaryIO
) -> bool:  # fmt: skip
    """One request and its answer; whether the connection goes on."""
    first, headers, raw = _head(asks)
    method, path, _ = first.split(" ", 2)
    fault = proxy.next_fault(method, path.partition("?X-Amz-")[0], headers.get("range", ""))
    if fault in ("500", "503", "429"):
        client.sendall(f"HTTP/1.1 {fault} Spoilt\r\nContent-Length: 0\r\nRetry-After: 0\r\n\r\n".encode())
        return True
    server.sendall(raw + asks.read(int(headers.get("content-length", 0))))
    if fault == "silence":
        proxy.ended.wait(proxy.silence)
        return False
    _, answer, head = _head(tells)
    if answer.get("transfer-encoding") == "chunked":
        client.sendall(head)
        while True:
            line = tells.readline()
            client.sendall(line + tells.read(int(line, 16) + 2))
            if int(line, 16) == 0:
                return True
    body = b"" if method == "HEAD" else tells.read(int(answer.get("content-length", 0)))
    return _answer(proxy, fault, head, answer, body, client)


def _answer(
    proxy: Proxy, fault: Fault, head: bytes, headers: dict[str, str], body: bytes, client: socket.socket
) -> bool:  # fmt: skip
    """Pass an answer on, spoilt or not; whether the connection goes on."""
    if fault == "etag":
        head = head.replace(headers["etag"].encode(), b'"' + b"0" * 32 + b'"')
    if fault == "flip" and body:
        body = bytes([body[0] ^ 1]) + body[1:]
    if fault == "short_length":
        body = body[: len(body) // 2]
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
        head = b"\r\n".join([lines[0], b"Content-Length: %d" % len(body), *lines[1:]])
    client.sendall(head)
    if fault == "drip":
        step = max(1, len(body) // 8)
        for at in range(0, len(body), step):
            client.sendall(body[at : at + step])
            proxy.ended.wait(0.02)
        return True
    if fault in ("truncated", "reset"):
        client.sendall(body[: len(body) // 2])
        if fault == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False
    client.sendall(body)
    return True
