"""Ranges of objects asked for over connections of our own, where the server has no TLS: S3 by an ``http://`` endpoint,
and ``http://`` itself.

obstore signs the URLs, so that credentials and addresses are its business. What comes back counts if it is exactly what
was asked for: a 206 with that range, that length, that version. All else, be it a redirect, a refusal, an answer in
chunks or a server that can't be reached, is asked again through obstore; where that happens again and again, everything
is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from fastloader.stores import client
from fastloader.stores.base import Stat
from fastloader.stores.connections import Reply, connections
from fastloader.types import byte_view

IN_A_ROW, REST = 8, 60.0
"""Failures one after another, after which this way is not gone for so many seconds; then it is tried once more."""
_VALID = 900
_RENEWED = 600.0
"""Seconds that a signature holds, and after which another is made."""
_KEPT = 4096
"""Signed URLs at most."""
_ORDINARY = {
    "access_key_id", "secret_access_key", "session_token", "token", "region", "default_region", "endpoint",
    "allow_http", "skip_signature", "virtual_hosted_style_request",
}  # fmt: skip
"""Options that are in a signed URL or mean nothing for it. With any other, obstore sends the requests."""
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_TOLD = {404, 412, 416}
"""Answers that say something of the object, and nothing against this way."""

Told = Callable[[tuple[memoryview, Stat] | None, BaseException | None], None]


class NotDirectError(Exception):
    """A range did not come this way. ``at_once``: it may be asked for in another without waiting first."""

    def __init__(self, why: str, *, at_once: bool) -> None:
        super().__init__(why)
        self.at_once = at_once


class Direct:
    """Reads of one store. ``sign`` gives the URL of a key, or is ``None`` where none has to be signed."""

    def __init__(self, root: str, sign: Callable[[str], str] | None) -> None:
        self._root, self._sign = root, sign
        self._heads: dict[str, tuple[str, int, str, float]] = {}
        self._in_a_row = 0
        self._rests_until = 0.0

    @property
    def works(self) -> bool:
        """Whether it is worth a try."""
        if self._in_a_row < IN_A_ROW:
            return True
        if time.monotonic() < self._rests_until:
            return False
        self._in_a_row = IN_A_ROW - 1
        return True

    def _failed(self, count: int = 1) -> None:
        self._in_a_row += count
        if self._in_a_row >= IN_A_ROW:
            self._rests_until = time.monotonic() + REST

    def ask(
        self, key: str, begin: int, size: int, at_most: bool, version: str | None, told: Told
    ) -> Callable[[bool], None] | None:
        """Ask, and have it told, once, from another thread.

        Returns what calls it off, which is given whether that is because it took too long; ``None`` if this range
        can't be asked for so.
        """
        head = self._head(key) if self.works else None
        if head is None:
            return None
        host, port, prefix, _ = head
        try:
            mine = connections()
            server = mine.server(host, port)
        except Exception:  # no thread or no descriptor is to be had
            self._failed()
            return None
        if server is None:
            return None
        condition = ""
        if version is not None and version.startswith('"'):
            if not (version.isascii() and version.isprintable()):
                return None
            condition = f"If-Match: {version}\r\n"
        request = f"{prefix}Range: bytes={begin}-{begin + size - 1}\r\n{condition}\r\n".encode("ascii")

        def reply(came: Reply) -> None:
            try:
                found = self._found(key, came)
            except Exception as error:
                told(None, error)
            else:
                told(found, None)

        ticket = mine.ask(server, request, begin, size, at_most, reply)
        if ticket is None:
            return None

        def call_off(late: bool) -> None:
            if late:
                self._failed()
            mine.call_off(ticket)

        return call_off

    def _found(self, key: str, came: Reply) -> tuple[memoryview, Stat]:
        if came.body is not None:
            mtime = _seconds(came.modified)
            if mtime is not None:
                self._in_a_row = 0
                return byte_view(came.body), Stat(key, came.total, came.etag or None, mtime)
        elif came.status == 404 and self._sign is not None:  # else the URL is a guess of ours
            raise FileNotFoundError(key)
        if came.status not in _TOLD and not came.unheard:
            self._failed()
        if came.status == 403:  # its signature may have ended while the machine slept
            self._heads.pop(key, None)
        heard = 0 < came.status < 500 and came.status not in (408, 425, 429)
        why = came.wrong or "when the object was written is not told"
        raise NotDirectError(why, at_once=came.unheard or heard)

    def _head(self, key: str) -> tuple[str, int, str, float] | None:
        """Host, port, the first lines of a request for this object, and until when these may be used."""
        known = self._heads.get(key)
        if known is not None and time.monotonic() < known[3]:
            return known
        if any(part in ("", ".", "..") for part in key.split("/")):
            return None
        try:
            url = self._root + quote(key, safe="/!$&'()*,;=:@~-._") if self._sign is None else self._sign(key)
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or 80
        except Exception:  # obstore says what is wrong
            self._failed()
            return None
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        if parts.scheme != "http" or not host or "@" in parts.netloc or not _is_plain(parts.netloc + target):
            self._failed(IN_A_ROW)
            return None
        prefix = f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: fastloader\r\nAccept: */*\r\n"
        if len(self._heads) >= _KEPT:
            self._heads.clear()
        found = (host, port, prefix, time.monotonic() + _RENEWED)
        self._heads[key] = found
        return found


def direct_reads(kind: str, url: str, config: Mapping[str, Any], reader: Callable[[], Any]) -> Direct | None:
    """How a store's ranges are read without obstore; ``None`` where they are not. ``reader`` gives its client."""
    if any(os.environ.get(name) for name in _PROXIES):
        return None
    if kind == "http":
        return Direct(f"{url}/", None) if url.startswith("http://") and not config else None
    endpoint = str(config.get("endpoint") or "")
    if kind != "s3" or not endpoint.startswith("http://") or not set(config) <= _ORDINARY:
        return None
    if str(config.get("skip_signature", "")).lower() in ("true", "1", "yes", "on"):
        if "virtual_hosted_style_request" in config or "AWS_VIRTUAL_HOSTED_STYLE_REQUEST" in os.environ:
            return None
        return Direct(f"{endpoint.rstrip('/')}/{url.partition('://')[2]}/", None)
    if not (config.get("access_key_id") or os.environ.get("AWS_ACCESS_KEY_ID")):
        return None  # who has to ask others for a key can be kept waiting
    valid = timedelta(seconds=_VALID)
    return Direct("", lambda key: str(client.module().sign(reader(), "GET", key, expires_in=valid)))


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


@lru_cache(maxsize=4096)
def _seconds(modified: str) -> float | None:
    try:
        return parsedate_to_datetime(modified).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):  # whatever the server says
        return None
