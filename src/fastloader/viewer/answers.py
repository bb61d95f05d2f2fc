"""Answers of the server: JSON, pictures, and stored files with the ranges a player asks for."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote_from_bytes

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fastloader.types import byte_view, key_bytes
from fastloader.viewer.guard import MEDIA_POLICY
from fastloader.viewer.media import BINARY, sniff

KEEP = "private, max-age=3600"
"""For answers whose address names the dataset's state."""
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_PIECE = 1 << 20
_ENDINGS = {
    "image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp", "audio/flac": "flac",
    "audio/mpeg": "mp3", "audio/wav": "wav", "audio/ogg": "ogg", "audio/mp4": "m4a", "video/mp4": "mp4",
    "video/webm": "webm", "video/x-matroska": "mkv",
}  # fmt: skip


def answer(value: Any, status: int = 200, keep: bool = False) -> Response:
    """JSON in ASCII."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    headers = {"cache-control": KEEP} if keep else {}
    return Response(text.encode("ascii"), status, headers, "application/json")


def picture(data: bytes) -> Response:
    """A picture that was made here."""
    kind = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
    return Response(data, media_type=kind, headers={"cache-control": KEEP, "content-security-policy": MEDIA_POLICY})


def stored(request: Request, data: Any, name: str) -> Response:
    """Bytes as they are stored, under a type that runs nothing, or a part of them where a range is asked for."""
    view = byte_view(data)
    kind = sniff(view).type
    shown = "attachment" if kind == BINARY else "inline"
    file = quote_from_bytes(key_bytes(f"{name}.{_ENDINGS.get(kind, 'bin')}"), safe="")
    headers = {
        "content-type": kind, "accept-ranges": "bytes", "content-security-policy": MEDIA_POLICY,
        "content-disposition": f"{shown}; filename*=UTF-8''{file}", "cache-control": KEEP,
    }  # fmt: skip
    size = len(view)
    try:
        begin, end = _asked(request.headers.get("range"), size)
    except ValueError:
        return Response(status_code=416, headers=headers | {"content-range": f"bytes */{size}"})
    partial = (begin, end) != (0, size) or "range" in request.headers
    headers["content-length"] = str(end - begin)
    if partial:
        headers["content-range"] = f"bytes {begin}-{end - 1}/{size}"
    return StreamingResponse(_pieces(view, begin, end), 206 if partial else 200, headers)


def _asked(header: str | None, size: int) -> tuple[int, int]:
    """The first byte of a range and the one behind its last; all bytes where none, or several, are asked for."""
    found = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if found is None or found.groups() == ("", "") or not size:
        if header is not None and (not size or found is not None):
            raise ValueError(header)
        return 0, size
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    begin, end = int(first), min(size, int(last) + 1) if last else size
    if begin >= size or begin >= end:
        raise ValueError(header)
    return begin, end


async def _pieces(view: memoryview, begin: int, end: int) -> AsyncIterator[bytes]:
    for at in range(begin, end, _PIECE):
        yield bytes(view[at : min(at + _PIECE, end)])
