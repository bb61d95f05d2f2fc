"""A real server of Azure's blobs on this machine: azurite, from npm."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that azurite has, and its key, which is the same everywhere."""
PLACE = Path(__file__).parents[2] / "build" / "azurite"


def executable() -> Path | None:
    """Azurite, installed here by npm where it is not on the path; ``None`` without npm."""
    found = shutil.which("azurite-blob")
    mine = PLACE / "node_modules" / ".bin" / "azurite-blob"
    if found or mine.exists():
        return Path(found) if found else mine
    if shutil.which("npm") is None:
        return None
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    with (PLACE.parent / "azurite.lock").open("w") as lock:  # two runs of the tests may be here at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mine.exists():
            with tempfile.TemporaryDirectory(dir=PLACE.parent) as made:
                command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", made, "azurite@3"]
                subprocess.run(command, check=True, timeout=300, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
                shutil.rmtree(PLACE, ignore_errors=True)
                PLACE.mkdir()
                os.rename(Path(made) / "node_modules", PLACE / "node_modules")
    return mine


@contextlib.contextmanager
def azure_server(program: Path, folder: Path, container: str) -> Iterator[str]:
    """Run it for as long as the block lasts, with one container; gives the endpoint."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder), "--silent",
        "--skipApiVersionCheck", "--disableTelemetry",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    try:
        end = time.monotonic() + 120
        while True:
            try:
                _make_container(endpoint, container)
                break
            except urllib.error.HTTPError as error:
                if error.code != 409:  # it is there: a busy server was asked again before it had answered
                    raise
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.1)
        yield endpoint
    finally:
        process.kill()
        process.wait()


def _make_container(endpoint: str, name: str) -> None:
    headers = {"x-ms-date": f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S GMT}", "x-ms-version": "2021-08-06"}
    canonical = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
    text = f"PUT{chr(10) * 12}{canonical}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}", "Content-Length": "0"}
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", headers=headers, method="PUT")
    with urllib.request.urlopen(request, timeout=5) as reply:
        assert reply.status == 201
