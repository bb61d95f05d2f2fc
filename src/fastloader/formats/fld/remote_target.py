"""Datasets written into an object store.

A file's header comes first and is known last, and a store takes bytes front to back. So a shard is made in a temporary
folder and sent, in parts, while the next one is made. Shards have names that nobody used before; the manifest, put last
and only if it is still the one that was there at the beginning, makes them a dataset. Until then a reader sees what was
there before, and a writer that fails takes its shards away again.
"""

from __future__ import annotations

import posixpath
import secrets
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from fastloader.errors import StoreError
from fastloader.formats.fld.builder import Chunk, FieldSpec, FldBuilder
from fastloader.formats.fld.dataset import Dataset
from fastloader.formats.fld.manifest import MANIFEST, Manifest, Shard, is_sharded
from fastloader.formats.fld.sending import (
    published_manifest,
    refuse_web_servers,
    remove_objects,
    send,
    send_in_place_of,
    version_at,
)
from fastloader.formats.fld.snapshots import changed, history, kept_numbers, replace_newest, snapshot_name
from fastloader.formats.fld.target import Shards, concatenated, stored_specs
from fastloader.stores import ObjectPath
from fastloader.stores.local import Scratch

WAITING = 1
"""Finished shards that wait while another is sent; making more of them would only fill the disk."""


class ObjectTarget:
    """One object, in place of the one that is there when writing begins, and of no other."""

    def __init__(self, where: ObjectPath, specs: Sequence[FieldSpec], page_size: int, *, keys: bool) -> None:
        refuse_web_servers(where)
        if is_sharded(where):
            raise StoreError("is a folder of shards", path=where, hint="choose another name, or give shard_size")
        self._where = where
        self._version = version_at(where)
        self._scratch = Scratch()
        self._file = self._scratch.path / "one.fld"
        self._builder = FldBuilder(self._file, specs, page_size, keys=keys)

    def append(self, chunk: Chunk) -> None:
        """Store the next samples."""
        self._builder.append(chunk)

    def finish(self) -> None:
        """Send the file; it appears when all of it is there."""
        self._builder.finish()
        send_in_place_of(self._version, self._file, self._where)
        self.discard()

    def discard(self) -> None:
        """Leave nothing behind."""
        self._builder.discard()
        self._scratch.discard()


