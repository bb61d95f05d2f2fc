"""What lies where in a ``.beton`` file of FFCV: header, fields, a table of rows, pages, and a table of what is in them.

Nothing marks the beginning of such a file, and nothing in it has a checksum. So everything that its writer makes true
is checked: sizes, counts, alignments, and that rows and allocations agree.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.formats.objects import Object

VERSION = 2
HEADER = struct.Struct("<HHIQQ")
"""Version, fields, bytes of a page, samples, and where the allocations begin, which go on to the end."""
FIELD = struct.Struct("<B16s1024s")
"""Type, name and arguments of a field."""
ARRAY = struct.Struct("<32QQ")
"""Arguments of an array: its shape, filled up with zeros, and the length of the JSON behind it, which has its type."""
ALLOCATION = np.dtype([("sample", "<u8"), ("at", "<u8"), ("size", "<u8")])

KINDS = {0: "float", 1: "int", 2: "image", 3: "bytes", 4: "ndarray", 5: "json", 6: "tensor"}
CUSTOM = 255
"""The type of fields that users of FFCV made."""
_EXTENT = np.dtype([("at", "<u8"), ("size", "<u8")])
ROWS: dict[str, np.dtype[Any]] = {
    "float": np.dtype("<f8"), "int": np.dtype("<i8"), "bytes": _EXTENT, "json": _EXTENT,
    "image": np.dtype([("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("at", "<u8")]),
    "ndarray": np.dtype("<u8"), "tensor": np.dtype("<u8"),
}  # fmt: skip
"""What a row of the table holds of a field. Numbers are aligned to their size, the others are not."""
JPEG, RAW = 0, 1
"""Modes of an image."""
UNTOLD = np.uint64(2**64 - 1)
"""A size that only the allocation tells."""

_TYPE = re.compile(r"\|b1|[<>|][iufcSUV][1-9]\d{0,5}|[<>][mM]8\[\w+\]")
_LARGEST_CUSTOM = 256
"""Bytes in a row of a field of an unknown type, at most."""


@dataclass(frozen=True)
class Column:
    """A field; ``kind`` is ``None`` where its type is not known."""

    name: str
    type_id: int
    kind: str | None
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()
    fault: str | None = None
    """Why its values can't be read."""

    @property
    def has_data(self) -> bool:
        """Whether rows only point at the values."""
        return self.kind not in (None, "float", "int")

    @property
    def nbytes(self) -> int:
        """Of an array."""
        return 0 if self.dtype is None else prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Rows:
    """The form of the table's rows: where each field is, and the bytes from one row to the next."""

    offsets: tuple[int, ...]
    stride: int


