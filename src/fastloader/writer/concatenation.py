"""Several datasets as one, without copying."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fastloader.errors import FormatError, StoreError
from fastloader.formats.fld import Dataset, is_sharded
from fastloader.formats.fld.target import concatenate_shards
from fastloader.writer.schema import stored_schema


def concatenate(path: str | os.PathLike[str], sources: Sequence[str | os.PathLike[str]]) -> None:
    """Make a dataset at ``path`` of all samples of ``sources``, in order, without copying: a manifest that names them.

    The sources must stay where they are, relative to ``path``, and have the same fields. A key that two sources share
    finds the sample of the first.
    """
    if isinstance(sources, str | bytes | os.PathLike):
        raise TypeError(
            f"sources is one path, {os.fspath(sources)!r}; give a list of paths, like [{os.fspath(sources)!r}]"
        )
    if not sources:
        raise ValueError("nothing to concatenate")
    target = Path(os.path.realpath(path))
    if target.exists() and not is_sharded(target):
        raise StoreError("is there already and is no folder of shards", path=target, hint="choose another name")
    datasets = [Dataset(Path(source)) for source in sources]
    for dataset in datasets[1:]:
        if stored_schema(dataset) != stored_schema(datasets[0]):
            raise FormatError(f"has other fields than {datasets[0].path}", path=dataset.path)
        if dataset.has_keys != datasets[0].has_keys:
            raise FormatError(f"differs from {datasets[0].path} in having keys", path=dataset.path)
    concatenate_shards(target, datasets)
