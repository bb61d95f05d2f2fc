"""Writes one ``.fld`` file, front to back: data as it comes, then tables, directory and, last of all, the header."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.fields import Field
from fastloader.formats.file_content import FileContent
from fastloader.formats.fld.key_index import KeyIndexBuilder
from fastloader.formats.fld.layout import (
    CHECKSUMS_OF,
    DATA_BEGIN,
    DESCRIPTOR,
    DIRECTORY_HEAD,
    ENTRY,
    EXTENT,
    LIST_BLOCK,
    LIST_ROW,
    LONG_LIST,
    MAX_FIELDS,
    NAME_BYTES,
    NO_FIELD,
    NODE,
    PAGE,
    TABLE_ALIGNMENT,
    Entry,
    FieldFlags,
    Flags,
    Header,
    Kind,
    block_size_of,
    table_alignment,
)
from fastloader.formats.fld.spill import Spill, SpillFile
from fastloader.formats.fld.staging import PIECE, Staging
from fastloader.formats.fld.tree import Node, TreeBuilder
from fastloader.stores import AtomicFile
from fastloader.types import Buffer, byte_view

Payload: TypeAlias = Buffer | FileContent

_NO_LIMIT = (1 << 63) - 1
_AT_ONCE = 16 << 20
"""Bytes of a chunk that are laid out in memory at once; what is larger goes piece by piece."""


@dataclass(frozen=True)
class FieldSpec:
    """A field as it is to be written: its name, its class and options, its compression.

    ``arguments`` are the options as stored. They are asked for once, and must give the same field when read back.
    """

    name: str
    field: Field
    codec: int = 0
    level: int = 0
    arguments: bytes = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        encoded = self.name.encode()
        if not encoded or len(encoded) > NAME_BYTES or b"\0" in encoded:
            raise ValueError(f"field name {self.name!r}: 1 to {NAME_BYTES} bytes of UTF-8 without NUL")
        if not self.field.type_id:
            raise ValueError(f"field {self.name!r}: {type(self.field).__name__} has no type id; use @register_type(id)")
        if not self.field.has_payload and not self.field.metadata_type.itemsize:
            raise ValueError(
                f"field {self.name!r}: {type(self.field).__name__} stores nothing; give it a metadata_type or a payload"
            )
        object.__setattr__(self, "arguments", _storable_options(self.name, self.field))

    @property
    def flags(self) -> FieldFlags:
        """The descriptor's flags."""
        return FieldFlags.PAYLOAD if self.field.has_payload else FieldFlags(0)


def _storable_options(name: str, field: Field) -> bytes:
    """The field's options as bytes, tried out: whoever reads the file has only these."""
    try:
        arguments = field.to_binary()
        again = type(field).from_binary(arguments)
        same = again.to_binary() == arguments and again.has_payload == field.has_payload
        same = same and again.metadata_type == field.metadata_type
    except Exception as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"field {name!r}: the options of {field!r} can't be stored and read back: {error}") from error
    if not isinstance(arguments, bytes):
        raise TypeError(f"field {name!r}: to_binary() gives a {type(arguments).__name__}; it must give bytes")
    if not same:
        raise ValueError(f"field {name!r}: {field!r} would be read back as {again!r}; mind to_binary and from_binary")
    return arguments


@dataclass(slots=True)
class Column:
    """One field of a run of samples, encoded.

    ``payloads`` are buffers of bytes, or files yet to be read, one a sample; for a field that stores none it is empty,
    and so are ``raw_sizes`` and ``codecs``. ``dictionary`` is what some of them are compressed with.
    """

    metadata: NDArray[Any]
    valid: NDArray[np.bool_]
    payloads: Sequence[Payload]
    raw_sizes: NDArray[np.uint64]
    codecs: NDArray[np.uint8]
    dictionary: bytes | None = None


@dataclass(slots=True)
class Chunk:
    """A run of samples, encoded and ready to be placed.

    ``nodes`` are those of an archive, each with the number of samples of the chunk that come before it; ``None``: it
    is no archive. ``weights`` are bytes that count for the size of a shard in place of those that are stored, where
    the shards are to be known before anything is encoded.
    """

    count: int
    columns: list[Column]
    keys: list[bytes] | None
    nodes: Sequence[tuple[int, Node]] | None = None
    weights: NDArray[np.int64] | None = None


