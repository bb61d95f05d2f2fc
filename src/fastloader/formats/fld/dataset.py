"""A dataset as its files: one ``.fld``, or the shards a manifest names, opened when first needed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError, FormatError, StoreError
from fastloader.fields import Field, field_class
from fastloader.formats.fld.builder import FieldSpec
from fastloader.formats.fld.file import FldFile
from fastloader.formats.fld.layout import Descriptor
from fastloader.formats.fld.manifest import Manifest, Removed, Shard, is_sharded, shard_name
from fastloader.stores import ObjectPath

MAX_OPEN = 32_768
"""Shards kept mapped: half of what Linux lets a process map by default. Beyond that the first opened is let go."""


OPENED_AT_ONCE = 32
"""Objects that are opened at the same time: each takes a round trip or two, and nothing else."""


def load_shards(path: Path | ObjectPath) -> tuple[Shard, ...]:
    """The shards of a folder's current snapshot; paths are relative to it."""
    return load_manifest(path).shards


def load_manifest(path: Path | ObjectPath) -> Manifest:
    """A folder's current snapshot; it has shards."""
    manifest = Manifest.load(path)
    if not manifest.shards:
        raise FormatError("names no shards", path=path, hint="write at least one")
    return manifest


class Dataset:
    """The files of one snapshot and their common schema. Holds no lock and no thread, so forking is harmless.

    ``removed`` are rows that are no longer part of an archive, although the files have them.
    """

    def __init__(
        self,
        path: Path | ObjectPath,
        shards: tuple[Shard, ...] | None = None,
        removed: tuple[Removed, ...] = (),
    ) -> None:
        # Shards are opened later, perhaps in another working directory.
        self.path = path if isinstance(path, ObjectPath) else path.absolute()
        self._files: dict[int, FldFile] = {}
        # Not cached_property: in Python 3.11 it takes a lock, which a forked child might never get.
        self._schema_of: FldFile | None = None
        self._names: list[str] | None = None
        if shards is None and (path.is_dir() if isinstance(path, Path) else is_sharded(path)):
            manifest = load_manifest(path)
            shards, removed = manifest.shards, manifest.removed
        elif shards is None:
            # A single file is its own only shard, and stays open: it may be replaced while we read it.
            file = self._files[0] = FldFile(path)
            shards = (Shard("", file.num_samples, file.size, file.identity),)
        self.shards = shards
        self.removed = removed
        counts = np.fromiter((shard.num_samples for shard in self.shards), np.int64, len(self.shards))
        self.starts: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self.path, self.shards, self.removed)

    @property
    def is_remote(self) -> bool:
        """Whether the files are objects in a store."""
        return isinstance(self.path, ObjectPath)

    @property
    def local(self) -> Path:
        """Where it is, for what can only be done with local files; an error for objects in a store."""
        if isinstance(self.path, ObjectPath):
            raise StoreError(
                "is in a store; this is done with local files only", path=self.path,
                hint=f'get a copy with "fastloader store get -r {self.path} FOLDER"',
            )  # fmt: skip
        return self.path

    def warm(self, numbers: Sequence[int], use: Callable[[int], object]) -> None:
        """Call ``use`` for shards, which opens them: of objects many at a time, since each takes a round trip.

        What goes wrong is left to be found again by who needs the shard.
        """
        fresh = [number for number in numbers if number not in self._files]
        if not self.is_remote or len(fresh) < 2:
            return
        with contextlib.suppress(FastLoaderError):
            use(fresh[0])  # all compare their fields with the first
        with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(fresh)), "fastloader-opener") as pool:
            for opened in [pool.submit(use, number) for number in fresh[1:]]:
                with contextlib.suppress(FastLoaderError):
                    opened.result()

    @property
    def num_samples(self) -> int:
        """Samples in all shards."""
        return int(self.starts[-1])

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample, on average."""
        return sum(shard.size for shard in self.shards) // max(1, self.num_samples)

    def file(self, number: int) -> FldFile:
        """A shard's file, checked to be the one the snapshot means."""
        file = self._files.get(number)
        if file is None:
            first = self._first  # often the one asked for
            file = self._files.get(number) or self._open(number)
            if _schema(file.descriptors) != _schema(first.descriptors):
                raise FormatError(
                    f"has other fields than {first.path}", path=file.path, hint="restore the shard from a copy"
                )
            if file.has_keys != first.has_keys:
                raise FormatError(
                    f"differs from {first.path} in having keys", path=file.path, hint="restore the shard from a copy"
                )
            for old in list(self._files)[: max(0, len(self._files) - MAX_OPEN + 1)]:  # list(dict) is one step: no lock
                self._files.pop(old, None)
            self._files[number] = file
        return file

    def _open(self, number: int) -> FldFile:
        shard = self.shards[number]
        path = self.path / shard.path
        if isinstance(path, Path) and os.path.isdir(
            path
        ):  # a single file that was appended to since: it is the first shard of a folder now
            path /= shard_name(0)
        file = FldFile(path)
        if (file.num_samples, file.size, file.identity) != (shard.num_samples, shard.size, shard.identity):
            raise FormatError(
                "is not the file it was when the dataset was opened or its manifest written",
                path=file.path, hint="open the dataset again, or restore the shard",
            )  # fmt: skip
        return file

    @property
    def _first(self) -> FldFile:
        """The first shard that can be opened: losing any one shard leaves the others readable."""
        if self._schema_of is not None:
            return self._schema_of
        failure: Exception | None = None
        for number in range(len(self.shards)):
            try:
                file = self._files.get(number) or self._open(number)
            except (FastLoaderError, OSError) as error:
                failure = failure or error
            else:
                self._files[number] = self._schema_of = file
                return file
        assert failure is not None
        raise failure

    @property
    def descriptors(self) -> list[Descriptor]:
        """The fields as the first shard describes them."""
        return self._first.descriptors

    @property
    def names(self) -> list[str]:
        """Field names, in order."""
        if self._names is None:
            self._names = [descriptor.name for descriptor in self.descriptors]
        return self._names

    def field(self, number: int) -> Field:
        """A field with the options it was written with."""
        descriptor = self.descriptors[number]
        path = self._first.path
        try:
            field = field_class(descriptor.type_id).from_binary(descriptor.arguments)
            size = field.metadata_type.itemsize
        except FormatError as error:
            error.path, error.field = str(path), descriptor.name
            raise
        except Exception as error:
            raise FormatError(
                f"the stored options can't be read: {error}",
                path=path, field=descriptor.name,
                hint="the class has changed since the file was written, or it is damaged",
            ) from error  # fmt: skip
        if size != descriptor.metadata_size or field.has_payload != descriptor.has_payload:
            raise FormatError(
                f"{type(field).__name__} keeps {size} bytes of metadata a sample, the file {descriptor.metadata_size}",
                path=path, field=descriptor.name, hint="the class has changed since the file was written",
            )  # fmt: skip
        return field

    def specs(self) -> list[FieldSpec]:
        """The schema as a writer takes it."""
        return [FieldSpec(d.name, self.field(i), d.codec, d.level) for i, d in enumerate(self.descriptors)]

    @property
    def has_keys(self) -> bool:
        """Whether samples have keys."""
        return self._first.has_keys

    @property
    def is_archive(self) -> bool:
        """Whether samples are the files of an archive."""
        return self._first.is_archive

    @property
    def page_size(self) -> int:
        """Bytes of a page of the first shard."""
        return self._first.header.page_size

    def find(self, key: bytes) -> int | None:
        """The sample with this key; shards are asked in order."""
        for number in range(len(self.shards)):
            found = self.file(number).find(key)
            if found is not None:
                return int(self.starts[number]) + found
        return None

    def where(self, sample: int) -> tuple[int, int]:
        """Shard and row of a sample."""
        number = int(np.searchsorted(self.starts, sample, "right")) - 1
        return number, sample - int(self.starts[number])


def _schema(descriptors: list[Descriptor]) -> list[tuple[Any, ...]]:
    return [(d.name, d.type_id, d.flags, d.metadata_size, d.arguments) for d in descriptors]
