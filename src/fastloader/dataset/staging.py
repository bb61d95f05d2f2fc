"""Where a conversion into shards keeps what is done, so that one that was interrupted can go on.

A local one works in a folder aside, which becomes the dataset by renaming. Objects can't be renamed: in a store, shards
are sent to a folder of their own within the dataset's, and become the dataset when a manifest there names them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from fastloader.errors import NotFoundError, StoreError
from fastloader.formats.fld import MANIFEST, Manifest
from fastloader.formats.fld import Dataset as Stored
from fastloader.formats.fld.remote_target import own_files, put_manifest
from fastloader.formats.fld.sending import published_manifest, remove_objects
from fastloader.formats.fld.snapshots import FOLDER
from fastloader.formats.fld.target import refuse_foreign
from fastloader.stores import ChangedError, ObjectPath, exchange, write_atomically
from fastloader.stores.copying import below
from fastloader.stores.local import remove, sync_directory

MARKER = "conversion.json"
"""What is being converted, told beside what is done of it."""
_TOKEN = re.compile(rb"[0-9a-f]{8}")


class Stage(Protocol):
    """The shards written so far."""

    @property
    def data(self) -> str:
        """The dataset that they are, for a writer to add to."""

    @property
    def storage_options(self) -> Mapping[str, Any] | None:
        """For that writer."""

    @property
    def folder(self) -> Path | ObjectPath:
        """Where the shards are."""

    def begin(self, about: bytes) -> None:
        """Make sure that what is there is of this conversion, or that there is nothing yet."""

    def samples(self) -> int:
        """How many samples there are already, of a conversion that goes on behind the last of them."""

    def publish(self) -> None:
        """Make the dataset appear."""


def _refused(where: object, left: bytes, about: bytes) -> StoreError:
    if _but_origin(left) == _but_origin(about):
        return StoreError(
            "holds shards of an earlier try, and files that are converted have changed since then", path=where,
            hint="remove it to begin anew",
        )  # fmt: skip
    return StoreError(
        "holds what another conversion has left, of another source or with other fields or shards", path=where,
        hint="remove it, or repeat that conversion",
    )  # fmt: skip


def _but_origin(about: bytes) -> Any:
    """What is being converted, apart from whether the bytes are the same."""
    with contextlib.suppress(ValueError):
        told = json.loads(about)
        if isinstance(told, dict) and told.pop("origin", None) is not None:
            return told
    return about


class LocalStage:
    """A hidden folder beside the dataset's."""

    storage_options = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside = path.with_name(f".{path.name}.converting")

    @property
    def data(self) -> str:
        """In the folder."""
        return str(self.folder)

    @property
    def folder(self) -> Path:
        """The same."""
        return self._aside / "data.fld"

    def begin(self, about: bytes) -> None:
        """Make the folder, or look into what is there."""
        self._refuse_foreign()
        marker = self._aside / MARKER
        if not marker.exists():
            self._aside.mkdir(exist_ok=True)
            write_atomically(marker, about)
        elif marker.read_bytes() != about:
            raise _refused(self._aside, marker.read_bytes(), about)

    def samples(self) -> int:
        """Those of the dataset there."""
        return Stored(self.folder).num_samples if self.folder.exists() else 0

    def publish(self) -> None:
        """Rename. How often it was interrupted is not told."""
        if os.path.isdir(self.data):
            Manifest(Manifest.load(Path(self.data)).shards).save(Path(self.data))
            remove(Path(self.data) / FOLDER)
        self._refuse_foreign()  # it may have come meanwhile
        if self._path.exists():
            exchange(Path(self.data), self._path)
        else:
            os.rename(self.data, self._path)
        sync_directory(self._path.parent)
        remove(self._aside)

    def _refuse_foreign(self) -> None:
        """What is replaced is a dataset and nothing else."""
        if self._path.is_dir():
            refuse_foreign(self._path)


class BucketStage:
    """A folder in the dataset's folder, of a name that nobody else uses."""

    def __init__(self, where: ObjectPath, storage_options: Mapping[str, Any] | None) -> None:
        self._where, self.storage_options = where, storage_options
        self._marker = where / MARKER
        self._folder = where

    @property
    def data(self) -> str:
        """In the folder."""
        return str(self._folder)

    @property
    def folder(self) -> ObjectPath:
        """The same."""
        return self._folder

    def begin(self, about: bytes) -> None:
        """Put the marker, with the name of the folder, or look what it says."""
        self._version, self._before = published_manifest(self._where / MANIFEST)
        store = self._where.store
        token = secrets.token_hex(4).encode()
        with contextlib.suppress(ChangedError):
            store.put(self._marker.key, token + b"\n" + about, if_absent=True)
        token, _, told = bytes(store.read(self._marker.key)).partition(b"\n")
        if not _TOKEN.fullmatch(token) or told != about:
            raise _refused(self._marker, told, about)
        self._folder = self._where / f"data-{token.decode()}"

    def samples(self) -> int:
        """Those of the dataset there."""
        try:
            return Stored(self._folder).num_samples
        except NotFoundError:
            return 0

    def publish(self) -> None:
        """Put a manifest that names the shards, if the one there is still the one that was; remove what is needless."""
        folder, before = self._folder, self._before
        shards = tuple(replace(shard, path=f"{folder.name}/{shard.path}") for shard in Manifest.load(folder).shards)
        old = [] if before is None else own_files(self._where, before)
        put_manifest(self._where, shards, self._version, before)
        kept = {shard.path for shard in shards}
        there = [f"{folder.name}/{name}" for _, name in below(self._where.store, folder.key)]
        left = [name for name in there if name not in kept]  # its manifest, and what an interrupted writer has left
        remove_objects(self._where, [*left, MARKER, *old])
