"""Files of datasets sent to a store, their manifest found there, and what nobody needs removed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from fastloader.errors import FormatError, NotFoundError, StoreError
from fastloader.formats.fld.manifest import Manifest
from fastloader.formats.fld.snapshots import changed
from fastloader.stores import ChangedError, NoConditionsError, ObjectPath
from fastloader.stores.explaining import answer_broke_off

PIECE = 8 << 20
TRIES = 10
SENT_AGAIN = 3


def remove_objects(where: ObjectPath, names: Sequence[str]) -> None:
    """Remove objects of a folder that nothing names any more."""
    for name in names:
        with contextlib.suppress(StoreError):  # what can't be removed is in nobody's way
            where.store.delete((where / name).key)


def send(path: Path, to: ObjectPath) -> None:
    """Send a file in parts, from the beginning again where an answer breaks off: a day's work may depend on it."""
    for left in reversed(range(SENT_AGAIN + 1)):
        try:
            return _send(path, to)
        except StoreError as error:
            if not left or not answer_broke_off(error):
                raise


def _send(path: Path, to: ObjectPath, before_it_appears: Callable[[], None] = lambda: None) -> None:
    upload = to.store.upload(to.key)
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                upload.write(piece)
        before_it_appears()
        upload.finish()
    except BaseException:
        upload.abort()
        raise


def send_in_place_of(version: str | None, path: Path, to: ObjectPath) -> None:
    """Send a file, if what is there is still of this version, or still nothing.

    What goes in one request is refused by the server where it is not. Else it is looked at just before: what comes in
    parts can't be put on a condition, nor can anything into some stores.
    """

    def check() -> None:
        if version_at(to) != version:
            raise changed(to)

    if path.stat().st_size <= PIECE:
        try:
            to.store.put(to.key, path.read_bytes(), if_absent=version is None, if_match=version)
            return
        except ChangedError as error:
            raise changed(to) from error
        except NoConditionsError:
            pass
    _send(path, to, check)  # once: an object that is there already might be this one


def refuse_web_servers(where: ObjectPath) -> None:
    """What is only read is told before anything is made for it."""
    if getattr(where.store, "kind", None) == "http":
        raise StoreError(
            "is on a web server, which is only read here", path=where, hint="write to a folder or a bucket"
        )


def version_at(where: ObjectPath) -> str | None:
    """That of the object there; ``None`` where there is none."""
    try:
        return where.store.stat(where.key).version
    except NotFoundError:
        return None


def published_manifest(manifest: ObjectPath) -> tuple[str | None, Manifest | None]:
    """The manifest that is there, and its version."""
    for attempt in range(TRIES):
        try:
            version = manifest.store.stat(manifest.key).version
            data = bytes(manifest.store.read(manifest.key, version=version))
            break
        except NotFoundError:
            return None, None
        except ChangedError:  # replaced in between: the new one is as good
            if attempt == TRIES - 1:
                raise
    try:
        return version, Manifest.from_bytes(data, manifest)
    except FormatError as error:
        raise StoreError(
            f"holds something else than a dataset: {error}", path=manifest, hint="choose another name"
        ) from error
