"""What ``index.json`` says of LitData's chunks: which there are, what samples look like, how leaves are stored."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastloader.errors import FormatError
from fastloader.formats.litdata_values import IN_ROWS
from fastloader.formats.mds import within
from fastloader.formats.objects import Object
from fastloader.formats.unpacked import MOST_BYTES

_CONTAINERS = {"builtins.dict": dict, "collections.OrderedDict": dict, "builtins.list": list, "builtins.tuple": tuple}


@dataclass(frozen=True)
class Node:
    """A part of a sample: a leaf, or a container with its keys and parts."""

    kind: type | None = None
    keys: tuple[str, ...] = ()
    parts: tuple[Node, ...] = ()

    @property
    def leaves(self) -> int:
        """How many values it is made of."""
        return 1 if self.kind is None else sum(part.leaves for part in self.parts)

    def built(self, values: Iterator[Any]) -> Any:
        """The part, of its values in their order."""
        if self.kind is None:
            return next(values)
        found = [part.built(values) for part in self.parts]
        return dict(zip(self.keys, found, strict=True)) if self.kind is dict else self.kind(found)


@dataclass(frozen=True)
class Config:
    """What an index says of all its chunks."""

    names: tuple[str, ...]
    parts: tuple[Node, ...]
    stored: tuple[str, ...]
    """How each leaf is stored."""
    tokens: bool
    """Whether a sample is its one leaf, without a size before it."""
    framed: bool
    packed: bool
    """Whether each sample is a frame of zstd."""
    codec: str | None
    """With which chunks are packed as a whole."""
    more: tuple[str, ...]
    """Names that only rows of tables may have."""

    @property
    def in_rows(self) -> bool:
        """Whether samples may be rows of a table."""
        return not self.tokens and {one.partition(":")[0] for one in self.stored} <= IN_ROWS

    def leaves(self, name: str) -> tuple[Node, int]:
        """A field, and the number of its first leaf."""
        at = self.names.index(name)
        return self.parts[at], sum(part.leaves for part in self.parts[:at])


@dataclass(frozen=True)
class Chunk:
    """What the index says of a chunk."""

    path: str
    zipped: str | None
    samples: int
    bytes: int
    config: Config


def load_index(source: Object) -> list[Chunk]:
    """The chunks that an ``index.json`` names."""
    path = source.path
    try:
        index = json.loads(source.read(0, source.size))
        config = _config(index["config"])
        return [_chunk(posixpath.dirname(path), chunk, config) for chunk in index["chunks"]]
    except FormatError as error:
        error.path = path
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"is no index of LitData's chunks: {type(error).__name__}: {error}", path=path) from error


def _config(about: dict[str, Any]) -> Config:
    if about.get("encryption"):
        raise FormatError("the chunks are encrypted", hint="read them with LitData and write them anew")
    loader = about.get("item_loader") or "PyTreeLoader"
    if loader == "ParquetLoader":
        raise FormatError("the chunks are Parquet files", hint="open them as such, by a pattern like '*.parquet'")
    if loader not in ("PyTreeLoader", "TokensLoader"):
        raise FormatError(f"the chunks are for a {loader}, and only those for PyTreeLoader and TokensLoader are read")
    tokens = loader == "TokensLoader"
    version, spec = json.loads(about["data_spec"])
    if version != 1:
        raise FormatError(f"what samples look like is told in version {version!r}, and only 1 is known here")
    tree, stored = _tree(spec), tuple(map(str, about["data_format"]))
    if tree.leaves != len(stored) or not stored or (tokens and len(stored) != 1):
        raise FormatError(f"samples of {tree.leaves} leaves, of which {len(stored)} are told how they are stored")
    names, parts = tree.keys, tree.parts
    if tree.kind is None:
        names, parts = ("tokens" if tokens else "data",), (tree,)
    level, codec = about.get("compression_level"), about.get("compression")
    types = about.get("types")
    return Config(
        names, parts, stored, tokens, level == "batch", level == "sample",
        str(codec) if codec and level not in ("batch", "sample") else None,
        tuple(name for name in types if name not in names) if isinstance(types, dict) and tree.kind is dict else (),
    )  # fmt: skip


def _tree(spec: dict[str, Any]) -> Node:
    """What a sample looks like. Lists and tuples number their parts."""
    if spec["type"] is None:
        return Node()
    if spec["type"] not in _CONTAINERS:
        raise FormatError(
            f"samples have a {spec['type']}, which is not read here; there are dict, list, tuple, OrderedDict"
        )
    kind = _CONTAINERS[spec["type"]]
    parts = tuple(map(_tree, spec["children_spec"]))
    keys = tuple(map(str, json.loads(spec["context"]) if kind is dict else range(len(parts))))
    if len(set(keys)) != len(parts):
        raise FormatError(f"names and parts of a sample differ in number: {', '.join(keys)}")
    return Node(kind, keys, parts)


def _chunk(folder: str, about: dict[str, Any], config: Config) -> Chunk:
    name, samples, size = about["filename"], int(about["chunk_size"]), int(about["chunk_bytes"])
    if samples < 0 or not 0 <= size <= MOST_BYTES:
        raise FormatError(f"a chunk of {samples} samples in {size} bytes")
    path = within(folder, name)
    if config.codec is None:
        return Chunk(path, None, samples, size, config)
    # LitData unpacks beside the packed file, and removes that.
    return Chunk(within(folder, name.replace(f".{config.codec}", "")), path, samples, size, config)
