"""The next snapshot of a folder of shards: its new files brought there, then the manifest replaced in one step.

Whoever is killed on the way leaves files that no snapshot names. Of two who began with the same snapshot, the first to
replace the manifest wins; the other is told so, and takes its files away again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastloader.errors import StoreError
from fastloader.formats.fld.dataset import Dataset
from fastloader.formats.fld.manifest import MANIFEST, Manifest
from fastloader.formats.fld.sending import published_manifest, remove_objects, send
from fastloader.formats.fld.snapshots import changed, keep, replace_newest
from fastloader.stores import Directory, ObjectPath
from fastloader.stores.local import Scratch, explain, locked, sync_directory


class FolderChange:
    """A change of a local folder of shards. New files are made in a folder aside, and moved in under the lock.

    A single file becomes the first shard of a folder, as when samples are added to it.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._folder = dataset.local
        self.before = dataset.manifest
        self._token = f"{self.before.snapshot + 1:08x}"
        self._aside = Directory(self._folder.with_name(self._folder.name + ".change"))
        self._fresh: list[str] = []

    def name(self, kind: str, number: int) -> str:
        """A name that no file of any snapshot has: it tells of which one it is."""
        return f"{kind}-{self._token}-{number:05d}.fld"

    def place(self, name: str) -> Path:
        """Where a new file is to be made."""
        return self._aside.aside / name

    def made(self, name: str) -> None:
        """A new file is finished."""
        self._fresh.append(name)

    def commit(self, after: Manifest) -> None:
        """Make it the newest snapshot."""
        publish(self._folder, self.before, after, [(self.place(name), name) for name in self._fresh])
        self.discard()

    def discard(self) -> None:
        """Leave nothing behind that was not published."""
        self._aside.discard()


class BucketChange:
    """A change of a folder in a store. New files are made in a temporary folder and sent as soon as they are done."""

    def __init__(self, dataset: Dataset) -> None:
        assert isinstance(dataset.path, ObjectPath)
        self._where = dataset.path
        self._version, newest = published_manifest(self._where / MANIFEST)
        if newest != dataset.manifest:
            raise changed(self._where)
        self.before = dataset.manifest
        self._token = secrets.token_hex(4)
        self._scratch = Scratch()
        self._fresh: list[str] = []

    def name(self, kind: str, number: int) -> str:
        """A name that nobody used before."""
        return f"{kind}-{self._token}-{number:05d}.fld"

    def place(self, name: str) -> Path:
        """Where a new file is to be made."""
        return self._scratch.path / name

    def made(self, name: str) -> None:
        """A new file is finished: it is sent."""
        self._fresh.append(name)
        send(self.place(name), self._where / name)
        self.place(name).unlink()

    def commit(self, after: Manifest) -> None:
        """Make it the newest snapshot, if the one there is still the one that was."""
        fresh, self._fresh = self._fresh, []  # who is interrupted from here on can't tell, and must remove nothing
        try:
            replace_newest(self._where, after, self._version, self.before)
        except StoreError:
            with contextlib.suppress(StoreError):
                if published_manifest(self._where / MANIFEST)[1] != after:
                    self._fresh = fresh
            raise
        self.discard()

    def discard(self) -> None:
        """Leave nothing behind that was not published."""
        remove_objects(self._where, self._fresh)
        self._fresh = []
        self._scratch.discard()


FolderOrBucket = FolderChange | BucketChange


@contextlib.contextmanager
def changing(dataset: Dataset) -> Iterator[FolderOrBucket]:
    """A change of a dataset's folder; what was not committed at the end leaves nothing behind."""
    change = BucketChange(dataset) if dataset.is_remote else FolderChange(dataset)
    try:
        yield change
    finally:
        change.discard()


def publish(folder: Path, before: Manifest, after: Manifest, moves: Sequence[tuple[Path, str]]) -> None:
    """Make ``after`` the newest snapshot of a local folder, if ``before`` still is; its new files are moved in first.

    On an error nothing has changed.
    """
    moved: list[Path] = []
    with locked(folder):
        if Manifest.load(folder) != before:
            raise changed(folder)
        try:
            for path, name in moves:
                target = folder / name
                try:
                    os.rename(path, target)  # what is there was left by one who was killed: no snapshot names it
                except OSError as error:
                    raise explain(
                        error, target, "a new file could not be moved into the folder; nothing was changed"
                    ) from error
                moved.append(target)
            keep(folder, before)
            after.save(folder)
        except BaseException:
            newest = Manifest.load(folder)  # an interrupt may come after the swap
            named = {one.path for one in newest.files}
            for target in moved:
                if target.name not in named:
                    with contextlib.suppress(OSError):
                        target.unlink()
            raise
        sync_directory(folder)
