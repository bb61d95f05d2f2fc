"""A dataset as its files: one ``.fld``, or the shards a manifest names, opened when first needed."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError, FormatError, NotFoundError, StoreError
from fastloader.fields import Field, field_class
from fastloader.formats.fld.builder import FieldSpec
from fastloader.formats.fld.file import FldFile, tables_bytes
from fastloader.formats.fld.joined import JoinedFile, place_of
from fastloader.formats.fld.layout import Descriptor
from fastloader.formats.fld.manifest import Beside, Manifest, Removed, Shard, shard_name
from fastloader.formats.fld.runs import lay_runs
from fastloader.formats.fld.snapshots import load_snapshot
from fastloader.stores import ObjectPath

MAX_OPEN = 32_768
"""Shards kept mapped: half of what Linux lets a process map by default. Beyond that the first opened is let go."""


OPENED_AT_ONCE = 32
"""Objects that are opened at the same time: each takes a round trip or two, and nothing else."""
FIELDS = 2
"""As many are taken to be in the first object that is opened: then its tables mostly come with its header."""


def load_shards(path: Path | ObjectPath) -> tuple[Shard, ...]:
    """The shards of a folder's current snapshot; paths are relative to it."""
    return load_manifest(path).shards


def load_manifest(path: Path | ObjectPath, snapshot: int | str | None = None) -> Manifest:
    """A folder's newest snapshot, or another one; it has shards."""
    return (Manifest.load(path) if snapshot is None else load_snapshot(path, snapshot)).with_some(path)


