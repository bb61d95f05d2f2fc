"""Where a writer's chunks end up: one file, a new folder of shards, or more shards in a folder that is there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from fastloader.errors import FormatError, StoreError
from fastloader.formats.fld.builder import Chunk, FieldSpec, FldBuilder
from fastloader.formats.fld.changing import publish
from fastloader.formats.fld.dataset import Dataset
from fastloader.formats.fld.key_index import SharedHashes, given_twice
from fastloader.formats.fld.manifest import MANIFEST, Beside, Manifest, Removed, Shard, is_sharded, shard_name
from fastloader.formats.fld.snapshots import FOLDER, keep
from fastloader.stores import ChangedError, Directory, exchange
from fastloader.stores.local import explain, locked, sync_directory

_OWN = re.compile(rf"(shard|beside)-([0-9a-f]{{8}}-)?\d{{5,}}\.fld|\..+\.writing-.+|{FOLDER}")
"""Files a writer makes: shards, files beside them, snapshots, and what a killed one left aside."""


class Target(Protocol):
    """Takes encoded chunks in order; publishes all of them, or none."""

    def append(self, chunk: Chunk) -> None:
        """Store the next samples."""

    def finish(self) -> None:
        """Publish."""

    def discard(self) -> None:
        """Leave nothing behind."""


class FileTarget:
    """One file."""

    def __init__(self, path: Path, specs: Sequence[FieldSpec], page_size: int, *, keys: bool) -> None:
        if path.is_dir():
            raise StoreError("is a folder", path=path, hint="choose another name, or give shard_size to write shards")
        self._builder = FldBuilder(path, specs, page_size, keys=keys)

    def append(self, chunk: Chunk) -> None:
        """Store the next samples."""
        self._builder.append(chunk)

    def finish(self) -> None:
        """Publish the file."""
        self._builder.finish()

    def discard(self) -> None:
        """Leave nothing behind."""
        self._builder.discard()


class Shards:
    """Shards written one after the other into a folder, each begun when the one before is full."""

    def __init__(
        self, folder: Path, specs: Sequence[FieldSpec], page_size: int, *, keys: bool, shard_size: int | None,
        first: int = 0, samples: int = 0,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.done: list[Shard] = []
        self._make = partial(FldBuilder, specs=specs, page_size=page_size, keys=keys, data_limit=shard_size)
        self._number = first
        self._first_sample = self._samples = samples
        self._hashes = SharedHashes(folder / "keys") if keys else None
        self._builder = self._begin()

    def name(self, number: int) -> str:
        """The file name of a shard."""
        return shard_name(number)

    def ended(self, shard: Shard) -> None:
        """A shard is finished."""

    def written(self) -> Dataset:
        """The finished shards, for reading."""
        return Dataset(self.folder, tuple(self.done))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing yet."""
        return not self.done and self._builder.is_empty

    def _begin(self) -> FldBuilder:
        return self._make(self.folder / self.name(self._number), first_sample=self._samples)

    def append(self, chunk: Chunk) -> None:
        """Store the next samples, in as many shards as they take."""
        first = 0
        while True:
            taken = self._builder.append(chunk, first)
            if self._hashes is not None and chunk.keys is not None:
                self._hashes.append(chunk.keys[first : first + taken], self._samples)
            first += taken
            self._samples += taken
            if first == chunk.count:
                return
            self._end()
            self._builder = self._begin()

    def _end(self) -> None:
        samples = self._builder.num_samples
        size, identity = self._builder.finish()
        shard = Shard(self.name(self._number), samples, size, identity)
        self.done.append(shard)
        self._number += 1
        self.ended(shard)

    def _refuse_duplicates(self, hashes: SharedHashes) -> None:
        """Within a shard its key index finds them. Across shards all are compared at the end: a lookup of every key in
        every shard before would take time that grows with the square of the shards.
        """
        written = self.written()
        for samples in hashes.groups():
            seen: dict[bytes, int] = {}
            for sample in samples:
                number, row = written.where(sample - self._first_sample)
                keys = written.file(number).keys()
                assert keys is not None
                key = keys.key(row)
                if key in seen:
                    raise given_twice(key, seen[key], sample)
                seen[key] = sample

    def finish(self) -> list[Shard]:
        """End the last shard; all of them."""
        if not self._builder.is_empty or not self.done:
            self._end()
        else:
            self._builder.discard()
        if self._hashes is not None and len(self.done) > 1:
            self._refuse_duplicates(self._hashes)
        self.discard()
        return self.done

    def discard(self) -> None:
        """Forget the shard under construction."""
        self._builder.discard()
        if self._hashes is not None:
            self._hashes.close()


