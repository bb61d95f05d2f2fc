"""Writing a ZCLD shard: samples as they come, then the metadata, then the header; published when all is there."""

from __future__ import annotations

import contextlib
import operator
import os
import warnings
from array import array
from pathlib import Path

import numpy as np

from fastloader.errors import SampleError
from fastloader.formats.zc import metadata
from fastloader.formats.zc.layout import DEFAULT_ALIGNMENT, HEADER, LENGTH, Header
from fastloader.publishing import Published
from fastloader.stores import AtomicFile
from fastloader.types import Buffer, byte_view

_TOGETHER = 1 << 20
_MAX_ALIGNMENT = 1 << 21


class ZCWriter(Published):
    """Writes one shard. The same samples give the same bytes; what is not closed is never seen at ``path``.

    Samples begin at multiples of ``alignment`` bytes, a power of two, counted from the start of the file, so that
    arrays can be laid over them; 1 packs them. Memory grows by 16 bytes a sample. For one thread at a time.
    """

    def __init__(self, path: str | os.PathLike[str], *, alignment: int = DEFAULT_ALIGNMENT) -> None:
        self._closed = True  # until everything below has worked
        alignment = operator.index(alignment)
        if not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
            raise ValueError(f"alignment={alignment}: a power of two from 1 to {_MAX_ALIGNMENT}")
        self._alignment = alignment
        self._offsets, self._sizes = array("q"), array("q")
        self._begin = self._end = self._aligned(HEADER.size)
        self._buffer = bytearray()
        self._file = AtomicFile(Path(os.path.realpath(path)))  # a link stays a link to what is replaced
        self._process = os.getpid()
        self._closed = False

    @property
    def num_samples(self) -> int:
        """Samples written so far."""
        return len(self._sizes)

    def write_sample(self, data: Buffer) -> int:
        """Add the bytes of any contiguous buffer or of any array, and give the sample's number."""
        if self._closed:
            raise ValueError("this writer is closed")
        view = self._bytes_of(data)
        begin = self._aligned(self._end)
        self._append(bytes(begin - self._end))
        self._append(view)
        self._offsets.append(begin - self._begin)
        self._sizes.append(len(view))
        return len(self._sizes) - 1

    def close(self) -> None:
        """Finish and publish. Where that fails, nothing is published."""
        if self._closed:
            return
        try:
            metadata_offset = self._end
            self._append(bytes(LENGTH.size))
            for piece in metadata.write(self._offsets, self._sizes):
                self._append(piece)
            self._flush()
            length = self._end - metadata_offset - LENGTH.size
            self._file.write_at(metadata_offset, LENGTH.pack(length))
            self._file.write_at(0, Header(metadata_offset, self._begin).pack())
            self._file.publish(self._end)
        except BaseException:
            self.abort()
            raise
        self._closed = True

    def abort(self) -> None:
        """Give up: nothing is published."""
        if not self._closed:
            self._closed = True
            self._file.discard()

    def __del__(self) -> None:
        if (
            not getattr(self, "_closed", True) and self._process == os.getpid()
        ):  # a forked child's copy is not the writer
            with contextlib.suppress(Exception):
                self.abort()
            warnings.warn("a ZCWriter was never closed; nothing was published", ResourceWarning, stacklevel=1)

    def _aligned(self, position: int) -> int:
        return -(-position // self._alignment) * self._alignment

    def _bytes_of(self, data: Buffer) -> memoryview:
        try:
            # Through numpy's own view also dtypes without a buffer format go, such as dates.
            view = byte_view(np.ascontiguousarray(data).view(np.uint8) if isinstance(data, np.ndarray) else data)
            return view if view.nbytes else memoryview(b"")
        except (TypeError, ValueError) as error:
            raise SampleError(
                f"a {type(data).__name__} has no bytes to store: {error}", path=self._file.path, sample=self.num_samples
            ) from error

    def _append(self, data: bytes | memoryview) -> None:
        """Put bytes behind what is there. Small ones wait in memory; large ones go to the file directly."""
        if len(self._buffer) + len(data) > _TOGETHER:
            self._flush()
        if len(data) > _TOGETHER:
            self._write(self._end, data)
        else:
            self._buffer += data
        self._end += len(data)

    def _flush(self) -> None:
        self._write(self._end - len(self._buffer), self._buffer)
        self._buffer.clear()

    def _write(self, offset: int, data: Buffer) -> None:
        try:
            self._file.write_at(offset, data)
        except BaseException:
            self.abort()  # what is written next would stand at the wrong place
            raise