class Dataset:
    """The files of one snapshot and their common schema. Holds no lock and no thread, so forking is harmless.

    Samples are the rows that are left, in the order of shards and rows; ``runs`` tells where each lies. ``file`` gives
    what a run is of: a shard, with the files beside it as far as they hold these rows. The first of these ``sources``
    are the shards, in order.
    """

    def __init__(
        self,
        path: Path | ObjectPath,
        given: Manifest | tuple[Shard, ...] | None = None,
        *,
        snapshot: int | str | None = None,
    ) -> None:
        # Shards are opened later, perhaps in another working directory.
        self.path = path if isinstance(path, ObjectPath) else path.absolute()
        self._files: dict[int, FldFile] = {}
        self._ahead: dict[int, FldFile] = {}  # opened, but not compared with the first yet
        # Not cached_property: in Python 3.11 it takes a lock, which a forked child might never get.
        self._schema_of: FldFile | None = None
        self._names: list[str] | None = None
        self._fields: dict[int, Field] = {}
        self._members: weakref.WeakValueDictionary[str, FldFile] = weakref.WeakValueDictionary()
        self._snapshot: str | None = None
        if given is None and isinstance(path, ObjectPath):
            given = Manifest.found(path)
            if given is not None and snapshot is not None:
                given = load_manifest(path, snapshot)
        elif given is None and isinstance(path, Path) and path.is_dir():
            given = load_manifest(path, snapshot)
        if given is None:
            # A single file is its own only shard, and stays open: it may be replaced while we read it.
            file = self._files[0] = FldFile(path)
            given = (Shard("", file.num_samples, file.size, file.identity),)
            if snapshot is not None and str(snapshot) not in ("1", _as_first(given[0]).id):
                raise NotFoundError(f"is a single file and has no snapshot {snapshot}", path=path, hint="leave it out")
        self.manifest = given if isinstance(given, Manifest) else Manifest(given)
        self.shards = self.manifest.shards
        counts = np.fromiter((shard.num_samples for shard in self.shards), np.int64, len(self.shards))
        told = self.manifest.removed
        removed = np.fromiter(chain.from_iterable(told), np.int64, 4 * len(told)).reshape(-1, 4)
        removed = removed[removed[:, 1] == 0][:, [0, 2, 3]]
        beside = [(one.shard, one.rows) for one in self.manifest.beside]
        self.runs, self.sources = lay_runs(counts, removed, beside)
        # Where each shard begins among all rows, removed ones too, and the number of all.
        self.row_starts: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self.path, self.manifest)

    @property
    def removed(self) -> tuple[Removed, ...]:
        """Rows that are no longer part of it, although the files have them."""
        return self.manifest.removed

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each run of samples begins, and the number of all."""
        return self.runs.starts

    @property
    def objects(self) -> tuple[Shard | Beside, ...]:
        """All its files: shards, and those beside them."""
        return self.manifest.files

    @property
    def snapshot(self) -> str:
        """What this snapshot is called: a single file's is that of a folder with this file alone."""
        if self._snapshot is None:
            is_file = len(self.shards) == 1 and not self.shards[0].path
            self._snapshot = (_as_first(self.shards[0]) if is_file else self.manifest).id
        return self._snapshot

    @property
    def origin(self) -> str:
        """What tells it from another dataset that may be there another day."""
        return self.snapshot

    def at_snapshot(self, snapshot: int | str) -> Dataset:
        """The same dataset as it is, or was, in another snapshot."""
        if snapshot == self.snapshot:
            return self
        if isinstance(self.path, Path) and not self.path.is_dir():
            raise NotFoundError(f"is a single file and has no snapshot {snapshot}", path=self.path)
        return Dataset(self.path, load_manifest(self.path, snapshot))

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
        with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(fresh)), "fastloader-opener") as pool:

            def each(do: Callable[[int], object]) -> None:
                for done in [pool.submit(do, number) for number in fresh]:
                    with contextlib.suppress(FastLoaderError, OSError):
                        done.result()

            if self._schema_of is None:  # all compare their fields with the first, which comes along with them
                each(self._open_ahead)
                with contextlib.suppress(FastLoaderError, OSError):
                    self._first  # noqa: B018 - opened by one thread
            each(use)
        self._ahead.clear()

    def _open_ahead(self, number: int) -> None:
        self._ahead[number] = self._open(number)

    @property
    def num_samples(self) -> int:
        """Samples in all shards."""
        return len(self.runs)

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample, on average."""
        return sum(one.size for one in self.objects) // max(1, self.num_samples)

    def file(self, number: int) -> FldFile:
        """A shard's file, checked to be the one the snapshot means."""
        file = self._files.get(number)
        if file is None:
            first = self._first  # often the one asked for
            file = self._files.get(number) or self._ahead.pop(number, None) or self._open(number)
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
        source, columns = self.sources[number], self.manifest.columns
        if columns is None:
            return self._member(self.shards[source.shard])
        shard = self._shared(self.shards[source.shard])
        beside = [self.manifest.beside[i] for i in source.beside]
        count = shard.num_samples
        files = [(self._shared(Shard(one.path, count, one.size, one.identity)), one.names) for one in beside]
        return cast("FldFile", JoinedFile(shard, files, columns))  # it has all that is asked of one

    def _shared(self, member: Shard) -> FldFile:
        """A file that may be part of several sources, opened once while any of them is."""
        file = self._members.get(member.path)
        if file is None:
            file = self._members[member.path] = self._member(member)
        return file

    def _member(self, member: Shard) -> FldFile:
        path = self.path / member.path
        if isinstance(path, Path) and os.path.isdir(
            path
        ):  # a single file that was appended to since: it is the first shard of a folder now
            path /= shard_name(0)
        told = None
        if self.is_remote:  # what its tables take is known but for the number of fields
            fields = FIELDS if self._schema_of is None else len(self._schema_of.descriptors)
            told = (member.size, tables_bytes(member.num_samples, fields, member.size))
        file = FldFile(path, told)
        if (file.num_samples, file.size, file.identity) != (member.num_samples, member.size, member.identity):
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
                file = self._files.get(number) or self._ahead.pop(number, None) or self._open(number)
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
        """A field with the options it was written with. It is read once: a loader asks for each several times."""
        field = self._fields.get(number)
        if field is None:
            field = stored_field(self.descriptors[number], place_of(self._first, number)[0].path)
            self._fields[number] = field
        return field

    def members(self, shard: int) -> list[FldFile]:
        """The files of a shard: its own, and all that are beside it."""
        if self.manifest.columns is None:
            return [self.file(shard)]
        count = self.shards[shard].num_samples
        beside = [one for one in self.manifest.beside if one.shard == shard]
        files = [Shard(one.path, count, one.size, one.identity) for one in beside]
        return [self._shared(one) for one in (self.shards[shard], *files)]

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
        """The sample with this key; shards are asked in order, and rows that are removed are passed over."""
        for number in range(len(self.shards)):
            found = self.file(number).find(key)
            if found is not None:
                place = int(self.row_starts[number]) + found
                sample = self.runs.sample_at(place) if self.removed else place
                if sample is not None:
                    return sample
        return None

    def where(self, sample: int) -> tuple[int, int]:
        """Source and row of a sample."""
        return self.runs.where(sample)


def _as_first(shard: Shard) -> Manifest:
    """What a single file becomes the first snapshot of, when something is added to it."""
    return Manifest((Shard(shard_name(0), shard.num_samples, shard.size, shard.identity),))


def _schema(descriptors: list[Descriptor]) -> list[tuple[Any, ...]]:
    return [(d.name, d.type_id, d.flags, d.metadata_size, d.arguments) for d in descriptors]


def stored_field(descriptor: Descriptor, path: Path | ObjectPath) -> Field:
    """The field that a file describes, with the options it was written with."""
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
