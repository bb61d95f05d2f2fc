"""A shard and the files beside it as one: each field from the file that has its values, row by row the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.formats.fld.file import FldFile
from fastloader.formats.fld.layout import NO_FIELD, Descriptor, Entry, Kind
from fastloader.stores import ObjectPath

Place = tuple[FldFile, int]
"""A file, and the number of a field there."""


class JoinedFile:
    """What a reader asks of a ``FldFile``, answered by several. Keys, pages and what else has no field are the shard's.

    ``columns`` are the fields by name and stored name; ``beside`` are files, each with the stored names it is there
    for, of which the last that has a field counts.
    """

    def __init__(
        self, shard: FldFile, beside: Sequence[tuple[FldFile, Sequence[str]]], columns: Sequence[tuple[str, str]]
    ) -> None:
        self.shard = shard
        self.path: Path | ObjectPath = shard.path
        self.bytes, self.size, self.inode, self.remote = shard.bytes, shard.size, shard.inode, shard.remote
        self.header, self.data, self.num_samples = shard.header, shard.data, shard.num_samples
        self.identity, self.has_keys, self.is_archive = shard.identity, shard.has_keys, shard.is_archive
        self.keys, self.find, self.pages, self.alone = shard.keys, shard.find, shard.pages, shard.alone
        self.broken = shard.broken
        found: dict[str, Place] = {descriptor.name: (shard, i) for i, descriptor in enumerate(shard.descriptors)}
        for file, names in beside:
            if file.num_samples != shard.num_samples:
                raise file.broken(f"has {file.num_samples} rows, and the shard it is beside {shard.num_samples}")
            there = {descriptor.name: (file, i) for i, descriptor in enumerate(file.descriptors)}
            missing = [name for name in names if name not in there]
            if missing:
                raise file.broken(f"has no field {missing[0]!r}, which the manifest says it has")
            found |= {name: there[name] for name in names}
        lost = [stored for _, stored in columns if stored not in found]
        if lost:
            raise FormatError(
                f"has no field {lost[0]!r}, nor has a file beside it", path=shard.path, hint="restore it from a copy"
            )
        self._places = [found[stored] for _, stored in columns]
        self.descriptors: list[Descriptor] = [
            replace(file.descriptors[i], name=name) for (file, i), (name, _) in zip(self._places, columns, strict=True)
        ]
        self.directory: dict[tuple[int, int], Entry] = {
            key: entry for key, entry in shard.directory.items() if key[1] == NO_FIELD
        }
        for number, (file, i) in enumerate(self._places):
            self.directory |= {(kind, number): entry for (kind, field), entry in file.directory.items() if field == i}

    def place(self, field: int) -> Place:
        """The file that has a field, and its number there."""
        return self._places[field]

    def table(
        self, kind: Kind, field: int = NO_FIELD, rows: NDArray[np.int64] | None = None
    ) -> kernels.Table | None:  # fmt: skip
        """A table of the file that has the field."""
        file, number = (self.shard, NO_FIELD) if field == NO_FIELD else self._places[field]
        return file.table(kind, number, rows)

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_FIELDS:
            raise AttributeError(name)
        return partial(self._ask, name)

    def _ask(self, method: str, field: int, *arguments: Any) -> Any:
        file, number = self._places[field]
        return getattr(file, method)(number, *arguments)


_OF_FIELDS = frozenset(
    ("payloads", "payloads_of", "dictionary", "metadata_row", "is_missing", "payload", "payload_sizes")
)
"""What is asked of the file that has a field, whose number comes first."""


def place_of(file: Any, field: int) -> tuple[Any, int]:
    """The file that a field's values are in, of a shard that may be several, and the field's number there."""
    return file.place(field) if isinstance(file, JoinedFile) else (file, field)
