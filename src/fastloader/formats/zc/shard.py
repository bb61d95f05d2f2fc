"""One ZCLD shard, opened: header and metadata are checked in full, so that no sample can lie outside the data."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError, NotFoundError
from fastloader.formats.zc import metadata
from fastloader.formats.zc.layout import HEADER, LENGTH, MAGIC, MAX_PADDING, VERSION, Header
from fastloader.stores import MappedFile

_DAMAGED = "the file is damaged; restore it from a copy"


class ZCShard:
    """A mapped file and where its samples lie: sample i is ``bytes[begins[i]:ends[i]]``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            mapped = MappedFile(path)
        except FileNotFoundError as error:
            missing = NotFoundError("there is no such file", path=path, hint="check the path")
            missing.errno = errno.ENOENT
            raise missing from error
        self.bytes = mapped.bytes
        self.size = mapped.size
        header = self._read_header()
        text = self._metadata_text(header)
        metadata_end = header.metadata_offset + LENGTH.size + len(text)
        self.data_begin = header.data_offset
        if header.metadata_offset >= header.data_offset:
            self.data_end = header.metadata_offset
        elif metadata_end <= header.data_offset <= self.size:
            self.data_end = self.size
        else:
            raise self._broken(
                f"has data from byte {header.data_offset} on; the metadata ends at byte {metadata_end}, "
                f"the file at byte {self.size}"
            )
        try:
            offsets, sizes = metadata.read(text)
        except FormatError as error:
            error.path, error.hint = str(path), error.hint or _DAMAGED
            raise
        self._check_bounds(offsets, sizes)
        offsets += header.data_offset
        self.begins = offsets
        self.ends = offsets + sizes
        last = int(self.ends.max(initial=header.data_offset))
        self._check_rest(max(last, metadata_end))
        self.identity = kernels.crc32c(text, kernels.crc32c(self.bytes[: HEADER.size]))
        """Tells this shard from another one of the same name: the checksum of header and metadata."""

    @property
    def num_samples(self) -> int:
        """How many samples the shard holds."""
        return len(self.begins)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The part of the file that holds the samples."""
        return self.bytes[self.data_begin : self.data_end]

    def _broken(self, what: str, *, sample: int | None = None, hint: str = _DAMAGED) -> FormatError:
        return FormatError(what, path=self.path, sample=sample, hint=hint)

    def _read_header(self) -> Header:
        head = self.bytes[: HEADER.size].tobytes()
        expected = MAGIC.to_bytes(4, "little")
        if head[:4] != expected:
            hint = f"it begins with {head[:4]!r}, not {expected!r}"
            raise self._broken("is no ZCLD shard" if head else "is empty", hint=hint if head else _DAMAGED)
        if len(head) < HEADER.size:
            raise self._broken(f"is truncated: the header takes {HEADER.size} bytes, the file has {len(head)}")
        _, version, metadata_offset, data_offset = HEADER.unpack(head)
        if version != VERSION:
            raise self._broken(
                f"has ZCLD version {version}; this fastloader reads version {VERSION}",
                hint="pip install -U fastloader" if version > VERSION else _DAMAGED,
            )
        if min(metadata_offset, data_offset) < HEADER.size:
            raise self._broken(
                f"has metadata at byte {metadata_offset} and data at byte {data_offset}; "
                f"the header takes the first {HEADER.size}"
            )
        return Header(metadata_offset, data_offset)

    def _metadata_text(self, header: Header) -> NDArray[np.uint8]:
        begin = header.metadata_offset + LENGTH.size
        if begin > self.size:
            raise self._broken(
                f"is truncated: the metadata begins at byte {header.metadata_offset}, the file has {self.size}"
            )
        (length,) = LENGTH.unpack(self.bytes[begin - LENGTH.size : begin].tobytes())
        if length > self.size - begin:
            raise self._broken(
                f"is truncated: {length} bytes of metadata begin at byte {begin}, the file has {self.size}"
            )
        return self.bytes[begin : begin + length]

    def _check_bounds(self, offsets: metadata.Numbers, sizes: metadata.Numbers) -> None:
        """Every sample lies in the data. Samples may share bytes, and there may be bytes between them."""
        room = self.data_end - self.data_begin
        outside = sizes > room - offsets  # the sum might not fit a number
        if outside.any():
            sample = int(outside.argmax())
            raise self._broken(
                f"offset {offsets[sample]} and size {sizes[sample]} lead outside the data, which is {room} bytes long",
                sample=sample,
            )

    def _check_rest(self, end: int) -> None:
        rest = self.size - end
        if rest > MAX_PADDING or self.bytes[end:].any():
            raise self._broken(f"has {rest} bytes behind byte {end}, where its samples and metadata end")
