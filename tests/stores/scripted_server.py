"""A server that says, byte for byte, what a test wants it to say."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

DATA = bytes((i * 7 + i // 251) % 256 for i in range(200_000))
"""What its object holds."""
MODIFIED = "Wed, 18 Nov 2026 02:00:00 GMT"
ETAG = '"abc"'

PAUSE, CLOSE, RESET, WAIT = object(), object(), object(), object()
"""In a script: let what was sent arrive, close, close as after a crash, be silent until the test ends."""

Script = Sequence[object]


@dataclass(frozen=True)
class Request:
    """One request: its text, the range it asks for, on which connection it came, and as which one there."""

    head: bytes
    begin: int
    end: int
    connection: int
    number: int


@dataclass
class Scripted:
    """Where it listens, and what it has seen."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    ended: list[int] = field(default_factory=list)
    """Connections that the other side has closed."""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Of it."""
        return f"http://127.0.0.1:{self.port}"


def good(request: Request, *more: str, data: bytes = DATA) -> bytes:
    """A right answer."""
    body = data[request.begin : request.end]
    lines = [
        "HTTP/1.1 206 Partial Content", f"Content-Length: {len(body)}", f"ETag: {ETAG}", f"Last-Modified: {MODIFIED}",
        f"Content-Range: bytes {request.begin}-{request.begin + len(body) - 1}/{len(data)}", *more,
    ]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextlib.contextmanager
def scripted_server(answer: Callable[[Request], Script], family: int = socket.AF_INET) -> Iterator[Scripted]:
    """Listen on this machine until the block ends; ``answer`` says what is sent for a request."""
    server = Scripted()
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    listener = socket.create_server((host, 0), family=family, backlog=512)
    server.port = listener.getsockname()[1]
    threads: list[threading.Thread] = []
    sockets: list[socket.socket] = []

    def serve(client: socket.socket, connection: int) -> None:
        with client, client.makefile("rb") as stream, contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in range(10**9):
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = stream.readline()
                    if not line:
                        server.ended.append(connection)
                        return
                    head += line
                asked = re.search(rb"(?i)\r\nrange: bytes=(\d+)-(\d+)\r\n", head)
                begin, end = (int(asked[1]), int(asked[2]) + 1) if asked else (0, 0)
                request = Request(head, begin, end, connection, number)
                server.requests.append(request)
                if not _send(server, client, answer(request)):
                    return

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                sockets.append(client)
                threads.append(threading.Thread(target=serve, args=(client, server.connections)))
                server.connections += 1
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield server
    finally:
        server.over.set()
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
        listener.close()
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _send(server: Scripted, client: socket.socket, script: Script) -> bool:
    """Whether the connection goes on."""
    for part in script:
        if isinstance(part, bytes):
            client.sendall(part)
        elif part is PAUSE:
            time.sleep(0.002)
        elif part is WAIT:
            server.over.wait(60)
            return False
        else:
            if part is RESET:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
    return True
