"""Several datasets as one, without copying."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastloader.errors import FormatError, StoreError
from fastloader.formats.fld import Dataset, is_sharded
from fastloader.formats.fld.remote_target import concatenate_objects
from fastloader.formats.fld.target import concatenate_shards
from fastloader.stores import ObjectPath, locate
from fastloader.stores.urls import local_path
from fastloader.writer.schema import stored_schema


def concatenate(
    path: str | os.PathLike[str],
    sources: Sequence[str | os.PathLike[str]],
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Make a dataset at ``path`` of all samples of ``sources``, in order, without copying: a manifest that names them.

    The sources must stay where they are, relative to ``path``, and have the same fields. A key that two sources share
    finds the sample of the first. All may be URLs of one store, with ``storage_options`` for its client.
    """
    if isinstance(sources, str | bytes | os.PathLike):
        raise TypeError(
            f"sources is one path, {os.fspath(sources)!r}; give a list of paths, like [{os.fspath(sources)!r}]"
        )
    if not sources:
        raise ValueError("nothing to concatenate")
    where = locate(path, storage_options)
    target = where if isinstance(where, ObjectPath) else Path(os.path.realpath(where))
    if isinstance(target, Path) and target.exists() and not is_sharded(target):
        raise StoreError("is there already and is no folder of shards", path=target, hint="choose another name")
    datasets = [_source(source, target) for source in sources]
    for dataset in datasets[1:]:
        if stored_schema(dataset) != stored_schema(datasets[0]):
            raise FormatError(f"has other fields than {datasets[0].path}", path=dataset.path)
        if dataset.has_keys != datasets[0].has_keys:
            raise FormatError(f"differs from {datasets[0].path} in having keys", path=dataset.path)
    if isinstance(target, ObjectPath):
        concatenate_objects(target, datasets)
    else:
        concatenate_shards(target, datasets)


def _source(source: str | os.PathLike[str], target: Path | ObjectPath) -> Dataset:
    """A dataset, known to be where a manifest at the target can name it."""
    local = local_path(source)
    if not isinstance(target, ObjectPath):
        if local is None:
            raise ValueError(f"{source}: a dataset on this machine can't be made of one in a store; get a copy first")
        return Dataset(Path(local))
    if local is not None:
        raise ValueError(f"{local}: a dataset in a store is made of others there; put it there first")
    return Dataset(target / os.fspath(source))
