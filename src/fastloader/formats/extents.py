"""Values that lie in files of others, told by tables of extents: what a reader and a loader ask of a dataset.

So payloads of tars, zips and Barecat archives go through the engine as those of ``.fld`` files do: mapped, read ahead
past the page cache, or fetched from a store as ranges, with no Python between two samples.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError, FormatError, NotFoundError, StoreError
from fastloader.fields import Field, ImageFileField
from fastloader.fields.image_files import SHAPE
from fastloader.formats.fld.dataset import MAX_OPEN, OPENED_AT_ONCE
from fastloader.formats.fld.layout import DEFAULT_PAGE_SIZE, EXTENT, PAGE, Descriptor, FieldFlags, Kind
from fastloader.formats.fld.manifest import Shard
from fastloader.formats.fld.runs import Runs
from fastloader.formats.objects import Places, digest_of, origin_of
from fastloader.stores import MappedFile, ObjectPath, RemoteFile
from fastloader.types import Buffer, key_text

BLOCK = 1 << 20
DEFLATE = 255
"""The native part's number of zip's compression."""


@dataclass(frozen=True, eq=False)
class Extents:
    """Where the values of one field lie: a row of (offset, size) each, an offset below zero where there is none.

    - ``checksums``: CRC32C of each, where they are known; then every value is checked when it is read.
    - ``unzipped``: of zip files, the sizes of values as they are read, -1 for those that are stored as they are; then
      checksums are CRC-32 of what is read.
    - ``memory``: bytes that the offsets are of, where they are not those of the file.
    """

    ranges: NDArray[np.int64]
    checksums: NDArray[np.uint32] | None = None
    unzipped: NDArray[np.int64] | None = None
    memory: NDArray[np.uint8] | None = None

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which values are there."""
        return np.asarray(self.ranges[:, 0] >= 0)

    def table(self) -> kernels.Table:
        """As the native part takes it."""
        rows = np.zeros(len(self.ranges), EXTENT)
        there = self.present
        rows["pointer"] = np.where(there, self.ranges[:, 0], 0)
        rows["size"] = rows["raw_size"] = np.where(there, self.ranges[:, 1], 0)
        if self.checksums is not None:
            rows["crc"] = self.checksums
        if self.unzipped is not None:
            packed = self.unzipped >= 0
            rows["raw_size"] = np.where(packed, self.unzipped, rows["size"])
            rows["codec"] = np.where(packed, DEFLATE, 0)
        return table_of(rows.view(np.uint8).reshape(-1), EXTENT.itemsize)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Whole numbers that belong to samples and are no bytes of a file."""

    values: NDArray[np.int64]


Column = Extents | Numbers


def table_of(rows: NDArray[np.uint8], row_size: int) -> kernels.Table:
    """Rows in memory as a table."""
    crcs = kernels.block_crcs(rows, BLOCK)
    held = np.concatenate([rows, np.frombuffer(crcs, np.uint8)])
    return kernels.Table(held, 0, len(rows), row_size, BLOCK, len(rows))


@dataclass(frozen=True, eq=False)
class Part:
    """The samples of one file: for each field where its values lie, and the keys of samples, ends behind each other."""

    path: str
    places: Places
    size: int
    identity: str
    columns: Mapping[str, Column]
    keys: bytes
    key_ends: NDArray[np.int64]

    @property
    def num_samples(self) -> int:
        """How many there are."""
        return len(self.key_ends)

    @property
    def origin(self) -> str:
        """What tells it from others: the file, and where things lie in it, as an index beside it may say."""
        held: list[str | Buffer] = [origin_of(self.path, self.identity), self.keys, self.key_ends]
        for name, column in self.columns.items():
            parts = (column.values,) if isinstance(column, Numbers) else (column.ranges, column.memory)
            held += [name, *(np.ascontiguousarray(part) for part in parts if part is not None)]
        return digest_of(held)

    def key(self, row: int) -> bytes:
        """The key of a sample."""
        begin = int(self.key_ends[row - 1]) if row else 0
        return self.keys[begin : int(self.key_ends[row])]

    def key_column(self) -> Extents:
        """The keys as values of a field."""
        begins = np.concatenate([np.zeros(1, np.int64), self.key_ends[:-1]])[: self.num_samples]
        ranges = np.stack([begins, self.key_ends - begins], 1)
        return Extents(ranges, memory=np.frombuffer(self.keys, np.uint8))


class Keys:
    """The keys of one file, as readers ask for them."""

    def __init__(self, part: Part) -> None:
        self.key = part.key


class ExtentFile:
    """One file, open."""

    has_keys = True

    def __init__(self, part: Part, names: Sequence[str], fields: Sequence[Field]) -> None:
        where = part.places.locate(part.path)
        self.path: Path | ObjectPath = where if isinstance(where, ObjectPath) else where.absolute()
        self.remote = RemoteFile(where, tail=lambda head, size: 0) if isinstance(where, ObjectPath) else None
        try:
            opened = self.remote or MappedFile(where)  # type: ignore[arg-type]
        except FileNotFoundError as error:
            raise NotFoundError("there is no such file", path=part.path, hint="check the path") from error
        if opened.size != part.size or (self.remote is None and part.places.open(part.path).identity != part.identity):
            raise StoreError("changed since it was opened", path=part.path, hint="open the dataset anew")
        if self.remote is not None and self.remote.version != part.identity:
            raise StoreError("changed since it was opened", path=part.path, hint="open the dataset anew")
        self.bytes, self.size, self.inode = opened.bytes, opened.size, opened.inode
        self.num_samples = part.num_samples
        self.descriptors = [_descriptor(name, field) for name, field in zip(names, fields, strict=True)]
        self._part = part
        self._fields = fields
        missing = np.full((part.num_samples, 2), -1, np.int64)
        self._columns = [part.columns.get(name) or Extents(missing) for name in names]
        self.directory: dict[tuple[int, int], Any] = {
            (Kind.VALIDITY, number): None
            for number, column in enumerate(self._columns)
            if isinstance(column, Extents) and not column.present.all()
        }
        self._made: dict[tuple[str, int], Any] = {}

    def _once(self, kind: str, field: int, make: Callable[[], Any]) -> Any:
        found = self._made.get((kind, field))
        return self._made.setdefault((kind, field), make()) if found is None else found

    def table(self, kind: Kind, field: int = 0, rows: NDArray[np.int64] | None = None) -> kernels.Table | None:
        """Which values are there, and numbers; nothing else is kept of them."""
        column = self._columns[field]
        found: kernels.Table | None = None
        if isinstance(column, Numbers) and kind == Kind.METADATA:
            found = self._once("numbers", field, lambda: table_of(column.values.view(np.uint8), 8))
        if isinstance(column, Extents) and kind == Kind.VALIDITY and (kind, field) in self.directory:
            bits = np.packbits(column.present, bitorder="little")
            found = self._once("validity", field, lambda: table_of(bits, 1))
        return found

    def _extents(self, field: int) -> Extents:
        column = self._columns[field]
        assert isinstance(column, Extents)
        return column

    def payloads(self, field: int) -> kernels.Payloads | None:
        """A field's values, where they are bytes."""
        if isinstance(self._columns[field], Numbers):
            return None
        found: kernels.Payloads = self._once("payloads", field, lambda: self._payloads_in(self.bytes, field))
        return found

    def _payloads_in(self, data: NDArray[np.uint8], field: int) -> kernels.Payloads:
        column = self._extents(field)
        given = data if column.memory is None else column.memory
        table = self._once("extents", field, column.table)
        return kernels.Payloads.foreign(
            given, table, column.checksums is not None, column.unzipped is not None, column.memory is not None
        )

    def payloads_of(self, field: int, rows: NDArray[np.int64]) -> kernels.Payloads | None:
        """Like ``payloads``, with the bytes of at least these rows; negative ones stand for nothing."""
        column = self._columns[field]
        if self.remote is None or isinstance(column, Numbers) or column.memory is not None:
            return self.payloads(field)
        wanted = column.ranges[rows[rows >= 0]]
        ranges = [(at, size) for at, size in wanted.tolist() if at >= 0 and 0 < size <= self.size - at]
        return self._payloads_in(self.remote.fetched(ranges), field)

    def payload_sizes(self, field: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many bytes some values take in the file; 0 for numbers, which are in none."""
        column = self._columns[field]
        if isinstance(column, Numbers):
            return np.zeros(len(rows), np.int64)
        sizes: NDArray[np.int64] = np.where(column.ranges[rows, 0] >= 0, column.ranges[rows, 1], 0)
        return sizes

    def metadata(
        self, field: int, sources: list[kernels.Payloads], which: NDArray[np.int32] | None, rows: NDArray[np.int64]
    ) -> NDArray[Any]:
        """Shapes of images, which nothing but their bytes tells."""
        out = np.zeros(len(rows), SHAPE)
        coding = self._fields[field].coding  # type: ignore[attr-defined]
        kernels.image_shapes(coding, sources, which, rows, out.view(np.uint32))
        return out

    def is_missing(self, field: int, sample: int) -> bool:
        """Whether the sample has no such value."""
        column = self._columns[field]
        return isinstance(column, Extents) and bool(column.ranges[sample, 0] < 0)

    def metadata_row(self, field: int, sample: int, dtype: np.dtype[Any]) -> Any:
        """A number, or the shape of an image; of others nothing."""
        column = self._columns[field]
        if isinstance(column, Numbers):
            return column.values[sample : sample + 1].view(dtype)[0]
        if not dtype.itemsize:
            return np.zeros(1, dtype)[0]
        rows = np.array([sample], np.int64)
        payloads = self.payloads_of(field, rows)
        assert payloads is not None
        return self.metadata(field, [payloads], None, rows)[0]

    def payload(self, field: int, sample: int) -> memoryview:
        """The bytes of a value: a view of the file where it is mapped."""
        column = self._extents(field)
        payloads = self.payloads_of(field, np.array([sample], np.int64))
        assert payloads is not None
        where = payloads.locate(sample) if self.remote is None or column.memory is not None else None
        if where is None:
            return payloads.read(sample).data
        given = self.bytes if column.memory is None else column.memory
        return given[where[0] : where[0] + where[1]].data

    def keys(self) -> Keys:
        """The keys."""
        return Keys(self._part)

    def pages(self) -> NDArray[Any]:
        """Which samples begin on which page of the file; they come in the order in which they lie."""
        starts = np.full(self.num_samples, self.size, np.int64)
        for column in self._columns:
            if isinstance(column, Extents) and column.memory is None:
                starts = np.where(column.present, np.minimum(starts, column.ranges[:, 0]), starts)
        starts = np.maximum.accumulate(starts)
        edges = np.arange(0, self.size + DEFAULT_PAGE_SIZE, DEFAULT_PAGE_SIZE)
        firsts = np.searchsorted(starts, edges, "left")
        firsts[-1] = self.num_samples
        rows = np.zeros(len(edges) - 1, PAGE)
        rows["first_sample"], rows["num_samples"] = firsts[:-1], np.diff(firsts)
        return rows


def _descriptor(name: str, field: Field) -> Descriptor:
    flags = FieldFlags.PAYLOAD if field.has_payload else FieldFlags(0)
    return Descriptor(name, field.type_id, flags, field.metadata_type.itemsize, 0, 0, field.to_binary())


@dataclass(frozen=True, eq=False)
class Schema:
    """Fields by name, and how the parts were found, so that they can be found again elsewhere."""

    format: str
    fields: Mapping[str, Field]
    find: Callable[[], Sequence[Part]]
    classes: tuple[str, ...] | None = None


class ExtentDataset:
    """The samples of several files, one behind the other. Files are opened when they are needed."""

    page_size = DEFAULT_PAGE_SIZE
    has_keys = True

    def __init__(self, schema: Schema, known: tuple[str, ...] | None = None) -> None:
        self.schema = schema
        self.parts = tuple(schema.find())
        if not self.parts:
            raise ValueError("a dataset of no files")
        self.identities = tuple(part.identity for part in self.parts)
        if known is not None and known != self.identities:
            raise StoreError("changed since it was opened", path=self.parts[0].path, hint="open the dataset anew")
        self.path = self.parts[0].places.locate(self.parts[0].path)
        if not isinstance(self.path, ObjectPath):
            self.path = self.path.absolute()
        self.names = list(schema.fields)
        self._fields = list(schema.fields.values())
        for name, field in schema.fields.items():
            stored = any(isinstance(part.columns.get(name), Extents) for part in self.parts)
            if stored and field.metadata_type.itemsize and not isinstance(field, ImageFileField):
                raise FormatError(
                    f"{type(field).__name__} keeps something beside its bytes, which the files of others do not have",
                    path=self.path, field=name, hint="map() decodes it",
                )  # fmt: skip
        self.descriptors = [_descriptor(name, field) for name, field in schema.fields.items()]
        self.shards = tuple(Shard(part.path, part.num_samples, part.size, 0) for part in self.parts)
        self.objects = self.shards
        self.runs = Runs.of(np.array([part.num_samples for part in self.parts], np.int64))
        self.starts = self.row_starts = self.runs.starts
        self._files: dict[int, ExtentFile] = {}
        self._rows: dict[bytes, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ExtentDataset, (self.schema, self.identities)

    @property
    def origin(self) -> str:
        """What tells it from another dataset that may be there another day."""
        return digest_of(part.origin for part in self.parts)

    @property
    def is_remote(self) -> bool:
        """Whether the files are objects in a store."""
        return isinstance(self.path, ObjectPath)

    @property
    def num_samples(self) -> int:
        """Samples of all files."""
        return int(self.starts[-1])

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample, on average."""
        return sum(part.size for part in self.parts) // max(1, self.num_samples)

    def warm(self, numbers: Sequence[int], use: Callable[[int], object]) -> None:
        """Call ``use`` for files, which opens them: of objects many at a time, since each takes a round trip.

        What goes wrong is left to be found again by who needs the file.
        """
        fresh = [number for number in numbers if number not in self._files]
        if self.is_remote and len(fresh) > 1:
            with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(fresh)), "fastloader-opener") as pool:
                for opened in [pool.submit(use, number) for number in fresh]:
                    with contextlib.suppress(FastLoaderError):
                        opened.result()

    def file(self, number: int) -> ExtentFile:
        """One file, open."""
        found = self._files.get(number)
        if found is None:
            made = ExtentFile(self.parts[number], self.names, self._fields)
            for old in list(self._files)[: max(0, len(self._files) - MAX_OPEN + 1)]:  # list(dict) is one step: no lock
                self._files.pop(old, None)
            found = self._files.setdefault(number, made)
        return found

    def field(self, number: int) -> Field:
        """What the values of a field are."""
        return self._fields[number]

    def find(self, key: bytes) -> int | None:
        """The sample with this key; the first where several have it."""
        if self._rows is None:
            rows: dict[bytes, int] = {}
            for start, part in zip(self.starts.tolist(), self.parts, strict=False):
                for row in range(part.num_samples):
                    rows.setdefault(part.key(row), start + row)
            self._rows = rows
        return self._rows.get(key)

    def key(self, sample: int) -> str:
        """A sample's key as text."""
        number, row = self.where(sample)
        return key_text(self.parts[number].key(row))

    def where(self, sample: int) -> tuple[int, int]:
        """File and row of a sample."""
        return self.runs.where(sample)
