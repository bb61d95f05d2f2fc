"""Files of datasets sent to a store, their manifest found there, and what nobody needs removed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from fastloader.errors import FormatError, NotFoundError, StoreError
from fastloader.formats.fld.manifest import Manifest
from fastloader.stores import ObjectPath

PIECE = 8 << 20


def remove_objects(where: ObjectPath, names: Sequence[str]) -> None:
    """Remove objects of a folder that nothing names any more."""
    for name in names:
        with contextlib.suppress(StoreError):  # what can't be removed is in nobody's way
            where.store.delete((where / name).key)


def send(path: Path, to: ObjectPath) -> None:
    """Send a file in parts."""
    upload = to.store.upload(to.key)
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                upload.write(piece)
        upload.finish()
    except BaseException:
        upload.abort()
        raise


def published_manifest(manifest: ObjectPath) -> tuple[str | None, Manifest | None]:
    """The manifest that is there, and its version."""
    try:
        version = manifest.store.stat(manifest.key).version
        data = bytes(manifest.store.read(manifest.key, version=version))
    except NotFoundError:
        return None, None
    try:
        return version, Manifest.from_bytes(data, manifest)
    except FormatError as error:
        raise StoreError(
            f"holds something else than a dataset: {error}", path=manifest, hint="choose another name"
        ) from error