class _SentShards(Shards):
    """Shards that are sent, one after the other, as soon as they are finished."""

    def __init__(
        self, folder: Path, to: ObjectPath, specs: Sequence[FieldSpec], page_size: int, *, keys: bool,
        shard_size: int | None, first: int, samples: int,
    ) -> None:  # fmt: skip
        self._token = secrets.token_hex(4)
        self._to = to
        self._pool = ThreadPoolExecutor(1, "fastloader-sender")
        self._sending: deque[Future[None]] = deque()
        super().__init__(
            folder, specs, page_size, keys=keys, shard_size=shard_size, first=first, samples=samples
        )  # fmt: skip

    def name(self, number: int) -> str:
        return f"shard-{self._token}-{number:05d}.fld"

    def written(self) -> Dataset:
        self.settle()
        return Dataset(self._to, tuple(self.done))

    def ended(self, shard: Shard) -> None:
        while len(self._sending) > WAITING:
            self._sending.popleft().result()
        self._sending.append(self._pool.submit(self._send, self.folder / shard.path, self._to / shard.path))

    def _send(self, path: Path, to: ObjectPath) -> None:
        send(path, to)
        path.unlink()

    def settle(self) -> None:
        """Wait until all are sent; raises what went wrong."""
        while self._sending:
            self._sending.popleft().result()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class BucketTarget:
    """A folder of shards in a store: a new one, one in place of another, or more shards behind those there."""

    def __init__(
        self, where: ObjectPath, specs: Sequence[FieldSpec], page_size: int, *, keys: bool, shard_size: int | None,
        existing: Dataset | None = None,
    ) -> None:  # fmt: skip
        refuse_web_servers(where)
        self._where = where
        self._manifest = where / MANIFEST
        self._version, self._before = published_manifest(self._manifest)
        self._existing = existing
        if existing is not None and self._before not in (None, existing.manifest):
            raise changed(where)
        if existing is not None and self._before is None:
            raise StoreError("is no folder of shards, so none can be added", path=where, hint="write it anew")
        if existing is None and self._before is None and is_object(where):
            raise StoreError("is an object", path=where, hint="choose another name, or delete it first")
        first = 0 if existing is None else len(existing.shards)
        specs = stored_specs(specs, existing)
        self._scratch = Scratch()
        try:
            self._shards = _SentShards(
                self._scratch.path, where, specs, page_size, keys=keys, shard_size=shard_size, first=first,
                samples=0 if existing is None else existing.num_samples,
            )  # fmt: skip
        except BaseException:
            self._scratch.discard()
            raise
        self._published = False

    def append(self, chunk: Chunk) -> None:
        """Store the next samples."""
        self._shards.append(chunk)

    def finish(self) -> None:
        """Send the rest, then the manifest."""
        if self._existing is not None and self._shards.is_empty:
            self.discard()
            return
        fresh = self._shards.finish()
        self._shards.settle()
        before = self._before
        added = before is not None and self._existing is not None
        after = before.with_shards(fresh) if added and before is not None else _anew(tuple(fresh), before)
        old = [] if added or before is None else own_files(self._where, before)
        self._published = True  # or so it may be, from here on: who is interrupted can't tell, and must remove nothing
        try:
            replace_newest(self._where, after, self._version, before)
        except StoreError:
            self._published = self._is_newest(after)
            raise
        remove_objects(self._where, old)
        self.discard()

    def _is_newest(self, manifest: Manifest) -> bool:
        """Whether this is the manifest there; where that can't be told, it may."""
        try:
            _, found = published_manifest(self._manifest)
        except StoreError:
            return True
        return found == manifest

    def discard(self) -> None:
        """Leave nothing behind that was not published."""
        self._shards.discard()
        self._shards.close()
        if not self._published:
            remove_objects(self._where, [shard.path for shard in self._shards.done])
        self._scratch.discard()


def put_manifest(where: ObjectPath, shards: tuple[Shard, ...], version: str | None, before: Manifest | None) -> None:
    """Make these shards the dataset, in place of what is there, if that is still what was found."""
    replace_newest(where, _anew(shards, before), version, before)


def _anew(shards: tuple[Shard, ...], before: Manifest | None) -> Manifest:
    """A dataset of these shards alone, which has nothing to do with what was there but counts on from it."""
    return Manifest(shards, 1 if before is None else before.snapshot + 1)


def own_files(where: ObjectPath, before: Manifest) -> list[str]:
    """What was made for the dataset there, in all its snapshots: what replaces it may remove that."""
    made = {name for manifest in history(where) for name in manifest.own_files()}
    return [*sorted({*made, *before.own_files()}), *(snapshot_name(number) for number in kept_numbers(where))]


def concatenate_objects(where: ObjectPath, datasets: Sequence[Dataset]) -> None:
    """A manifest in a store that names the shards of other datasets there."""
    version, before = published_manifest(where / MANIFEST)

    def named(dataset: Dataset, path: str) -> str:
        place = dataset.path / path
        assert isinstance(place, ObjectPath)
        if f"{place.key}/".startswith(f"{where.key}/"):
            raise StoreError(
                f"would be replaced, and its own {place.name} with it", path=where, hint="choose another name"
            )
        return posixpath.relpath(place.key, where.key)

    manifest = concatenated(datasets, named, 1 if before is None else before.snapshot + 1)
    old = [] if before is None else own_files(where, before)
    replace_newest(where, manifest, version, before)
    remove_objects(where, old)


def is_object(where: ObjectPath) -> bool:
    """Whether there is an object of this very name."""
    return version_at(where) is not None
