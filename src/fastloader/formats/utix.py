"""``.utix``: an index of a tar's samples that other programs write and read, of msgpack maps or JSON lines.

A row is a sample: ``iidx`` its number, ``str_idx`` its stem, ``offset`` where the data of its first member begins in
the tar, and for each member ``keys`` (its ending, with the dot), ``offsets`` (relative to ``offset``) and ``sizes``.
``metadata`` may hold anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.fields import JSONField
from fastloader.formats.decoding import KEY, Decode, fields_by_name
from fastloader.formats.extents import Column, ExtentDataset, Extents, Part, Schema
from fastloader.formats.extras import required
from fastloader.formats.members import Found, Names, parts_of
from fastloader.formats.objects import Files, Object, Places, buffered
from fastloader.formats.tar import TarIndex
from fastloader.types import key_bytes, key_text

ENDING = ".utix"
METADATA = "metadata"
LARGEST = 100 << 20
"""Bytes of one row at most."""


@dataclass(frozen=True, slots=True)
class Row:
    """A sample."""

    iidx: int
    offset: int
    str_idx: str
    keys: tuple[str, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    metadata: Any = None

    def to_dict(self) -> dict[str, Any]:
        """As it is stored."""
        told = {
            "iidx": self.iidx, "offset": self.offset, "str_idx": self.str_idx, "keys": list(self.keys),
            "offsets": list(self.offsets), "sizes": list(self.sizes),
        }  # fmt: skip
        return told if self.metadata is None else {**told, METADATA: self.metadata}


def tar_of(path: str) -> str:
    """The tar that an index is of: ``a.tar`` of ``a.tar.utix`` and of ``a.utix``."""
    stem = path.removesuffix(ENDING)
    return stem if stem.endswith(".tar") else f"{stem}.tar"


def read_utix(source: Object) -> Iterator[Row]:
    """The rows of an index, checked one by one."""
    number = -1
    try:
        for found in _maps(source):
            number += 1
            yield _row(found)
    except (ValueError, TypeError, KeyError, EOFError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise FormatError(f"row {number}: {what}" if number >= 0 else what, path=source.path) from error


def _maps(source: Object) -> Iterator[Any]:
    if source.size and source.read(0, 1) == b"{":
        for line in buffered(source):
            if line.strip():
                yield json.loads(line.decode("utf-8", "surrogateescape"))
        return
    msgpack = required("msgpack", "a .utix index", source.path)
    unpacker = msgpack.Unpacker(buffered(source), unicode_errors="surrogateescape", max_buffer_size=LARGEST)
    end = 0
    try:
        for row in unpacker:
            end = unpacker.tell()  # behind the row; at the end of the file it would be that of what was left over
            yield row
    except msgpack.UnpackException as error:
        raise ValueError(f"no msgpack: {error}") from error
    if end != source.size:
        raise ValueError(f"offset {end}: it ends within a row")


def _row(found: Any) -> Row:
    if not isinstance(found, Mapping):
        raise ValueError(f"is a {type(found).__name__}, not a map")
    keys, offsets, sizes = (tuple(found[name]) for name in ("keys", "offsets", "sizes"))
    numbers = (found["iidx"], found["offset"], *offsets, *sizes)
    if not all(type(one) is int and 0 <= one < 2**62 for one in numbers):
        raise ValueError("offsets and sizes are whole numbers that are not negative")
    if not isinstance(found["str_idx"], str) or not all(isinstance(key, str) for key in keys):
        raise ValueError("str_idx and keys are texts")
    if not len(keys) == len(offsets) == len(sizes):
        raise ValueError(f"{len(keys)} keys, {len(offsets)} offsets, {len(sizes)} sizes")
    return Row(found["iidx"], found["offset"], found["str_idx"], keys, offsets, sizes, found.get(METADATA))


def rows_of(index: TarIndex) -> Iterator[Row]:
    """The samples of a tar as rows."""
    samples, _, _, keys, key_ends = kernels.tar_samples(index.names, index.name_ends, index.has_data.view(np.uint8))
    stems = Names(keys, key_ends)
    mine = np.flatnonzero(samples >= 0)
    order = mine[np.lexsort((index.offsets[mine], samples[mine]))]
    edges = np.searchsorted(samples[order], np.arange(len(stems) + 1)).tolist()
    for number in range(len(stems)):
        members = order[edges[number] : edges[number + 1]]
        stem = stems[number]
        offsets, sizes = index.offsets[members], index.sizes[members].tolist()
        endings = tuple(key_text(index.name(member)[len(stem) :]) for member in members.tolist())
        first = int(offsets[0])
        yield Row(number, first, key_text(stem), endings, tuple((offsets - first).tolist()), tuple(sizes))


def packed(rows: Iterable[Row], jsonl: bool, path: str) -> bytes:
    """Rows as a file."""
    if jsonl:
        lines = (json.dumps(row.to_dict(), ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
        return "".join(lines).encode("utf-8", "surrogateescape")
    msgpack = required("msgpack", "a .utix index", path)
    packer = msgpack.Packer(unicode_errors="surrogateescape")
    return b"".join(packer.pack(row.to_dict()) for row in rows)


def utix_part(path: str, places: Places) -> Part:
    """The samples of a tar as an index beside it tells them."""
    tar = places.open(tar_of(path))
    rows = list(read_utix(places.open(path)))
    fields: dict[str, dict[int, tuple[int, int]]] = {}
    for number, row in enumerate(rows):
        for key, offset, size in zip(row.keys, row.offsets, row.sizes, strict=True):
            if not key and not size:  # a folder
                continue
            begin = row.offset + offset
            if begin + size > tar.size:
                raise FormatError(
                    f"row {number}: {row.str_idx + key!r} has {size} bytes at offset {begin}, the tar {tar.size}",
                    path=path, hint=f'is it of another tar? "fastloader index --utix {tar.path}" makes it anew',
                )  # fmt: skip
            fields.setdefault(key.removeprefix(".").lower(), {})[number] = (begin, size)
    columns: dict[str, Column] = {}
    for name, found in fields.items():
        ranges = np.full((len(rows), 2), -1, np.int64)
        ranges[list(found)] = list(found.values())
        columns[name] = Extents(ranges)
    if any(row.metadata is not None for row in rows) and METADATA not in columns:
        columns[METADATA] = _in_memory([row.metadata for row in rows])
    names = Names.of([key_bytes(row.str_idx) for row in rows])
    return Part(tar.path, places, tar.size, tar.identity, columns, names.text, names.ends)


def _in_memory(values: Sequence[Any]) -> Extents:
    texts = [b"" if value is None else json.dumps(value).encode() for value in values]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    ranges = np.stack([ends - [len(text) for text in texts], ends], 1)
    ranges[:, 1] -= ranges[:, 0]
    ranges[[value is None for value in values]] = -1
    return Extents(ranges, memory=np.frombuffer(b"".join(texts), np.uint8))


def utix_parts(files: Files) -> list[Part]:
    """Those of several."""
    return parts_of(files, lambda path: utix_part(path, files.places))


def open_utix(files: Files, decode: Decode) -> ExtentDataset:
    """The samples that indexes tell of, in the tars beside them."""
    found = Found(utix_parts, (files,), True)
    names = list(dict.fromkeys(name for part in found.parts for name in part.columns))
    in_memory = {name for part in found.parts for name, one in part.columns.items()
                 if name != KEY and isinstance(one, Extents) and one.memory is not None}  # fmt: skip
    fields = fields_by_name(names, decode)
    return ExtentDataset(Schema("utix", {**fields, **dict.fromkeys(in_memory, JSONField())}, found))
