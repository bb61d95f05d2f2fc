"""URLs of objects: ``s3://bucket/key``, ``gs://bucket/key``, ``az://container/key``, ``https://host/key``,
``memory://name/key``; everything else is a local path.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

SCHEMES = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "az", "abfss": "az",
    "http": "http", "https": "http", "memory": "memory", "file": "file",
}  # fmt: skip
"""What a URL may begin with, and the kind of store it means."""

_BUCKET = re.compile(r"[A-Za-z0-9._$:-]+")
"""What buckets and containers are called, of old and by Amazon's resource names; more than any of them allows today."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, slots=True)
class Location:
    """A URL taken apart: the kind of store, the URL of the bucket, and the key in it."""

    kind: str
    root: str
    key: str


def is_url(path: object) -> bool:
    """Whether this names an object in a store, not a local path."""
    return isinstance(path, str) and bool(_URL.match(path))


def parse_url(url: str) -> Location:
    """The parts of a URL; a ``ValueError`` says what is wrong with it."""
    match = _URL.match(url)
    if not match:
        raise ValueError(f"{url!r} is no URL: it begins with none of {', '.join(f'{s}://' for s in SCHEMES)}")
    scheme = match[1].lower()
    kind = SCHEMES.get(scheme)
    if kind is None:
        raise ValueError(f"{url!r}: no store for {scheme}://; there are {', '.join(f'{s}://' for s in SCHEMES)}")
    if kind == "file":
        return Location(kind, "file:///", unquote(url[match.end() :]))
    if kind == "http":
        parts = urlsplit(url)
        if not parts.netloc:
            raise ValueError(f"{url!r} names no host")
        if parts.query or parts.fragment:
            raise ValueError(f"{url!r}: a URL with a query can't be read by ranges; use one without")
        return Location(kind, f"{scheme}://{parts.netloc}", unquote(parts.path).strip("/"))
    bucket, _, key = url[match.end() :].partition("/")
    if not bucket:
        raise ValueError(f"{url!r} names no {'container' if kind == 'az' else 'bucket'}")
    if kind != "memory" and not _BUCKET.fullmatch(bucket.partition("@")[0] if kind == "az" else bucket):
        what = "container" if kind == "az" else "bucket"
        raise ValueError(f"{url!r}: {bucket!r} can't be the name of a {what}, which has letters, digits, '.' and '-'")
    if "@" in bucket and kind == "az":  # abfss://container@account.host/key
        container, _, host = bucket.partition("@")
        return Location(kind, f"abfss://{container}@{host}", key.strip("/"))
    return Location(kind, f"{kind}://{bucket}", key.strip("/"))


def local_path(path: str | os.PathLike[str]) -> str | None:
    """The local path that a path or a ``file://`` URL means; ``None`` for other URLs."""
    if not is_url(path):
        return os.fspath(path)
    location = parse_url(str(path))
    return location.key if location.kind == "file" else None
