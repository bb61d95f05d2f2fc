"""Who may ask, and what every answer says: the server shows data to whoever started it, and to nobody else's pages."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "fastloader-view"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MEDIA_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
"""For what a dataset holds: should a browser ever take it for a page, that page can do nothing."""
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
# A cookie that is sent to this site alone does not come along when the first request was led here by another page.
# So the browser goes on from a page of ours.
_ENTER = '<!doctype html><meta charset="utf-8"><title>fastloader</title><script src="/static/enter.js"></script>'
_REFUSED = f"{_ENTER}<p>This viewer needs its token: open the address that <code>fastloader view</code> printed."
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        return False


class Guard:
    """Lets through requests that name this machine and, where there is a ``token``, that know it.

    A page elsewhere can let its own name point here ("DNS rebinding"): then the Host header is that name.
    """

    def __init__(self, app: ASGIApp, host: str, token: str | None) -> None:
        self._app = app
        self._token = token
        everywhere = host in ("0.0.0.0", "::", "")
        self._names = {*LOOPBACK, host.strip("[]").lower()}
        self._addresses = everywhere
        if everywhere:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = _host_name(headers.get("host", ""))
        if host not in self._names and not (self._addresses and _is_address(host)):
            return PlainTextResponse("This server does not go by that name.", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("There is nothing to change here.", 405, {"allow": "GET, HEAD"})
        path = scope["path"]
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and path != "/":
            return PlainTextResponse("This is for the viewer's own page.", 403)
        if self._token is None or path.startswith("/static/"):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if path == "/" and given:
            if not self._is_token(given):
                return HTMLResponse(_REFUSED, 401)
            cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            return HTMLResponse(_ENTER, headers={"set-cookie": cookie})
        return None if self._is_token(_cookie(headers)) else HTMLResponse(_REFUSED, 401)

    def _is_token(self, given: str) -> bool:
        assert self._token is not None
        return secrets.compare_digest(given.encode(), self._token.encode())


def _host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    name = header.rpartition("]")[0].removeprefix("[") if header.startswith("[") else header.partition(":")[0]
    return name.lower().rstrip(".")


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value
