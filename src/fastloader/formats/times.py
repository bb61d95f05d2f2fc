"""Times of files as archives keep them: nanoseconds since 1970 in 64 bits."""

from __future__ import annotations

from collections.abc import Callable

from fastloader.errors import FormatError
from fastloader.types import key_text

FIRST, LAST = -(2**63), 2**63 - 1


def kept_time(mtime: int, path: bytes, warn: Callable[[str], None] | None = None) -> int:
    """The time, or the nearest that can be kept. ``warn`` is told of that; where nobody listens, it is an error."""
    if FIRST <= mtime <= LAST:
        return mtime
    said = f"the time of {key_text(path)!r} is " + ("after 2262" if mtime > 0 else "before 1677")
    if warn is None:
        raise FormatError(f"{said}, and can't be kept", hint='"touch" gives it another')
    warn(f"{said}; kept as that year")
    return max(FIRST, min(LAST, mtime))
