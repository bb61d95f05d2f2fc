"""Files as samples: a JPEG is an image with its index, anything else is bytes; both keep every byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.fields import BytesField, Encoded, Field, IntField, JPEGImageField
from fastloader.fields.base import NO_METADATA
from fastloader.formats.file_content import FileContent
from fastloader.formats.fld import Chunk, Column, Dataset, FieldSpec, Node
from fastloader.formats.fld.builder import Payload
from fastloader.types import Buffer

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

ROW = 128
"""Bytes that a file counts for besides its own, when shards are cut: about what the tables keep of it."""

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
    contents: list[Payload] = field(default_factory=list)
    modes: Any = field(default_factory=list)
    mtimes: Any = field(default_factory=list)
    nodes: list[tuple[int, Node]] = field(default_factory=list)
    size: int = 0

    def add(self, path: bytes, content: Payload, mode: int, mtime: int) -> None:
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


def encode(specs: Sequence[FieldSpec], files: Files, near: Path | None = None) -> Chunk:
    """The files as a chunk that is ready to be placed. Copies of large ones, to compress, are made in ``near``."""
    count = len(files.paths)
    contents = files.contents
    sizes = np.fromiter(map(len, contents), "<i8", count)
    shapes = np.zeros(count, _SHAPE)
    is_image = np.zeros(count, np.bool_)
    images: list[Buffer] = [b""] * count
    data: list[Payload] = list(contents)
    codecs = np.zeros(count, np.uint8)
    for i, content in enumerate(contents):
        if 3 < len(content) <= _LARGEST_JPEG and _starts(content):
            encoded = _as_image(content)
            if encoded is not None:
                shapes[i], images[i] = encoded.metadata, encoded.payload
                is_image[i], data[i] = True, b""
    codec, level = specs[DATA].codec, specs[DATA].level
    for i in np.flatnonzero(~is_image & (sizes > 0)).tolist() if codec else ():
        payload = data[i]
        packed = kernels.compress(payload(near) if isinstance(payload, FileContent) else payload, codec, level)
        if len(packed) < sizes[i]:
            data[i], codecs[i] = packed, codec
    indexed = np.fromiter(map(len, images), np.uint64, count)
    columns = [
        Column(shapes, is_image, images, indexed, np.zeros(count, np.uint8)),
        Column(np.zeros(count, NO_METADATA), ~is_image, data, np.where(is_image, 0, sizes).astype(np.uint64), codecs),
        *(_numbers(values) for values in (files.modes, files.mtimes, sizes)),
    ]
    return Chunk(count, columns, files.paths, files.nodes)


def _starts(content: Payload) -> bool:
    return content.starts_with(_JPEG) if isinstance(content, FileContent) else content[:3] == _JPEG


def _as_image(content: Payload) -> Encoded | None:
    """A JPEG and the index behind it; ``None`` where it can't be read as one, and is bytes like any other."""
    try:
        encoded = _JPEG_FIELD.encode(bytes(content() if isinstance(content, FileContent) else content))
    except (ValueError, kernels.Failure):
        return None
    return encoded if kernels.jpeg_size(encoded.payload) == len(content) else None


def without_rows(chunk: Chunk, links: Mapping[int, Node]) -> Chunk:
    """The chunk without some rows, in whose place there are nodes."""
    kept = np.array([row not in links for row in range(chunk.count)], np.bool_)
    before = np.concatenate([[0], np.cumsum(kept)]).tolist()
    nodes = [(at, 0, node) for at, node in chunk.nodes or ()] + [(row, 1, node) for row, node in links.items()]
    nodes.sort(key=lambda one: one[:2])
    columns = []
    for one in chunk.columns:
        payloads = [part for part, keep in zip(one.payloads, kept, strict=False) if keep]
        has = kept if one.payloads else slice(None)
        columns.append(Column(one.metadata[kept], one.valid[kept], payloads, one.raw_sizes[has], one.codecs[has]))
    keys = [key for key, keep in zip(chunk.keys or (), kept, strict=True) if keep]
    return Chunk(len(keys), columns, keys, [(before[at], node) for at, _, node in nodes])


def is_archive(dataset: Dataset) -> bool:
    """Whether a dataset is an archive, with the fields of one."""
    return dataset.is_archive and [(d.name, d.type_id, d.metadata_size) for d in dataset.descriptors[:5]] == _SCHEMA


def _numbers(values: Sequence[int] | NDArray[np.int64]) -> Column:
    rows = np.ascontiguousarray(values, "<i8").view(_NUMBER)
    return Column(rows, np.ones(len(rows), np.bool_), [], _NONE, np.zeros(0, np.uint8))
