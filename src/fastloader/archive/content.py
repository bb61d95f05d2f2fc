"""The content of a file in a shard."""

from __future__ import annotations

from fastloader import kernels
from fastloader.archive.encoding import DATA, IMAGE
from fastloader.formats.fld import FldFile, explain
from fastloader.types import key_text


def content_of(file: FldFile, row: int, path: bytes) -> memoryview:
    """A file's bytes, checked; without a copy where they are stored as they are."""
    try:
        if not file.is_missing(IMAGE, row):
            payload = file.payload(IMAGE, row)
            return payload[: kernels.jpeg_size(payload)]
        return file.payload(DATA, row)
    except kernels.Failure as failure:
        error = explain(failure, file.path)
        error.message = f"{key_text(path)!r}: {error.message}"
        raise error from failure
