"""Where shards go that the workers of a cluster make: a disk they share with us, our own disk, or a store."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastloader.errors import StoreError
from fastloader.formats.fld import MANIFEST, Manifest, Shard, shard_name
from fastloader.formats.fld.remote_target import is_object, own_files, put_manifest
from fastloader.formats.fld.sending import published_manifest, remove_objects, send
from fastloader.formats.fld.target import refuse_foreign
from fastloader.stores import Directory, ObjectPath

PIECE = 8 << 20
"""Bytes of a shard that travel together from a worker that does not see our disk."""


@dataclass(frozen=True)
class Place:
    """A folder for shards, of a disk or of a store. ``mark`` is a file in it: who sees it sees the same disk."""

    folder: Path | ObjectPath
    mark: str = ""

    @classmethod
    def at(cls, folder: Path | ObjectPath) -> Place:
        """A folder, which gets its mark."""
        if isinstance(folder, ObjectPath):
            return cls(folder)
        mark = f".here-{secrets.token_hex(8)}"
        (folder / mark).touch()
        return cls(folder, mark)

    @contextmanager
    def workshop(self) -> Iterator[Path]:
        """Where this worker makes files for it: right there, or in a temporary folder."""
        if self.is_seen:
            assert isinstance(self.folder, Path)
            yield self.folder
            return
        aside = Directory(Path(tempfile.gettempdir()) / "fastloader-ray")  # takes away what killed workers have left
        try:
            yield aside.aside
        finally:
            aside.discard()

    @property
    def is_seen(self) -> bool:
        """Whether a file made there is where it should be."""
        return isinstance(self.folder, Path) and (self.folder / self.mark).exists()

    def bring(self, path: Path) -> Iterator[bytes]:
        """Bring a finished file there, as far as this worker can; the pieces that are left to who asked for it."""
        if isinstance(self.folder, ObjectPath):
            send(path, self.folder / path.name)
        elif not self.is_seen:
            with path.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece


class NewFolder:
    """A new folder of shards on a disk. It appears with its manifest, when all are there."""

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            refuse_foreign(path)
        self._folder = Directory(path)
        self.place = Place.at(self._folder.aside)

    def name(self, number: int) -> str:
        """The file name of a shard."""
        return shard_name(number)

    def finish(self, shards: tuple[Shard, ...]) -> None:
        """Publish."""
        folder = self._folder.aside
        kept = {shard.path for shard in shards}
        for path in folder.iterdir():
            if path.name not in kept:  # the mark, and what a killed worker has left
                path.unlink()
        Manifest(shards).save(folder)
        self._folder.publish()

    def discard(self) -> None:
        """Leave nothing behind."""
        self._folder.discard()


class NewObjects:
    """A new folder of shards in a store, or one in place of another: the manifest, put last, makes it a dataset."""

    def __init__(self, where: ObjectPath) -> None:
        self._where = where
        self._version, self._before = published_manifest(where / MANIFEST)
        if self._before is None and is_object(where):
            raise StoreError("is an object", path=where, hint="choose another name, or delete it first")
        self._token = secrets.token_hex(4)
        self._names: list[str] = []
        self._published = False
        self.place = Place.at(where)

    def name(self, number: int) -> str:
        """A name that nobody used before."""
        name = f"shard-{self._token}-{number:05d}.fld"
        self._names.append(name)
        return name

    def finish(self, shards: tuple[Shard, ...]) -> None:
        """Put the manifest, if the one there is still the one that was; then remove what it replaced."""
        self._published = True  # or so it may be: who is interrupted can't tell, and must remove nothing
        old = [] if self._before is None else own_files(self._where, self._before)
        put_manifest(self._where, shards, self._version, self._before)
        remove_objects(self._where, old)

    def discard(self) -> None:
        """Leave nothing behind that was not published."""
        if not self._published:
            remove_objects(self._where, self._names)


def new_folder(where: Path | ObjectPath) -> NewFolder | NewObjects:
    """A folder of shards to be made."""
    return NewObjects(where) if isinstance(where, ObjectPath) else NewFolder(where)
