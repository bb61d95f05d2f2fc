"""Files that are packed as a whole, as the bytes they stand for."""

from __future__ import annotations

import gzip
import io
import zlib

import numpy as np

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.formats.objects import Object
from fastloader.formats.records import Kept

_MAGIC = b"\x28\xb5\x2f\xfd"
MOST_BYTES = 1 << 32
"""That a frame of zstd may say it unpacks to: both formats packed so have offsets of 32 bits."""


class Unpacked:
    """A compressed file as the bytes it stands for, ``size`` of them, which are kept for a while."""

    def __init__(self, kept: Kept, source: Object, size: int, codec: str) -> None:
        self._kept, self._source, self._codec = kept, source, codec
        self.path, self.size, self.identity = source.path, size, source.identity

    def read(self, offset: int, size: int) -> bytes:
        """A part of what is kept."""
        data = self._kept.get(self.path, lambda: (self._unpack(), self.size))
        return bytes(data[offset : offset + size])

    def _unpack(self) -> memoryview:
        packed = self._source.read(0, self._source.size)
        try:
            if self._codec == "zstd":
                return unzstd(packed, self.size)
            if self._codec == "gz":
                with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
                    data = stream.read(self.size + 1)
                if len(data) != self.size:
                    raise FormatError(f"unpacks to other than {self.size} bytes", path=self.path)
                return memoryview(data)
        except (kernels.Failure, OSError, EOFError, zlib.error) as error:
            raise FormatError(f"can't be unpacked: {error}", path=self.path) from error
        raise FormatError(
            f"is packed with {self._codec!r}; zstd and gz can be unpacked here", path=self.path,
            hint="unpack the shards beside their packed forms",
        )  # fmt: skip


def unzstd(packed: bytes | memoryview, size: int) -> memoryview:
    """A frame of zstd, which must unpack to ``size`` bytes."""
    out = np.empty(size, np.uint8)
    kernels.decompress(packed, kernels.ZSTD, out)
    return out.data


def zstd_size(head: bytes | memoryview) -> int:
    """How many bytes a frame of zstd unpacks to, told from its first 18."""
    if bytes(head[:4]) != _MAGIC or len(head) < 6:
        raise ValueError("no frame of zstd is there")
    about = head[4]
    single = about >> 5 & 1
    at = 5 + (1 - single) + (0, 1, 2, 4)[about & 3]
    width = (single, 2, 4, 8)[about >> 6]
    if not width or len(head) < at + width:
        raise ValueError("the frame of zstd does not tell its size")
    size = int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)
    if size > MOST_BYTES:
        raise ValueError(f"the frame of zstd claims {size} bytes")
    return size