@dataclass(frozen=True)
class Head:
    """What stands before the rows."""

    page_size: int
    num_samples: int
    allocations_at: int
    num_allocations: int
    columns: tuple[Column, ...]

    @property
    def rows_at(self) -> int:
        """Where the table begins."""
        return HEADER.size + FIELD.size * len(self.columns)

    @property
    def unknown(self) -> list[Column]:
        """Fields of which not even the size in a row is known."""
        return [column for column in self.columns if column.kind is None]

    def pages_at(self, stride: int) -> int:
        """Where the first page begins."""
        end = self.rows_at + stride * self.num_samples
        return -(-end // self.page_size) * self.page_size


def read_head(source: Object, types: Mapping[str, str] | None = None) -> Head:
    """The header and the fields, checked against the size of the file. ``types`` says what custom fields are like."""
    if source.size < HEADER.size:
        raise FormatError(f"has {source.size} bytes, and a header of FFCV has {HEADER.size}", path=source.path)
    version, fields, page_size, samples, allocations_at = HEADER.unpack(source.read(0, HEADER.size))
    if version != VERSION:
        raise FormatError(f"at offset 0: version {version} of FFCV's format; {VERSION} is read here", path=source.path)
    end = HEADER.size + FIELD.size * fields
    if not fields or end > source.size:
        raise FormatError(f"at offset 2: {fields} fields in {source.size} bytes", path=source.path)
    if page_size & (page_size - 1) or not page_size:
        raise FormatError(f"at offset 4: pages of {page_size} bytes, which is no power of two", path=source.path)
    if not allocations_at:
        raise FormatError("at offset 16: its writer has not finished it", path=source.path, hint="write it anew")
    columns = tuple(_columns(source.read(HEADER.size, end - HEADER.size), page_size, types or {}, source.path))
    left = source.size - allocations_at
    head = Head(page_size, samples, allocations_at, max(0, left) // ALLOCATION.itemsize, columns)
    stride = rows_of(columns).stride
    if head.rows_at + stride * samples > min(allocations_at, source.size):
        raise FormatError(
            f"at offset 8: {samples} samples, whose rows would end at "
            f"{head.rows_at + stride * samples}, and allocations at {allocations_at} of {source.size} bytes",
            path=source.path,
        )
    if left < 0 or left % ALLOCATION.itemsize:
        raise FormatError(
            f"at offset 16: allocations at {allocations_at}, of {ALLOCATION.itemsize} bytes each up to the end "
            f"at {source.size}", path=source.path,
        )  # fmt: skip
    pointed = samples * sum(column.has_data for column in columns)
    if head.num_allocations < pointed or (head.num_allocations > pointed and not head.unknown):
        raise FormatError(
            f"at offset {allocations_at}: {head.num_allocations} allocations, and {samples} samples need {pointed}",
            path=source.path,
        )
    return head


def is_beton(source: Object, start: bytes) -> bool:
    """Whether this is such a file, as far as its header, its fields and its size can tell; ``start`` begins it."""
    if not start.startswith(VERSION.to_bytes(2, "little")):
        return False
    try:
        head = read_head(source)
    except FormatError:
        return False
    return all(column.type_id in KINDS or column.type_id == CUSTOM for column in head.columns)


def _columns(data: bytes, page_size: int, types: Mapping[str, str], path: str) -> Iterator[Column]:
    seen: set[str] = set()
    for number, (type_id, padded, arguments) in enumerate(FIELD.iter_unpack(data)):
        offset = HEADER.size + number * FIELD.size
        raw, _, rest = padded.partition(b"\0")
        name = raw.decode("ascii", "replace")
        if not name.isprintable() or not name.isascii() or not name or rest.strip(b"\0"):
            raise FormatError(f"field {number} at offset {offset}: {padded!r} is no name", path=path)
        if name in seen:
            raise FormatError(
                f"field {number} at offset {offset}: another one is called {name!r}, too", path=path,
                hint="FFCV cuts names behind 16 letters; write the file with shorter ones",
            )  # fmt: skip
        seen.add(name)
        yield _column(name, type_id, arguments, page_size, types.get(name))
    unknown = [name for name in types if name not in seen]
    if unknown:
        raise FormatError(f"types: no field {unknown[0]!r}; there are {', '.join(seen)}", path=path)


def _column(name: str, type_id: int, arguments: bytes, page_size: int, told: str | None) -> Column:
    if told is not None and type_id in KINDS and told != KINDS[type_id]:
        raise ValueError(f"types={{{name!r}: {told!r}}}: the field is stored as {KINDS[type_id]}")
    column = Column(name, type_id, KINDS.get(type_id, told))
    if column.kind is None:
        what = "a field of its writer's own" if type_id == CUSTOM else "none that FFCV is known to have"
        return replace(column, fault=f"has the type {type_id}, {what}")
    if column.kind not in ("ndarray", "tensor"):
        return column
    *shape, length = ARRAY.unpack_from(arguments)
    while shape and not shape[-1]:
        shape.pop()
    try:
        ((named, kind),) = json.loads(arguments[ARRAY.size :][:length].decode("ascii"))
        if named or not _TYPE.fullmatch(kind):
            raise ValueError(f"{kind!r} is none that is read here")
        dtype = np.dtype(kind)
    except (ValueError, TypeError, RecursionError) as error:
        return replace(column, fault=f"tells no type of its arrays: {error}")
    column = replace(column, dtype=dtype, shape=tuple(shape))
    if column.nbytes > page_size:
        return replace(column, fault=f"has arrays of {column.nbytes} bytes, more than a page")
    return column


def rows_of(columns: tuple[Column, ...], size: int = 0, alignment: int = 1) -> Rows:
    """The form of rows, where fields of unknown types take ``size`` bytes each: as a C compiler lays out a struct."""
    at, widest, offsets = 0, 1, []
    for column in columns:
        row = None if column.kind is None else ROWS[column.kind]
        align = alignment if row is None else 1 if row.names else row.alignment
        at = -(-at // align) * align
        offsets.append(at)
        at += size if row is None else row.itemsize
        widest = max(widest, align)
    return Rows(tuple(offsets), -(-at // widest) * widest)


class Allocations:
    """The data that samples have in pages, found by where it begins."""

    def __init__(self, source: Object, head: Head) -> None:
        size = head.num_allocations * ALLOCATION.itemsize
        table = np.frombuffer(source.read(head.allocations_at, size), ALLOCATION)
        order = np.lexsort((table["size"], table["at"]))  # what is empty lies before what begins at the same place
        table = table[order]
        self.sample, self.at, self.size = (np.ascontiguousarray(table[name]) for name in ALLOCATION.names or ())
        wrong = self._wrong(head)
        if wrong.any():
            first = int(order[wrong].min())
            sample, at, size = np.frombuffer(
                source.read(head.allocations_at + first * ALLOCATION.itemsize, ALLOCATION.itemsize), "<u8"
            ).tolist()
            raise FormatError(
                f"allocation {first} at offset {head.allocations_at + first * ALLOCATION.itemsize}: {size} bytes "
                f"at {at} of sample {sample} lie in no page, or over others", path=source.path,
            )  # fmt: skip

    def _wrong(self, head: Head) -> NDArray[np.bool_]:
        """Which do not lie within a page that is there, or over the next. Those without bytes may have any place."""
        page, zero = np.uint64(head.page_size), np.uint64(0)
        first, end = (np.uint64(at) for at in (head.pages_at(rows_of(head.columns).stride), head.allocations_at))
        wrong = (self.at < first) | (self.at >= end) | (self.size > page)
        last = np.where(wrong, zero, self.at % page + self.size)
        wrong |= (last > page) | (np.where(wrong, zero, self.at) + np.where(wrong, zero, self.size) > end)
        wrong &= self.size > zero
        some = np.flatnonzero((self.size > zero) & ~wrong)
        over = self.at[some[1:]] - self.at[some[:-1]] < self.size[some[:-1]]
        wrong[some[1:][over]] = True
        return wrong | (self.sample >= np.uint64(head.num_samples))

    def find(self, samples: NDArray[Any], at: NDArray[Any], size: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The sizes of what samples have at some places, and which of them they do have there, of the ``size`` told."""
        if not len(self.at):
            return size, np.zeros(len(at), np.bool_)
        first = np.minimum(np.searchsorted(self.at, at, "left"), len(self.at) - 1)
        last = np.maximum(np.searchsorted(self.at, at, "right") - 1, 0)
        found = np.where(size == UNTOLD, self.size[last], size)
        whole = (self.sample[last] == samples) & (self.size[last] == found) & (found > 0)
        right = np.where(size == 0, self.size[first] == 0, whole)
        return found, right & (self.at[last] == at)


def places(
    column: Column, rows: NDArray[Any], samples: NDArray[Any], allocations: Allocations
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where the values of a field lie, as (offset, size), and which rows point at nothing that is theirs."""
    if column.kind == "image":
        at, sizes = rows["at"], rows["width"].astype(np.uint64) * rows["height"].astype(np.uint64) * np.uint64(3)
        size = np.where(rows["mode"] == RAW, sizes, UNTOLD)
        wrong = (rows["mode"] > RAW) | (sizes == 0)
    elif rows.dtype.names:
        at, size, wrong = rows["at"], rows["size"], rows["size"] == UNTOLD
    else:
        at, size, wrong = rows, np.full(len(rows), column.nbytes, np.uint64), np.zeros(len(rows), np.bool_)
    found, right = allocations.find(samples, at, size)
    wrong = wrong | ~right
    extents = np.stack([np.where(wrong | (found == 0), 0, at), np.where(wrong, 0, found)], 1)
    return extents.astype(np.int64), wrong


def table_of(source: Object, head: Head, rows: Rows) -> NDArray[Any]:
    """The rows, with the fields whose types are known by their names."""
    data = source.read(head.rows_at, rows.stride * head.num_samples)
    return np.frombuffer(data, _dtype(head, rows))


def _dtype(head: Head, rows: Rows) -> np.dtype[Any]:
    known = [(column, offset) for column, offset in zip(head.columns, rows.offsets, strict=True) if column.kind]
    return np.dtype({
        "names": [column.name for column, _ in known], "formats": [ROWS[str(column.kind)] for column, _ in known],
        "offsets": [offset for _, offset in known], "itemsize": rows.stride,
    })  # fmt: skip


def fitting_rows(source: Object, head: Head, allocations: Allocations) -> Rows:
    """The form of rows. With one field of an unknown type, that in which all rows point at what is theirs."""
    if not head.unknown:
        return rows_of(head.columns)
    name, samples = head.unknown[0].name, np.arange(head.num_samples, dtype=np.uint64)
    pointing = [column for column in head.columns if column.has_data and not column.fault]
    forms: dict[tuple[Any, ...], Rows] = {}
    if len(head.unknown) == 1 and pointing and head.num_samples:
        full = allocations.size > 0
        page = int(allocations.at[full].min()) // head.page_size * head.page_size if full.any() else None
        sizes = ((size, align) for align in (1, 2, 4, 8) for size in range(align, _LARGEST_CUSTOM + 1, align))
        for rows in (rows_of(head.columns, *one) for one in sizes):
            form = (rows.stride, *(at for at, one in zip(rows.offsets, head.columns, strict=True) if one.kind))
            if form in forms or head.pages_at(rows.stride) != page:
                continue
            table = table_of(source, head, rows)
            if not any(places(one, table[one.name], samples, allocations)[1].any() for one in pointing):
                forms[form] = rows
    if len(forms) != 1:
        raise FormatError(
            f"field {name!r} {head.unknown[0].fault}, and what lies around it in a row can't be told", path=source.path,
            hint=f"say what it is stored like, as in types={{{name!r}: 'bytes'}}: one of {', '.join(ROWS)}",
        )  # fmt: skip
    return next(iter(forms.values()))
