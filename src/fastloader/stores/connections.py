"""Connections of this process to servers without TLS: what is asked over them, and a thread that hands out what comes.

The native client (``native/net``) fetches ranges into memory that is used again. It takes exact answers alone;
``stores.direct`` says what is asked, and what happens otherwise.
"""

from __future__ import annotations

import atexit
import ipaddress
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastloader import kernels
from fastloader.stores import client
from fastloader.types import Buffer

_FOREVER = 3_600_000
"""Milliseconds."""
_PATIENCE = 5.0
NAMES_HOLD, NAMES_FAILED = 60.0, 5.0
"""Seconds after which a name is looked up again: one that was found, and one that was not."""


class Reply(NamedTuple):
    """What came of a request: ``body`` if it is what was asked for, else what is ``wrong``."""

    ticket: int
    status: int
    wrong: str
    unheard: bool
    body: Buffer | None
    total: int
    etag: str
    modified: str


@dataclass(slots=True)
class _Server:
    number: int
    addresses: list[tuple[str, int]]
    until: float


class Connections:
    """Those of this process."""

    def __init__(self) -> None:
        client.event_loop()  # it ends behind the thread, which may want it
        self._lock = threading.Lock()
        self._client: kernels.NetClient | None = kernels.NetClient()
        self._waiting: dict[int, Callable[[Reply], None]] = {}
        self._servers: dict[tuple[str, int], _Server] = {}
        self._looking: set[tuple[str, int]] = set()
        self._unknown: dict[tuple[str, int], float] = {}  # names that were not found, and until when nobody asks again
        self._thread = threading.Thread(target=self._run, args=(self._client,), name="fastloader-net", daemon=True)
        self._thread.start()
        atexit.register(self._end, os.getpid())

    def ask(
        self, server: int, request: bytes, begin: int, size: int, at_most: bool, told: Callable[[Reply], None]
    ) -> int | None:
        """Send a request, and have its reply told by a thread; ``None`` at the end of the program."""
        with self._lock:
            if self._client is None:
                return None
            ticket = self._client.ask(server, request, begin, size, at_most)
            self._waiting[ticket] = told
        return ticket

    def call_off(self, ticket: int) -> None:
        """Nobody waits for it any more: it is told no more."""
        with self._lock:
            if self._waiting.pop(ticket, None) is not None and self._client is not None:
                self._client.call_off(ticket)

    def server(self, host: str, port: int) -> int | None:
        """Its number, or ``None`` until its name was looked up, which nobody waits for."""
        known = self._servers.get((host, port))
        if known is not None and time.monotonic() < known.until:
            return known.number
        try:
            ipaddress.ip_address(host)
        except ValueError:
            self._look_up(host, port)
        else:
            self._keep(host, port, [(host, port)], float("inf"))
        known = self._servers.get((host, port))
        return None if known is None else known.number

    def _look_up(self, host: str, port: int) -> None:
        with self._lock:
            if (host, port) in self._looking or time.monotonic() < self._unknown.get((host, port), 0.0):
                return
            self._looking.add((host, port))
        try:
            threading.Thread(target=self._find, args=(host, port), name="fastloader-names", daemon=True).start()
        except RuntimeError:  # no thread is to be had
            self._looking.discard((host, port))

    def _find(self, host: str, port: int) -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [str(place[0]) for family, _, _, _, place in found if "%" not in str(place[0])]
        except (OSError, UnicodeError):
            addresses = []
        if addresses:
            self._keep(host, port, [(one, port) for one in dict.fromkeys(addresses)], time.monotonic() + NAMES_HOLD)
        else:
            self._unknown[host, port] = time.monotonic() + NAMES_FAILED
        self._looking.discard((host, port))

    def _keep(self, host: str, port: int, addresses: list[tuple[str, int]], until: float) -> None:
        with self._lock:
            if self._client is None:
                return
            known = self._servers.get((host, port))
            if known is None:
                self._servers[host, port] = _Server(self._client.add_server(addresses), addresses, until)
                return
            if sorted(known.addresses) != sorted(addresses):  # else its connections stay as they are
                self._client.move_server(known.number, addresses)
                known.addresses = addresses
            known.until = until

    def _run(self, native: kernels.NetClient) -> None:
        while self._hand_out(native.take(_FOREVER)):
            pass

    def _hand_out(self, came: list[Any]) -> bool:
        """Tell who asked. Afterwards neither they nor what came are held: the next reply may be an hour away."""
        with self._lock:
            if self._client is None:
                return False
            replies = [(self._waiting.pop(one[0], None), Reply(*one)) for one in came]
        for told, reply in replies:
            if told is None:
                continue
            try:
                told(reply)
            except BaseException:  # of whoever was told; others are waiting
                sys.excepthook(*sys.exc_info())
        return True

    def counts(self) -> dict[str, int]:
        """Connections that are open, all that were opened, and bytes of memory kept for later."""
        native = self._client
        if native is None:
            return {}
        return {"open": native.connections, "opened": native.opened, "idle_bytes": native.idle_bytes}

    def abandon(self) -> None:
        """In a forked child: these are the parent's."""
        if self._client is not None:
            self._client.abandon()

    def _end(self, process: int) -> None:
        if process != os.getpid():
            return
        with self._lock:
            native, self._client = self._client, None
            self._waiting.clear()
        if native is not None:
            native.wake()
            self._thread.join(_PATIENCE)


_connections: Connections | None = None
_making = threading.Lock()


def _after_fork() -> None:
    global _connections, _making
    if _connections is not None:
        _connections.abandon()
    _connections, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def connections() -> Connections:
    """Those of this process."""
    global _connections
    if _connections is None:
        with _making:
            if _connections is None:
                _connections = Connections()
    return _connections
