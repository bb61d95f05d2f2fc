"""A proxy that spoils some of a server's answers, as networks and servers do.

Which ones is counted, not drawn: of the requests that a fault is for, every ``every``-th meets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

Fault = Literal[
    "500", "503", "429", "drip", "reset", "truncated", "short_length", "etag", "silence", "flip", "none"
]  # fmt: skip


@dataclass
class Proxy:
    """What it does, and what it has seen."""

    url: str = ""
    fault: Fault = "none"
    every: int = 1
    concerns: Callable[[str], bool] = lambda path: True
    silence: float = 30.0
    seen: int = 0
    spoilt: int = 0
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    def next_fault(self, method: str, path: str, span: str) -> Fault:
        """What happens to this request: only reads of ranges are spoilt."""
        self.requests.append((method, path, span))
        if method != "GET" or not span or self.fault == "none" or not self.concerns(path):
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
    loop = asyncio.new_event_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    proxy.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    open_tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_tasks.add(task)
        try:
            await _connection(proxy, reader, writer, str(parts.hostname), int(parts.port or 80))
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            await _end(writer)
            open_tasks.discard(task)

    async def main(ready: threading.Event) -> None:
        server = await asyncio.start_server(serve, sock=listener)
        ready.set()
        await ended.wait()
        server.close()
        for task in list(open_tasks):
            task.cancel()
        await asyncio.gather(*open_tasks, return_exceptions=True)

    ready = threading.Event()
    ended = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(main(ready)))
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()


async def _head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    return first, headers, raw


async def _connection(
    proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
) -> None:
    from_server, to_server = await asyncio.open_connection(host, port)
    try:
        while True:
            first, headers, raw = await _head(reader)
            method, path, _ = first.split(" ", 2)
            fault = proxy.next_fault(method, path, headers.get("range", ""))
            if fault in ("500", "503", "429"):
                said = f"HTTP/1.1 {fault} Spoilt\r\nContent-Length: 0\r\nRetry-After: 0\r\n\r\n"
                writer.write(said.encode())
                await writer.drain()
                continue
            to_server.write(raw)
            if "content-length" in headers:
                to_server.write(await reader.readexactly(int(headers["content-length"])))
            await to_server.drain()
            if fault == "silence":
                await asyncio.sleep(proxy.silence)
                return
            _, answer, head = await _head(from_server)
            size = 0 if method == "HEAD" else int(answer.get("content-length", 0))
            if answer.get("transfer-encoding") == "chunked":
                writer.write(head)
                await _chunks(from_server, writer)
                continue
            body = await from_server.readexactly(size)
            if not await _answer(proxy, fault, head, answer, body, writer):
                return
    finally:
        await _end(to_server)


async def _chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        line = await reader.readline()
        writer.write(line)
        writer.write(await reader.readexactly(int(line, 16) + 2))
        if int(line, 16) == 0:
            await writer.drain()
            return


async def _answer(
    proxy: Proxy, fault: Fault, head: bytes, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
) -> bool:
    """Pass an answer on, spoilt or not; whether the connection goes on."""
    if fault == "etag":
        head = head.replace(headers["etag"].encode(), b'"' + b"0" * 32 + b'"')
    if fault == "flip" and body:
        body = bytes([body[0] ^ 1]) + body[1:]
    if fault == "short_length":
        body = body[: len(body) // 2]
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
        head = b"\r\n".join([lines[0], b"Content-Length: %d" % len(body), *lines[1:]])
    writer.write(head)
    if fault == "drip":
        step = max(1, len(body) // 8)
        for at in range(0, len(body), step):
            writer.write(body[at : at + step])
            await writer.drain()
            await asyncio.sleep(0.02)
        return True
    if fault in ("truncated", "reset"):
        writer.write(body[: len(body) // 2])
        await writer.drain()
        if fault == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return False
    writer.write(body)
    await writer.drain()
    return True
