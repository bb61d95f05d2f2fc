"""What bytes are, told from the bytes themselves: names and promises of a dataset are not believed.

Only types that a browser shows without running anything are ever named; all else is a download.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from fastloader.types import Buffer

BINARY = "application/octet-stream"
LARGEST_TEXT = 4 << 20
"""Bytes above this are not tried as text."""


class Media(NamedTuple):
    """How bytes are shown, and the type a browser is told."""

    kind: str
    type: str = BINARY


_BEGINNINGS = (
    (b"\xff\xd8\xff", Media("image", "image/jpeg")),
    (b"\x89PNG\r\n\x1a\n", Media("image", "image/png")),
    (b"GIF87a", Media("animation", "image/gif")),
    (b"GIF89a", Media("animation", "image/gif")),
    (b"fLaC", Media("sound", "audio/flac")),
    (b"ID3", Media("sound", "audio/mpeg")),
    (b"\xff\xfb", Media("sound", "audio/mpeg")),
    (b"\xff\xf3", Media("sound", "audio/mpeg")),
    (b"\xff\xf2", Media("sound", "audio/mpeg")),
    (b"\x93NUMPY", Media("array")),
)
_SOUND_BRANDS = (b"M4A ", b"M4B ")
_IN_OGG = (b"vorbis", b"OpusHead")


def sniff(data: Buffer) -> Media:
    """How these bytes are shown."""
    head = bytes(data[:512])
    for beginning, media in _BEGINNINGS:
        if head.startswith(beginning):
            return media
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return Media("image", "image/webp")
    if head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE":
        return Media("sound", "audio/wav")
    if head.startswith(b"OggS") and any(name in head for name in _IN_OGG):
        return Media("sound", "audio/ogg")
    if head[4:8] == b"ftyp":
        return Media("sound", "audio/mp4") if head[8:12] in _SOUND_BRANDS else Media("video", "video/mp4")
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return Media("video", "video/webm" if b"webm" in head[:64] else "video/x-matroska")
    return _text(data) if len(data) <= LARGEST_TEXT and b"\0" not in head else Media("bytes")


def _text(data: Buffer) -> Media:
    whole = bytes(data)
    try:
        text = whole.decode()
    except UnicodeDecodeError:
        return Media("bytes")
    if text[:1] in "{[" and text:
        try:
            json.loads(text)
            return Media("json")
        except (ValueError, RecursionError):
            pass
    return Media("text")
