"""Files as values: named, or open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def file_bytes(value: Any) -> Any:
    """What a file holds, where the value names one or is one that is open; bytes as bytes, anything else as it is."""
    if isinstance(value, str | os.PathLike):
        return Path(value).read_bytes()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if hasattr(value, "read"):
        data = value.read()
        if not isinstance(data, bytes):
            raise TypeError(f"a file of {type(data).__name__}; open it in binary mode")
        return data
    return value
