"""The ``.fld`` format: one file, or a folder of them with a manifest. ``docs/reference/format.md`` describes it."""

from fastloader.formats.fld.builder import Chunk, Column, FieldSpec, FldBuilder
from fastloader.formats.fld.dataset import Dataset, load_shards
from fastloader.formats.fld.file import FldFile, explain
from fastloader.formats.fld.manifest import MANIFEST, Manifest, Removed, Shard, is_sharded, shard_name
from fastloader.formats.fld.tree import Node

__all__ = [
    "MANIFEST", "Chunk", "Column", "Dataset", "FieldSpec", "FldBuilder", "FldFile", "Manifest", "Node", "Removed",
    "Shard", "explain", "is_sharded", "load_shards", "shard_name",
]  # fmt: skip
