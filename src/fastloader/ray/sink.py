"""A dataset of Ray Data written as ``.fld``: each write task a shard, and the manifest last."""

from __future__ import annotations

import os
import posixpath
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink, WriteResult

from fastloader.dataset.shards import Recipe, shard_at
from fastloader.errors import FormatError, StoreError
from fastloader.fields import BytesField, Field, FloatField, IntField, JSONField, NDArrayField, TextField
from fastloader.formats.fld import MANIFEST, Manifest, Shard, shard_name
from fastloader.formats.fld.remote_target import is_object, own_files, put_manifest
from fastloader.formats.fld.sending import published_manifest, remove_objects, send
from fastloader.formats.fld.target import refuse_foreign
from fastloader.ray.library import ray
from fastloader.ray.nodes import nodes_that_see
from fastloader.ray.places import Place
from fastloader.stores import Directory, ObjectPath, locate
from fastloader.stores.copying import below
from fastloader.stores.local import Scratch, explain
from fastloader.types import parse_size

SHARD_SIZE = 256 << 20


def write_fld(
    dataset: Any,
    path: str | os.PathLike[str],
    fields: Mapping[str, Field] | None = None,
    *,
    shard_size: int | str = SHARD_SIZE,
    compression: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write a ``ray.data.Dataset`` to a folder of shards, on a disk or in a store.

    A write task makes a shard of at least ``shard_size`` bytes of blocks, but for the last. ``fields`` names the fields
    of columns; others are told from the columns' types. What tasks leave that fail or are done again is not seen: the
    dataset appears with its manifest, when all shards are there, in the order of their tasks. ``options`` are
    those of ``ray.data.Dataset.write_datasink``.

    Ray gives blocks to tasks as they are ready; with ``preserve_order`` of its execution options, in their order.
    """
    size = parse_size(shard_size, "shard_size")
    if size < 1:
        raise ValueError(f"shard_size={shard_size!r}: at least one byte")
    where = locate(path, storage_options)
    place = where if isinstance(where, ObjectPath) else Path(os.path.realpath(where))
    dataset.write_datasink(FldDatasink(place, fields, size, compression), **options)


@dataclass(frozen=True)
class _Written:
    """A shard that a task has made: its number in the order of tasks, and its file within the folder."""

    number: int
    shard: Shard


class FldDatasink(Datasink["_Written | None"]):
    """Where write tasks put their shards: a folder aside, or one within the dataset's in a store."""

    def __init__(
        self, where: Path | ObjectPath, fields: Mapping[str, Field] | None, size: int, compression: Any
    ) -> None:
        self._where, self._named, self._size, self._compression = where, dict(fields or {}), size, compression
        self._recipe: Recipe | None = None
        self._place: Place | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: the folder's lock stays here."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_aside", "_version", "_before")}

    def get_name(self) -> str:
        """What Ray calls the writes."""
        return "Fld"

    @property
    def supports_distributed_writes(self) -> bool:
        """A disk that only this node sees is written from here."""
        return not self._is_alone()

    def _is_alone(self) -> bool:
        if isinstance(self._where, ObjectPath) or not ray.is_initialized():
            return False
        mark = self._where.with_name(f".{self._where.name}.here-{secrets.token_hex(8)}")
        try:
            mark.touch()
            return nodes_that_see([mark]) is not None
        except OSError as error:
            raise error if isinstance(error, StoreError) else explain(error, self._where) from error
        finally:
            mark.unlink(missing_ok=True)

    @property
    def min_bytes_per_write(self) -> int:
        """Blocks are gathered until they come to a shard."""
        return self._size

    def on_write_start(self, schema: Any = None) -> None:
        """Have a folder for shards, and the fields of all of them."""
        self._recipe = Recipe.to(self._where, fields_of_schema(schema, self._named), self._compression, 1)
        if isinstance(self._where, ObjectPath):
            self._version, self._before = published_manifest(self._where / MANIFEST)
            if self._before is None and is_object(self._where):
                raise StoreError("is an object", path=self._where, hint="choose another name, or delete it first")
            self._place = Place.at(self._where / f"data-{secrets.token_hex(4)}")
            return
        if self._where.is_dir():
            refuse_foreign(self._where)
        self._aside = Directory(self._where)
        self._place = Place.at(self._aside.aside)

    def write(self, blocks: Iterable[Any], ctx: Any) -> _Written | None:
        """Make a shard, under a name that no other try has."""
        assert self._place is not None
        assert self._recipe is not None
        rows = _rows(blocks)
        name = f"shard-{secrets.token_hex(4)}-{ctx.task_idx:05d}.fld"
        place = self._place
        if isinstance(place.folder, ObjectPath):
            with Scratch() as folder:
                shard = self._made(self._recipe, folder / name, rows)
                if shard.num_samples:
                    send(folder / name, place.folder / name)
        elif place.is_seen:
            shard = self._made(self._recipe, place.folder / name, rows)
        else:
            raise StoreError("is not on a disk that this node sees", path=self._where, hint="write to a shared one")
        return _Written(ctx.task_idx, shard) if shard.num_samples else None

    def _made(self, recipe: Recipe, path: Path, rows: Iterable[Mapping[str, Any]]) -> Shard:
        samples = ({name: _value(recipe.fields[name], value) for name, value in row.items()} for row in rows)
        recipe.make(path, iter(samples), 0, {}, lambda count: None)
        return shard_at(path, path.name)

    def on_write_complete(self, write_result: WriteResult[_Written | None]) -> None:
        """Publish: shards in the order of tasks, and nothing that a task has left which was done again."""
        assert self._place is not None
        made = sorted((one for one in write_result.write_returns if one is not None), key=lambda one: one.number)
        if not made:
            self.on_write_failed(ValueError("no rows"))
            raise FormatError("has no rows, so there is nothing to write", path=self._where)
        if isinstance(self._where, ObjectPath):
            self._publish_objects([one.shard for one in made], self._where, self._place.folder)
        else:
            self._publish_files([one.shard for one in made], self._aside)

    def _publish_files(self, made: list[Shard], aside: Directory) -> None:
        named = [replace(shard, path=shard_name(number)) for number, shard in enumerate(made)]
        for shard, final in zip(made, named, strict=True):
            os.rename(aside.aside / shard.path, aside.aside / final.path)
        kept = {shard.path for shard in named}
        for path in aside.aside.iterdir():
            if path.name not in kept:
                path.unlink()
        Manifest(tuple(named)).save(aside.aside)
        aside.publish()

    def _publish_objects(self, made: list[Shard], where: ObjectPath, folder: Any) -> None:
        shards = tuple(replace(shard, path=posixpath.join(folder.name, shard.path)) for shard in made)
        old = [] if self._before is None else own_files(where, self._before)
        put_manifest(where, shards, self._version, self._before)
        kept = {shard.path for shard in made}
        left = [posixpath.join(folder.name, name) for _, name in below(where.store, folder.key) if name not in kept]
        remove_objects(where, [*left, *old])

    def on_write_failed(self, error: Exception) -> None:
        """Leave nothing behind."""
        if self._place is None:
            return
        if isinstance(self._where, ObjectPath):
            folder: Any = self._place.folder
            remove_objects(folder, [name for _, name in below(self._where.store, folder.key)])
        else:
            self._aside.discard()


def _rows(blocks: Iterable[Any]) -> Iterator[Any]:
    for block in blocks:
        yield from BlockAccessor.for_block(block).iter_rows(public_row_format=True)


def _value(field: Field, value: Any) -> Any:
    """A value of a row as the field takes it; Ray gives numbers as numpy's, and lists for arrays."""
    if isinstance(field, NDArrayField) and isinstance(value, list):
        return np.asarray(value, field.dtype)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(field, JSONField) and isinstance(value, np.ndarray):
        return value.tolist()
    return value


def fields_of_schema(schema: Any, named: Mapping[str, Field]) -> dict[str, Field]:
    """A field for each column: the one that is named, or what its type tells."""
    if schema is None or not len(schema.names):
        raise FormatError("the blocks have no columns", hint="write a dataset whose rows are dictionaries")
    unknown = [name for name in named if name not in schema.names]
    if unknown:
        raise FormatError(f"there is no column {unknown[0]!r}; there are {', '.join(schema.names)}")
    types = dict(zip(schema.names, schema.types, strict=True))
    return {name: named.get(name) or field_of_type(name, types[name]) for name in schema.names}


def field_of_type(name: str, kind: Any) -> Field:
    """The field that holds what a column of this type does."""
    if isinstance(kind, pa.BaseExtensionType):
        if not hasattr(kind, "shape"):  # of Python objects
            return JSONField()
        sizes = kind.shape or (None,) * kind.ndim
        return NDArrayField(
            kind.value_type.to_pandas_dtype(), tuple(None if size is None else int(size) for size in sizes)
        )
    if isinstance(kind, np.dtype) and kind.kind in "biuf":  # of a block of pandas
        kind = pa.from_numpy_dtype(kind)
    if not isinstance(kind, pa.DataType):
        raise _unnamed(name, kind)
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()):
        return IntField()
    if pa.types.is_floating(kind):
        return FloatField()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return TextField()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return BytesField()
    if pa.types.is_list(kind) and pa.types.is_primitive(kind.value_type):
        return NDArrayField(kind.value_type.to_pandas_dtype(), (None,))
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        return JSONField()
    raise _unnamed(name, kind)


def _unnamed(name: str, kind: object) -> FormatError:
    return FormatError(
        f"column {name!r} is of type {kind}, which tells no field",
        hint=f"name it, as in fields={{{name!r}: BytesField()}}",
    )