class FldBuilder:
    """One file under construction. ``first_sample`` is what errors call its first sample."""

    def __init__(
        self, path: Path, specs: Sequence[FieldSpec], page_size: int, *, keys: bool, data_limit: int | None = None,
        first_sample: int = 0,
    ) -> None:  # fmt: skip
        if len(specs) > MAX_FIELDS:
            raise ValueError(f"{len(specs)} fields; at most {MAX_FIELDS}")
        self.num_samples = 0
        self._specs = specs
        self._with_payload = [i for i, spec in enumerate(specs) if spec.field.has_payload]
        self._page_size = page_size
        self._limit = _NO_LIMIT if data_limit is None else DATA_BEGIN + data_limit
        # Samples without payload bytes, such as those of numbers alone, take no data; what counts is their table rows.
        row_size = sum(s.field.metadata_type.itemsize + s.field.has_payload * EXTENT.itemsize for s in specs)
        self._bare_room = _NO_LIMIT if data_limit is None else max(1, data_limit // row_size)
        self._weight_room = _NO_LIMIT if data_limit is None else data_limit
        self._cursor = (DATA_BEGIN, 0, 0)
        self._file = AtomicFile(path)
        self._at = DATA_BEGIN
        self._staging = Staging(self._file, DATA_BEGIN)
        self._spills = spills = SpillFile(path)
        self._extents = {i: spills.column() for i in self._with_payload}
        self._metadata = {i: spills.column() for i, s in enumerate(specs) if s.field.metadata_type.itemsize}
        self._validity = [_Bits(spills.column()) for _ in specs]
        self._pages = spills.column()
        self._page_first = [0]  # first samples of the pages begun but not yet in the table
        self._keys = KeyIndexBuilder(spills, first_sample) if keys else None
        self._tree: TreeBuilder | None = None
        self._compressed = False
        self._dictionaries: dict[int, bytes] = {}
        self._entries: list[Entry] = []
        self._tail = bytearray()  # tables not written yet
        self._data_ended = False

    @property
    def data_size(self) -> int:
        """Bytes of data so far, padding included."""
        return self._cursor[0] - DATA_BEGIN

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing yet."""
        return not self.num_samples and (self._tree is None or not self._tree.count)

    def append(self, chunk: Chunk, first: int = 0) -> int:
        """Write the chunk's samples from ``first`` on, as many as the limit allows; returns how many."""
        if chunk.nodes is not None:
            self._tree = self._tree or TreeBuilder(self._spills)
        count = self._append_samples(chunk, first)
        if self._tree is not None and chunk.nodes:
            last = first + count
            self._tree.append([node for at, node in chunk.nodes if first <= at < last or at == last == chunk.count])
        return count

    def _append_samples(self, chunk: Chunk, first: int) -> int:
        columns = [chunk.columns[i] for i in self._with_payload]
        count = chunk.count - first
        sizes = np.zeros((count, len(columns)), np.uint64)
        for j, column in enumerate(columns):
            sizes[:, j] = np.fromiter(map(len, column.payloads[first:]), np.uint64, count)
        weights = None if chunk.weights is None else np.cumsum(chunk.weights[first:])
        bare = np.cumsum(~sizes.any(axis=1))
        if weights is None:
            count, limit = int(np.searchsorted(bare, self._bare_room, "right")), self._limit
        else:
            least = min(count, int(self.num_samples == 0))  # a shard has one sample, however large
            count, limit = max(least, int(np.searchsorted(weights, self._weight_room, "right"))), _NO_LIMIT
        if count == 0:
            return 0
        sizes = sizes[:count]
        offsets = np.zeros_like(sizes)
        starts = np.zeros(count, np.uint64)
        if columns:
            count, self._cursor = kernels.place(
                sizes, len(columns), self._page_size, limit, self._cursor, offsets, starts
            )
        else:
            starts[:] = self._cursor[0]
        self._bare_room -= int(bare[count - 1]) if count else 0
        self._weight_room -= int(weights[count - 1]) if count and weights is not None else 0
        last = first + count
        offsets, sizes = offsets[:count], sizes[:count]
        crcs = self._write_data([c.payloads[first:last] for c in columns], offsets)
        for j, i in enumerate(self._with_payload):
            rows = np.zeros(count, EXTENT)
            column = chunk.columns[i]
            valid = column.valid[first:last]
            rows["pointer"] = np.where(valid, offsets[:, j], 0)
            rows["size"] = sizes[:, j]
            rows["raw_size"] = column.raw_sizes[first:last]
            rows["crc"] = crcs[:, j]
            rows["codec"] = column.codecs[first:last]
            self._compressed |= bool(rows["codec"].any())
            if column.dictionary is not None and (rows["codec"] == kernels.ZSTD_DICTIONARY).any():
                self._dictionaries[i] = column.dictionary
            self._extents[i].append(rows.view(np.uint8))
        for i, spill in self._metadata.items():
            spill.append(np.ascontiguousarray(chunk.columns[i].metadata[first:last]).view(np.uint8))
        for bits, column in zip(self._validity, chunk.columns, strict=True):
            bits.append(column.valid[first:last])
        if self._keys is not None and chunk.keys is not None:
            self._keys.append(chunk.keys[first:last])
        self._note_pages(starts[:count])
        self.num_samples += count
        return count

    def _write_data(self, payloads: list[Sequence[Payload]], offsets: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Lay the payloads out in sample order, checksum them on the way, and hand them on to be written."""
        crcs = np.zeros(offsets.shape, np.uint32)
        length = self._cursor[0] - self._at
        if length > _AT_ONCE or any(isinstance(one, FileContent) for parts in payloads for one in parts):
            self._write_pieces(payloads, offsets, crcs)
        elif length:
            by_sample = zip(*payloads, strict=True)
            parts = payloads[0] if len(payloads) == 1 else [part for sample in by_sample for part in sample]
            whole = cast("list[Buffer]", parts)
            kernels.assemble(whole, offsets.reshape(-1), self._at, self._staging.room(length), crcs.reshape(-1))
            self._at += length
        return crcs

    def _write_pieces(
        self, payloads: list[Sequence[Payload]], offsets: NDArray[np.uint64], crcs: NDArray[np.uint32]
    ) -> None:
        """The same where a payload is large, perhaps a file: memory then holds a piece of it at a time."""
        end = self._cursor[0]
        for sample, places in enumerate(offsets.tolist()):
            for column, (parts, place) in enumerate(zip(payloads, places, strict=True)):
                payload = parts[sample]
                if not len(payload):
                    continue
                self._staging.room(place - self._at)[:] = 0
                crc = 0
                for piece in self._staged(payload):
                    crc = kernels.crc32c(piece, crc)
                crcs[sample, column] = crc
                self._at = place + len(payload)
        self._staging.room(end - self._at)[:] = 0
        self._at = end

    def _staged(self, payload: Payload) -> Iterator[NDArray[np.uint8]]:
        """A payload as it lies on its way to the file. A file is read right there: what is checksummed is written."""
        if isinstance(payload, FileContent):
            yield from payload.pieces(self._staging.room)
            return
        view = byte_view(payload)
        for begin in range(0, len(view), PIECE):
            piece = np.frombuffer(view[begin : begin + PIECE], np.uint8)
            room = self._staging.room(len(piece))
            room[:] = piece
            yield room

    def _note_pages(self, starts: NDArray[np.uint64]) -> None:
        """Extend the allocation table: a page's first sample is the first whose record begins on it or later."""
        pages = starts // np.uint64(self._page_size)
        known = self._pages.size // PAGE.itemsize + len(self._page_first)
        if len(pages) and pages[-1] >= known:
            fresh = np.arange(known, int(pages[-1]) + 1, dtype=np.uint64)
            self._page_first += (np.searchsorted(pages, fresh, "left") + self.num_samples).tolist()
        self._flush_pages(self._page_first)
        self._page_first = self._page_first[-1:]

    def _flush_pages(self, firsts: list[int]) -> None:
        rows = np.zeros(len(firsts) - 1, PAGE)
        rows["first_sample"] = firsts[:-1]
        rows["num_samples"] = np.diff(firsts)
        self._pages.append(rows.view(np.uint8))

    def finish(self) -> tuple[int, int]:
        """Write the tables and the header and publish the file. Returns its size and its identity."""
        self._end_data()
        for i, spill in self._extents.items():
            self._write_table(Kind.EXTENTS, i, EXTENT.itemsize, spill.chunks(PIECE))
        for i, spill in self._metadata.items():
            width = self._specs[i].field.metadata_type.itemsize
            self._write_table(Kind.METADATA, i, width, spill.chunks(PIECE))
        for i, dictionary in sorted(self._dictionaries.items()):
            self._write_table(Kind.DICTIONARY, i, 1, [dictionary])
        for i, bits in enumerate(self._validity):
            if bits.any_missing:
                self._write_table(Kind.VALIDITY, i, 1, bits.finish().chunks(PIECE))
        if self._keys is not None:
            self._write_table(Kind.KEY_OFFSETS, NO_FIELD, 8, self._keys.offsets())
            self._write_table(Kind.KEY_BYTES, NO_FIELD, 1, self._keys.key_bytes())
            self._write_table(Kind.KEY_SLOTS, NO_FIELD, 8, self._keys.slots())
        if self._tree is not None and self._keys is not None:
            self._write_table(Kind.KEY_ORDER, NO_FIELD, 8, self._keys.order())
            nodes, names = self._tree.tables()
            self._write_table(Kind.NODES, NO_FIELD, NODE.size, nodes)
            self._write_table(Kind.NODE_BYTES, NO_FIELD, 1, names)
        descriptors = self._write_descriptors()
        metadata = self._align()
        rows = b"".join(entry.pack() for entry in self._entries)
        numbers = (len(self._entries), ENTRY.size)
        identity = kernels.crc32c(rows, kernels.crc32c(DIRECTORY_HEAD.pack(*numbers, 0)[:8]))
        self._append(DIRECTORY_HEAD.pack(*numbers, identity) + rows)
        pages = next(e for e in self._entries if e.kind == Kind.PAGES)
        flags = Flags.LITTLE_ENDIAN | Flags.CHECKSUMMED | (Flags.COMPRESSED if self._compressed else Flags(0))
        header = Header(
            self.num_samples, len(self._specs), self._page_size, descriptors, metadata, DATA_BEGIN, pages.offset, flags
        )
        self._flush()
        self._file.write_at(0, header.pack())
        self._file.publish(self._at)
        self.discard()
        return self._at, identity

    def _end_data(self) -> None:
        if self._data_ended:
            return
        self._data_ended = True
        self._staging.flush()
        self._entries.append(Entry(Kind.DATA, NO_FIELD, 0, 0, 0, DATA_BEGIN, self._at - DATA_BEGIN, 0, 0))
        self._finish_pages()

    def begin_table(self, kind: Kind, field: int, row_size: int) -> TableUnderWay:
        """A table that is written piece by piece; no samples come behind it, and it is ended before ``finish``."""
        self._end_data()
        return TableUnderWay(self, kind, field, row_size)

    def discard(self) -> None:
        """Forget the file; harmless once it is published."""
        self._staging.close()
        self._file.discard()
        self._spills.close()

    def _finish_pages(self) -> None:
        # Pages that only the tail of a large record touches still get a row, so page numbers are row numbers.
        total = -(-self._at // self._page_size)
        done = self._pages.size // PAGE.itemsize
        self._flush_pages(self._page_first + [self.num_samples] * (total - done - len(self._page_first) + 1))
        self._write_table(Kind.PAGES, NO_FIELD, PAGE.itemsize, self._pages.chunks(PIECE))

    def _write_descriptors(self) -> int:
        begin = self._align()
        pointer = begin + DESCRIPTOR.size * len(self._specs)
        rows = b""
        for spec in self._specs:
            rows += DESCRIPTOR.pack(
                spec.name.encode(), spec.field.type_id, spec.flags, spec.field.metadata_type.itemsize, spec.codec,
                spec.level, pointer, len(spec.arguments),
            )  # fmt: skip
            pointer += len(spec.arguments)
        section = rows + b"".join(spec.arguments for spec in self._specs)
        self._append(section)
        crc = kernels.crc32c(section)
        self._entries.append(Entry(Kind.DESCRIPTORS, NO_FIELD, 0, 1, 0, begin, len(section), 0, crc))
        return begin

    def _write_table(self, kind: Kind, field: int, row_size: int, chunks: Iterable[bytes]) -> None:
        """A table, then the CRC32C of each of its blocks. Chunks may have any size."""
        table = TableUnderWay(self, kind, field, row_size)
        for chunk in chunks:
            table.add(chunk)
        table.end()

    def _align(self, to: int = TABLE_ALIGNMENT) -> int:
        self._append(b"\0" * (-self._at % to))
        return self._at

    def _append(self, data: bytes) -> None:
        """Add bytes behind the data, written in aligned pieces as data is: they lie in huge pages too."""
        self._tail += data
        self._at += len(data)
        begin, end = self._at - len(self._tail), self._at - self._at % PIECE
        if end > begin:
            self._file.write_at(begin, bytes(memoryview(self._tail)[: end - begin]))
            del self._tail[: end - begin]

    def _flush(self) -> None:
        self._file.write_at(self._at - len(self._tail), bytes(self._tail))
        self._tail.clear()


class TableUnderWay:
    """A table being written: rows piece by piece, then the CRC32C of each of its blocks."""

    def __init__(self, builder: FldBuilder, kind: Kind, field: int, row_size: int) -> None:
        self._builder = builder
        self._kind, self._field, self._row_size = kind, field, row_size
        self._block_size = block_size_of(builder.num_samples, row_size if kind == Kind.METADATA else EXTENT.itemsize)
        self._offset = builder._align(table_alignment(builder.num_samples))
        self._crcs = bytearray()
        self._rest = b""

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._builder._at - self._offset

    def add(self, chunk: bytes) -> None:
        """The next bytes, of any number."""
        self._builder._append(chunk)
        whole = self._rest + chunk
        cut = len(whole) - len(whole) % self._block_size
        self._crcs += kernels.block_crcs(memoryview(whole)[:cut], self._block_size)
        self._rest = whole[cut:]

    def end(self) -> None:
        """Write the checksums."""
        builder = self._builder
        self._crcs += kernels.block_crcs(self._rest, self._block_size)
        size = self.size
        if size % self._row_size:
            raise FormatError(
                f"table {self._kind.name} of {size} bytes has rows of {self._row_size}", path=builder._file.path
            )
        crcs, where = bytes(self._crcs), builder._align()
        builder._append(crcs)
        builder._entries.append(
            Entry(
                self._kind, self._field, 0, self._row_size, self._block_size, self._offset, size, where,
                kernels.crc32c(crcs),
            )
        )  # fmt: skip
        if len(crcs) > LONG_LIST:
            of_list, beyond = kernels.block_crcs(crcs, LIST_BLOCK), builder._align()
            builder._append(of_list)
            builder._entries.append(
                Entry(
                    CHECKSUMS_OF + self._kind, self._field, 0, LIST_ROW, LIST_BLOCK, where, len(crcs), beyond,
                    kernels.crc32c(of_list),
                )
            )  # fmt: skip


class _Bits:
    """A validity bitmap that grows, least significant bit first."""

    def __init__(self, spill: Spill) -> None:
        self.any_missing = False
        self._spill = spill
        self._rest = np.zeros(0, np.bool_)

    def append(self, bits: NDArray[np.bool_]) -> None:
        self.any_missing |= not bits.all()
        joined = np.concatenate([self._rest, bits])
        cut = len(joined) - len(joined) % 8
        self._spill.append(np.packbits(joined[:cut], bitorder="little"))
        self._rest = joined[cut:]

    def finish(self) -> Spill:
        self._spill.append(np.packbits(self._rest, bitorder="little"))
        return self._spill
