"""Files as samples: a JPEG is an image with its index, anything else is bytes; both keep every byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.fields import BytesField, Encoded, Field, IntField, JPEGImageField
from fastloader.formats.fld import Chunk, Column, Dataset, FieldSpec, Node
from fastloader.types import Buffer, byte_view

IMAGE, DATA, MODE, MTIME, SIZE = range(5)
"""The numbers of an archive's fields."""

FIELDS: dict[str, Field] = {
    "image": JPEGImageField(verbatim=True),
    "data": BytesField(),
    "mode": IntField(),
    "mtime": IntField(),
    "size": IntField(),
}
"""What is kept of each file: its content, in one of the first two, and what the file system says of it."""

_SCHEMA = [(name, kind.type_id, kind.metadata_type.itemsize) for name, kind in FIELDS.items()]
_LARGEST_JPEG = 256 << 20
_JPEG = b"\xff\xd8\xff"
_JPEG_FIELD = FIELDS["image"]
_SHAPE = _JPEG_FIELD.metadata_type
_NUMBER = FIELDS["mode"].metadata_type
_NONE: NDArray[np.uint64] = np.zeros(0, np.uint64)


@dataclass(slots=True)
class Files:
    """Some files with their content, in order, and the nodes between them: each with how many files come before it."""

    paths: list[bytes] = field(default_factory=list)
    contents: list[Buffer] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    mtimes: list[int] = field(default_factory=list)
    nodes: list[tuple[int, Node]] = field(default_factory=list)
    size: int = 0

    def add(self, path: bytes, content: Buffer, mode: int, mtime: int) -> None:
        """The next file."""
        self.paths.append(path)
        self.contents.append(content)
        self.modes.append(mode)
        self.mtimes.append(mtime)
        self.size += len(content)


def specs_for(compression: str | None) -> list[FieldSpec]:
    """The schema. JPEG files do not become smaller, so only other content is compressed."""
    codec, level = kernels.codec_id(compression)
    return [FieldSpec(name, kind, *((codec, level) if name == "data" else ())) for name, kind in FIELDS.items()]


def encode(specs: Sequence[FieldSpec], files: Files) -> Chunk:
    """The files as a chunk that is ready to be placed."""
    count = len(files.paths)
    images, data = _Payloads(count), _Payloads(count)
    shapes = np.zeros(count, _SHAPE)
    sizes = np.zeros(count, "<i8")
    codec, level = specs[DATA].codec, specs[DATA].level
    for i, content in enumerate(files.contents):
        size = sizes[i] = len(content)
        if size > 3 and bytes(content[:3]) == _JPEG and size <= _LARGEST_JPEG:
            encoded = _as_image(content)
            if encoded is not None:
                shapes[i] = encoded.metadata
                images.put(i, encoded.payload, len(encoded.payload), 0)
                continue
        if codec and size:
            packed = kernels.compress(content, codec, level)
            if len(packed) < size:
                data.put(i, packed, size, codec)
                continue
        data.put(i, content, size, 0)
    columns = [images.column(shapes), data.column(np.zeros(count, specs[DATA].field.metadata_type))]
    columns += [_numbers(values) for values in (files.modes, files.mtimes, sizes)]
    return Chunk(count, columns, files.paths, files.nodes)


def _as_image(content: Buffer) -> Encoded | None:
    """A JPEG and the index behind it; ``None`` where it can't be read as one, and is bytes like any other."""
    try:
        encoded = _JPEG_FIELD.encode(bytes(content))
    except (ValueError, kernels.Failure):
        return None
    return encoded if kernels.jpeg_size(encoded.payload) == len(content) else None


def without_rows(chunk: Chunk, links: Mapping[int, Node]) -> Chunk:
    """The chunk without some rows, in whose place there are nodes."""
    kept = np.array([row not in links for row in range(chunk.count)], np.bool_)
    before = np.concatenate([[0], np.cumsum(kept)]).tolist()
    nodes = [(at, 0, node) for at, node in chunk.nodes or ()] + [(row, 1, node) for row, node in links.items()]
    nodes.sort(key=lambda one: one[:2])
    columns = [
        Column(
            one.metadata[kept], one.valid[kept], [part for part, keep in zip(one.payloads, kept, strict=False) if keep],
            one.raw_sizes[kept] if len(one.raw_sizes) else one.raw_sizes, one.codecs[kept] if len(one.codecs) else one.codecs,
        )
        for one in chunk.columns
    ]  # fmt: skip
    keys = [key for key, keep in zip(chunk.keys or (), kept, strict=True) if keep]
    return Chunk(len(keys), columns, keys, [(before[at], node) for at, _, node in nodes])


def is_archive(dataset: Dataset) -> bool:
    """Whether a dataset is an archive, with the fields of one."""
    return dataset.is_archive and [(d.name, d.type_id, d.metadata_size) for d in dataset.descriptors[:5]] == _SCHEMA


class _Payloads:
    """A field's payloads in the making: those that are not put are missing."""

    def __init__(self, count: int) -> None:
        self._valid = np.zeros(count, np.bool_)
        self._payloads: list[Buffer] = [b""] * count
        self._raw_sizes = np.zeros(count, np.uint64)
        self._codecs = np.zeros(count, np.uint8)

    def put(self, row: int, payload: Buffer, raw_size: int, codec: int) -> None:
        self._valid[row] = True
        self._payloads[row] = payload if type(payload) is bytes else byte_view(payload)
        self._raw_sizes[row] = raw_size
        self._codecs[row] = codec

    def column(self, metadata: NDArray[Any]) -> Column:
        return Column(metadata, self._valid, self._payloads, self._raw_sizes, self._codecs)


def _numbers(values: Sequence[int] | NDArray[np.int64]) -> Column:
    rows = np.array(values, "<i8").view(_NUMBER)
    return Column(rows, np.ones(len(rows), np.bool_), [], _NONE, np.zeros(0, np.uint8))