class FolderTarget:
    """A new folder of shards."""

    def __init__(self, path: Path, specs: Sequence[FieldSpec], page_size: int, *, keys: bool, shard_size: int) -> None:
        if path.is_dir():
            refuse_foreign(path)
        self._folder = Directory(path)
        self._told = partial(_told_as, self._folder.aside, path)
        try:
            with self._told():
                self._shards = Shards(self._folder.aside, specs, page_size, keys=keys, shard_size=shard_size)
        except BaseException:
            self._folder.discard()
            raise

    def append(self, chunk: Chunk) -> None:
        """Store the next samples."""
        with self._told():
            self._shards.append(chunk)

    def finish(self) -> None:
        """Publish the folder."""
        with self._told():
            Manifest(tuple(self._shards.finish())).save(self._folder.aside)
            self._folder.publish()

    def discard(self) -> None:
        """Leave nothing behind."""
        self._shards.discard()
        self._folder.discard()


class AppendTarget:
    """More shards behind those of an existing dataset. A single file becomes the first shard of a folder.

    ``removed`` are rows of the shards there that are taken out of an archive in the same step.
    """

    removed: Sequence[Removed] = ()

    def __init__(
        self, existing: Dataset, specs: Sequence[FieldSpec], page_size: int, *, keys: bool, shard_size: int | None
    ) -> None:
        self._existing = existing
        specs = stored_specs(specs, existing)
        # New shards are made in a folder of their own, so that a killed append leaves nothing among the old ones.
        beside = existing.local.with_name(existing.local.name + ".append")
        with _told_as(beside, existing.local):
            self._aside = Directory(beside)
        self._told = partial(_told_as, self._aside.aside, existing.local)
        self._sharded = is_sharded(existing.local)
        try:
            taken = len(existing.shards)
            while self._sharded and (existing.local / shard_name(taken)).exists():
                taken += 1
            with self._told():
                self._shards = Shards(
                    self._aside.aside, specs, page_size, keys=keys, shard_size=shard_size, first=taken,
                    samples=existing.num_samples,
                )  # fmt: skip
        except BaseException:
            self._aside.discard()
            raise

    def append(self, chunk: Chunk) -> None:
        """Store the next samples."""
        with self._told():
            self._shards.append(chunk)

    def finish(self) -> None:
        """Move the new shards in and swap the manifest. Where nothing was added, nothing changes."""
        if self._shards.is_empty and not self.removed:
            self.discard()
            return
        with self._told():
            fresh = self._shards.finish() if not self._shards.is_empty else []
            self._shards.discard()
            if self._sharded:
                self._add_to_folder(fresh)
            else:
                turn_into_folder(self._existing, fresh, self.removed, self._aside.aside)
        self._aside.discard()

    def _add_to_folder(self, fresh: list[Shard]) -> None:
        before = self._existing.manifest
        after = before.with_shards(fresh, self.removed)
        try:
            publish(self._existing.local, before, after, [(self._aside.aside / one.path, one.path) for one in fresh])
        except ChangedError as error:
            raise self._changed() from error

    def _changed(self) -> StoreError:
        return _changed(self._existing.local)

    def discard(self) -> None:
        """Leave nothing behind."""
        self._shards.discard()
        self._aside.discard()


def turn_into_folder(
    dataset: Dataset, fresh: Sequence[Shard] = (), removed: Sequence[Removed] = (), aside: Path | None = None
) -> None:
    """Make a folder of a single file, which becomes its first shard; those in ``aside``, if there are any, follow."""
    path = dataset.local
    if aside is None:
        folder = Directory(path.with_name(path.name + ".append"))
        try:
            return turn_into_folder(dataset, fresh, removed, folder.aside)
        finally:
            folder.discard()
    first = replace(dataset.shards[0], path=shard_name(0))
    with locked(path.parent):
        if not path.is_file():
            raise _changed(path)
        with _explained(path, "to add to a file, it must be possible to link it; write a folder of shards instead"):
            os.link(path, aside / first.path)
        try:
            Dataset(aside, (first,)).file(0)
        except FormatError as error:
            raise _changed(path) from error
        alone = Manifest((first,))
        if fresh or removed:
            keep(aside, alone)
            alone = alone.with_shards(fresh, removed)
        alone.save(aside)
        exchange(aside, path)
        with _explained(path.parent):
            sync_directory(path.parent)


