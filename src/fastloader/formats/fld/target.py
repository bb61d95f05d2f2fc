"""Where a writer's chunks end up: one file, a new folder of shards, or more shards in a folder that is there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from fastloader.errors import FormatError, StoreError
from fastloader.formats.fld.builder import Chunk, FieldSpec, FldBuilder
from fastloader.formats.fld.dataset import Dataset
from fastloader.formats.fld.key_index import SharedHashes, given_twice
from fastloader.formats.fld.manifest import MANIFEST, Manifest, Removed, Shard, is_sharded, shard_name
from fastloader.stores import Directory, exchange
from fastloader.stores.local import explain, locked, sync_directory

_OWN = re.compile(r"shard-\d{5,}\.fld|\..+\.writing-.+")
"""Files a writer makes: shards, and what a killed one left aside."""


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
                self._turn_into_folder(fresh)
        self._aside.discard()

    def _add_to_folder(self, fresh: list[Shard]) -> None:
        folder = self._existing.local
        moved: list[Path] = []
        with locked(folder):
            manifest = Manifest.load(folder)
            try:
                if manifest.shards != self._existing.shards:
                    raise self._changed()
                for shard in fresh:
                    target = folder / shard.path
                    if target.exists():
                        raise self._changed()
                    with _explained(target, "the shard could not be moved into the folder; nothing was added"):
                        os.rename(self._aside.aside / shard.path, target)
                    moved.append(target)
                manifest.with_shards(fresh, self.removed).save(folder)
            except BaseException:
                named = {shard.path for shard in Manifest.load(folder).shards}  # an interrupt may come after the swap
                for target in moved:
                    if target.name not in named:
                        with contextlib.suppress(OSError):
                            target.unlink()
                raise

    def _turn_into_folder(self, fresh: list[Shard]) -> None:
        path, aside = self._existing.local, self._aside.aside
        first = replace(self._existing.shards[0], path=shard_name(0))
        with locked(path.parent):
            if not path.is_file():
                raise self._changed()
            with _explained(path, "to add to a file, it must be possible to link it; write a folder of shards instead"):
                os.link(path, aside / first.path)
            try:
                Dataset(aside, (first,)).file(0)
            except FormatError as error:
                raise self._changed() from error
            Manifest((first, *fresh), removed=tuple(self.removed)).save(aside)
            exchange(aside, path)
            with _explained(path.parent):
                sync_directory(path.parent)

    def _changed(self) -> StoreError:
        return StoreError(
            "was changed by another writer in the meantime; nothing was added", path=self._existing.local,
            hint="append again",
        )  # fmt: skip

    def discard(self) -> None:
        """Leave nothing behind."""
        self._shards.discard()
        self._aside.discard()


def concatenate_shards(path: Path, datasets: Sequence[Dataset]) -> None:
    """A folder whose manifest names the shards of other datasets."""
    here = path.resolve()
    shards: list[Shard] = []
    removed: list[Removed] = []
    for dataset in datasets:
        removed += [replace(one, shard=one.shard + len(shards)) for one in dataset.removed]
        for shard in dataset.shards:
            place = (dataset.local / shard.path).resolve()
            if place.is_relative_to(here):
                raise StoreError(
                    f"would be replaced, and its own {place.name} with it", path=path, hint="choose another name"
                )
            shards.append(replace(shard, path=os.path.relpath(place, here)))
    if path.is_dir():
        refuse_foreign(path)
    folder = Directory(path)
    try:
        Manifest(tuple(shards), removed=tuple(removed)).save(folder.aside)
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


__all__ = ["AppendTarget", "FileTarget", "FolderTarget", "Shards", "Target", "concatenate_shards", "refuse_foreign"]
