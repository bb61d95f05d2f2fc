"""LitData's chunks: a folder with ``index.json`` and files, each with a table of where its samples are.

What a sample looks like is told by the index: a tree of dictionaries, lists and tuples, and how each leaf is stored.
Chunks come in four layouts: samples as they are; packed with zstd as a whole; in frames of zstd, which the head of the
chunk tells; each sample a frame. Where samples are texts and numbers alone, a chunk has none, and an Arrow table
behind it has them all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.formats.arrow import ARROW, Pieces, RecordBatches, explained, to_samples
from fastloader.formats.indexes import Ranges, read_ranges
from fastloader.formats.litdata_index import Chunk, Config, Node, load_index
from fastloader.formats.litdata_values import decoder_of, numbers
from fastloader.formats.mds import is_there, origins_of
from fastloader.formats.objects import Files, Object
from fastloader.formats.records import Kept, Names, Records
from fastloader.formats.unpacked import MOST_BYTES, Unpacked, unzstd, zstd_size
from fastloader.types import Sample

FRAMED, ROWS = b"LDFZ01\0\0", b"LDARW01\0"
_FRAMED_HEAD = struct.Struct("<8sHHIII")
_FRAME = np.dtype([("first", "<u4"), ("count", "<u4"), ("offset", "<u8"), ("packed", "<u4"), ("size", "<u4")])


@dataclass(frozen=True)
class Opened:
    """A chunk: where its samples are, or the table that has them."""

    source: Object
    ranges: Ranges
    rows: Pieces | None = None


class LitData(Records):
    """Samples with the names that the index tells; ``wanted`` are those of interest."""

    format = "litdata"

    def __init__(self, indexes: Files, wanted: Names = None) -> None:
        numbers = range(len(indexes.paths))
        self._chunks = [chunk for found in indexes.each(lambda n: load_index(indexes[n]), numbers) for chunk in found]
        if not self._chunks:
            raise FormatError("names no chunks", path=indexes.paths[0])
        super().__init__(Files(tuple(chunk.path for chunk in self._chunks), indexes.places))
        self._indexes = indexes.paths
        self._kept = Kept()
        first = self._chunks[0].config
        for chunk in self._chunks[1:]:
            other = chunk.config
            if (other.names, other.parts, other.stored) != (first.names, first.parts, first.stored):
                raise FormatError(f"has other samples than {self._chunks[0].path}", path=chunk.path)
        more = dict.fromkeys(name for chunk in self._chunks for name in chunk.config.more)
        self._names = first.names + (tuple(more) if more and self.file(0).rows is not None else ())
        self._check(first, indexes.paths[0], wanted)

    def _check(self, config: Config, path: str, wanted: Names) -> None:
        """Whether leaves can be read. Those of fields that are not wanted need not be, nor what tables have."""
        for name in config.names if wanted is None else wanted:
            if name in config.names:
                node, at = config.leaves(name)
                faults = [one for one in map(decoder_of, config.stored[at : at + node.leaves]) if isinstance(one, str)]
                if faults and not (config.in_rows and self.file(0).rows is not None):
                    raise FormatError(f"field {name!r} {faults[0]}", path=path, hint="fields= leaves it out")

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of samples; the numbers of their parts, where they are lists; ``data``, where they are values."""
        return self._names

    @property
    def starts(self) -> Any:
        """From the index alone."""
        return np.cumsum([0, *(chunk.samples for chunk in self._chunks)], dtype=np.int64)

    def shared_bytes(self) -> list[int]:
        """From the index alone; what is packed is read whole, and kept unpacked in memory."""
        return [chunk.bytes for chunk in self._chunks if chunk.zipped is None]

    def origins(self) -> list[str]:
        """Of indexes and chunks, in the form in which each is read."""
        return origins_of(self.files, self._indexes, [chunk.zipped for chunk in self._chunks])

    def begin(self, number: int) -> Opened:
        """A chunk, unpacked if need be, and where its samples are."""
        chunk = self._chunks[number]
        source = self._opened(number, chunk)
        header = 4 * (chunk.samples + 2)
        # Until LitData 0.2.30 or so, the header was not counted.
        if source.size not in (chunk.bytes, chunk.bytes + header):
            raise FormatError(f"has {source.size} bytes, and the index says {chunk.bytes}", path=source.path)
        if chunk.config.framed and source.size >= 8 and source.read(0, 8) == FRAMED:
            return self._framed(chunk, source)
        head = np.frombuffer(source.read(0, min(header, source.size) // 4 * 4), "<u4").astype(np.int64)
        if len(head) != chunk.samples + 2 or head[0] != chunk.samples:
            said = int(head[0]) if len(head) else -1
            raise FormatError(f"at offset 0: {said} samples, and the index says {chunk.samples}", path=source.path)
        if chunk.config.in_rows and (table := _table(source)) is not None:
            return Opened(source, _ranges(head[1:], header, source, 4), self._rows(chunk, source, table))
        return Opened(source, _ranges(head[1:], header, source, 4))

    def _opened(self, number: int, chunk: Chunk) -> Object:
        if chunk.zipped is None or is_there(self.files.places, chunk.path):
            return self.source(number)
        source = self.files.places.open(chunk.zipped)
        codec = str(chunk.config.codec).partition(":")[0]
        try:
            size = zstd_size(source.read(0, min(18, source.size))) if codec == "zstd" else chunk.bytes
        except ValueError as error:
            raise FormatError(f"can't be unpacked: {error}", path=source.path) from error
        return Unpacked(self._kept, source, size, codec)

    def _framed(self, chunk: Chunk, source: Object) -> Opened:
        """The table of frames. What lies in them has places as if they were unpacked one behind the other."""
        begin = _FRAMED_HEAD.size
        _, version, _, count, _, frames = (
            _FRAMED_HEAD.unpack(source.read(0, begin)) if source.size >= begin else [0] * 6
        )
        end = begin + 4 * (count + 1) + _FRAME.itemsize * frames
        if version != 1 or count != chunk.samples or end > source.size:
            raise FormatError(f"at offset 0: {count} samples in frames, and the index says {chunk.samples}",
                              path=source.path)  # fmt: skip
        head = source.read(begin, end - begin)
        table = np.frombuffer(head, _FRAME, offset=4 * (count + 1))
        unpacked = Frames(self._kept, source, table)
        offsets = np.frombuffer(head, "<u4", count + 1).astype(np.int64)
        bounds = np.append(table["first"], count).astype(np.int64)
        ends = np.clip(table["offset"], 0, MOST_BYTES).astype(np.int64) + table["packed"]
        if (
            (np.diff(bounds) != table["count"]).any() or bounds[0] or (bounds > count).any()
            or (ends > source.size).any() or (offsets[bounds] != unpacked.starts).any()
        ):  # fmt: skip
            raise FormatError(f"at offset {begin}: its table of frames is broken", path=source.path)
        return Opened(unpacked, _ranges(offsets, 0, unpacked, begin))

    def _rows(self, chunk: Chunk, source: Object, table: Part) -> Pieces:
        with explained(source.path):
            found = RecordBatches(table)
        if found.starts[-1] != chunk.samples:
            raise FormatError(
                f"a table of {found.starts[-1]} rows, and the index says {chunk.samples}", path=source.path
            )
        return found

    def count(self, file: Opened) -> int:
        """One a range."""
        return len(file.ranges)

    def samples(self, number: int, file: Opened, rows: Sequence[int], names: Names) -> list[Sample]:
        """Decoded, or rows of the table."""
        wanted = names or self._names
        if file.rows is not None:
            return self._of_table(number, file.rows, rows, wanted)
        config, found = self._chunks[number].config, []
        fields = [(name, *config.leaves(name)) for name in wanted if name in config.names]
        for row, data in zip(rows, read_ranges(file.source, file.ranges[rows]), strict=True):
            try:
                sample = self._decoded(config, data, fields)
            except (ValueError, TypeError, struct.error, RecursionError, kernels.Failure) as error:
                said = error.args[1] if isinstance(error, kernels.Failure) else error
                offset = int(file.ranges[row, 0])
                raise FormatError(f"record {row} at offset {offset}: {said}", path=file.source.path) from error
            found.append({name: sample.get(name) for name in wanted})
        return found

    def _decoded(self, config: Config, data: memoryview, fields: Sequence[tuple[str, Node, int]]) -> Sample:
        if config.packed:
            data = unzstd(data, zstd_size(data))
        leaves = [data] if config.tokens else _leaves(data, len(config.stored))
        found = {}
        for name, node, at in fields:
            values = zip(config.stored[at:], leaves[at:], strict=True)
            value = node.built(_values(name, islice(values, node.leaves)))
            found[name] = numbers(config.stored[at], leaves[at], value) if node.kind is None else value
        return found

    def _of_table(self, number: int, table: Pieces, rows: Sequence[int], names: Sequence[str]) -> list[Sample]:
        """Rows of record batches, each read once. What a chunk lacks is missing."""
        there = tuple(name for name in names if name in table.names)
        wanted, found = np.asarray(rows, np.int64), [dict.fromkeys(names) for _ in rows]
        pieces = np.searchsorted(table.starts, wanted, "right") - 1
        for piece in dict.fromkeys(pieces.tolist() if there else ()):
            with explained(self.paths[number], piece):
                batch = self._kept.get((number, piece, there), partial(table.loaded, piece, there))
                at = np.flatnonzero(pieces == piece)
                samples = to_samples(batch, wanted[at] - table.starts[piece], there)
            for place, sample in zip(at.tolist(), samples, strict=True):
                found[place].update(sample)
        return found


def _values(name: str, leaves: Iterator[tuple[str, memoryview]]) -> Iterator[Any]:
    for stored, leaf in leaves:
        decode = decoder_of(stored)
        try:
            if isinstance(decode, str):
                raise ValueError(f"it {decode}")
            yield decode(leaf)
        except (ValueError, TypeError, struct.error, IndexError, RecursionError) as error:
            raise ValueError(f"field {name!r} is no {stored}: {error}") from error


def _leaves(data: memoryview, count: int) -> list[memoryview]:
    """The parts of a sample, whose sizes stand before them."""
    if len(data) < 4 * count:
        raise ValueError(f"{len(data)} bytes are too few for {count} sizes")
    ends = np.cumsum([4 * count, *np.frombuffer(data, "<u4", count).tolist()]).tolist()
    if ends[-1] != len(data):
        raise ValueError(f"its parts end at {ends[-1]}, and it has {len(data)} bytes")
    return [data[begin:end] for begin, end in pairwise(ends)]


def _ranges(offsets: NDArray[np.int64], begin: int, source: Object, at: int) -> Ranges:
    sizes = np.diff(offsets)
    if (sizes < 0).any() or offsets[0] != begin or offsets[-1] > source.size:
        bad = int(np.argmax(sizes < 0)) if (sizes < 0).any() else 0
        raise FormatError(f"at offset {at + 4 * bad}: its table of samples is broken", path=source.path)
    return np.stack([offsets[:-1], sizes], 1)


def _table(source: Object) -> Part | None:
    """The Arrow table behind a chunk, where there is one that has a footer."""
    if source.size < 12 + len(ARROW):
        return None
    size, mark = struct.unpack("<I8s", source.read(source.size - 12, 12))
    begin = source.size - 12 - size
    if mark != ROWS or begin < 0 or size < len(ARROW) or source.read(begin, len(ARROW)) != ARROW:
        return None
    return Part(source, begin, size)


class Part:
    """A part of an object, as one."""

    def __init__(self, source: Object, begin: int, size: int) -> None:
        self._source, self._begin = source, begin
        self.path, self.size, self.identity = source.path, size, source.identity

    def read(self, offset: int, size: int) -> bytes:
        """Of the part."""
        return self._source.read(self._begin + offset, size)


class Frames:
    """What frames of zstd stand for, one behind the other. Those unpacked are kept for a while."""

    def __init__(self, kept: Kept, source: Object, table: NDArray[Any]) -> None:
        self._kept, self._source, self._table = kept, source, table
        self.starts = np.cumsum([0, *table["size"].tolist()], dtype=np.int64)
        self.path, self.size, self.identity = source.path, int(self.starts[-1]), source.identity

    def read(self, offset: int, size: int) -> bytes:
        """Of all frames that have a part of it."""
        first = max(0, int(np.searchsorted(self.starts, offset, "right")) - 1)
        last = int(np.searchsorted(self.starts, offset + size, "left"))
        begin = int(self.starts[first])
        data = b"".join(map(self._frame, range(first, min(last, len(self._table)))))
        return data[offset - begin : offset - begin + size]

    def _frame(self, number: int) -> memoryview:
        frame = self._table[number]

        def unpack() -> tuple[memoryview, int]:
            packed = self._source.read(int(frame["offset"]), int(frame["packed"]))
            try:
                return unzstd(packed, int(frame["size"])), int(frame["size"])
            except kernels.Failure as failure:
                said = f"frame {number} at offset {frame['offset']}: {failure.args[1]}"
                raise FormatError(said, path=self.path) from failure

        return self._kept.get((self.path, number), unpack)