def as_folder(dataset: Dataset) -> Dataset:
    """The dataset as a folder of shards. A single local file becomes the first shard of one, in one step."""
    if is_sharded(dataset.path):
        return dataset
    if dataset.is_remote:
        raise StoreError(
            "is a single object, which can't be changed", path=dataset.path,
            hint="write it with shard_size, as a folder of shards",
        )  # fmt: skip
    turn_into_folder(dataset)
    return Dataset(dataset.local, Manifest((replace(dataset.shards[0], path=shard_name(0)),)))


def _changed(path: Path) -> StoreError:
    return ChangedError(
        "was changed by another writer in the meantime; nothing was added", path=path, hint="append again"
    )


def stored_specs(specs: Sequence[FieldSpec], existing: Dataset | None) -> Sequence[FieldSpec]:
    """Fields by the names that those of the dataset that is added to are stored under."""
    if existing is None or existing.manifest.columns is None:
        return specs
    return [replace(spec, name=stored) for spec, (_, stored) in zip(specs, existing.manifest.columns, strict=True)]


def concatenated(datasets: Sequence[Dataset], named: Callable[[Dataset, str], str], snapshot: int = 1) -> Manifest:
    """A manifest that names the files of several datasets, by paths that ``named`` gives."""
    if len({dataset.manifest.columns for dataset in datasets}) > 1:
        other = next(one for one in datasets if one.manifest.columns != datasets[0].manifest.columns)
        raise FormatError(
            f"stores its fields under other names than {datasets[0].path}: columns were added, renamed or dropped",
            path=other.path, hint="write it anew, or do the same to the other",
        )  # fmt: skip
    shards: list[Shard] = []
    removed: list[Removed] = []
    beside: list[Beside] = []
    for dataset in datasets:
        first = len(shards)
        removed += [one._replace(shard=one.shard + first) for one in dataset.removed]
        beside += [
            replace(one, shard=one.shard + first, path=named(dataset, one.path)) for one in dataset.manifest.beside
        ]
        shards += [replace(shard, path=named(dataset, shard.path)) for shard in dataset.shards]
    return Manifest(tuple(shards), snapshot, tuple(removed), datasets[0].manifest.columns, tuple(beside))


def concatenate_shards(path: Path, datasets: Sequence[Dataset]) -> None:
    """A folder whose manifest names the shards of other datasets."""
    here = path.resolve()

    def named(dataset: Dataset, name: str) -> str:
        place = (dataset.local / name).resolve()
        if place.is_relative_to(here):
            raise StoreError(
                f"would be replaced, and its own {place.name} with it", path=path, hint="choose another name"
            )
        return os.path.relpath(place, here)

    manifest = concatenated(datasets, named)
    if path.is_dir():
        refuse_foreign(path)
    folder = Directory(path)
    try:
        manifest.save(folder.aside)
        folder.publish()
    finally:
        folder.discard()


@contextlib.contextmanager
def _told_as(aside: Path, path: Path) -> Iterator[None]:
    """Errors about files under construction name the path the user gave, not the hidden one they are made under."""
    try:
        yield
    except StoreError as error:
        if error.path is not None:
            error.path = error.path.replace(str(aside), str(path))
        raise


@contextlib.contextmanager
def _explained(path: Path, hint: str | None = None) -> Iterator[None]:
    """What the system refuses becomes an error that names the file and what to do."""
    try:
        yield
    except OSError as error:
        raise explain(error, path, hint) from error


def refuse_foreign(folder: Path) -> None:
    """A folder is replaced only when everything in it is the dataset's own."""
    foreign = sorted(p.name for p in folder.iterdir() if p.name != MANIFEST and not _OWN.fullmatch(p.name))
    if not is_sharded(folder) or foreign:
        named = f"it holds {foreign[0]}" if foreign else f"it has no {MANIFEST}"
        raise StoreError(f"is a folder that is no dataset: {named}", path=folder, hint="choose another name")


__all__ = [
    "AppendTarget", "FileTarget", "FolderTarget", "Shards", "Target", "as_folder", "concatenate_shards", "concatenated",
    "refuse_foreign", "stored_specs", "turn_into_folder",
]  # fmt: skip
