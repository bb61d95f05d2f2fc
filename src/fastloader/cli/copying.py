"""``fastloader convert`` from one archive to another: files are copied, not samples."""

from __future__ import annotations

import errno
import glob
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.output import complain, printable, say, to_json
from fastloader.cli.status import NoSuchDatasetError
from fastloader.errors import FastLoaderError, FormatError, KeyNotFoundError, NotFoundError, SampleError

if TYPE_CHECKING:
    from fastloader.archive import Choice
    from fastloader.formats.entries import Entry, EntrySource


_NOT_WRITTEN = (
    ".parquet", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.lz4", ".7z", ".rar", ".barecat-sqlite-index",
)  # fmt: skip
"""Endings that nobody gives to a folder."""


def between_archives(sources: tuple[str, ...], destination: str) -> bool:
    """Whether files are to be copied, rather than samples: told from what there is and how the name ends."""
    from fastloader.archive.conversion import kind_of, named_kind
    from fastloader.stores import is_url

    for source in sources:
        _refuse_missing(source)
    kind = named_kind(destination)
    if kind in ("zip", "barecat"):
        return True
    if destination.endswith(".parquet") or kind == "fld":
        return False
    try:
        known = len(sources) == 1 and kind_of(sources[0]) not in (None, "folder")
    except FormatError:  # whatever it is, it is no archive
        return False
    except (FastLoaderError, OSError):
        if any(map(is_url, sources)) or glob.has_magic(sources[0]):  # options may be needed to reach it
            return False
        raise
    return known and (kind == "tar" or not Path(destination).suffix or destination.endswith("/"))


def _refuse_missing(source: str) -> None:
    """A local path that is not there is told as such, whatever was to become of it."""
    from fastloader.archive.conversion import as_named
    from fastloader.stores.urls import local_path

    local = local_path(source)
    if local is not None and not glob.has_magic(source) and not os.path.lexists(as_named(str(local))):
        raise NoSuchDatasetError("there is no such file or folder", path=source, hint="check the path")


@dataclass
class _Counted:
    """Entries on their way, counted."""

    source: EntrySource
    entries_: int = 0
    files: int = 0
    bytes: int = 0

    @property
    def path(self) -> Any:
        """That of the archive."""
        return getattr(self.source, "path", None)

    def entries(self) -> Iterator[Entry]:
        """All, from the start."""
        self.entries_ = self.files = self.bytes = 0
        for entry in self.source.entries():
            self.entries_ += 1
            self.files += entry.is_file
            self.bytes += entry.size
            yield entry


def copy(
    source: str, destination: str, choice: Choice, *, duplicates: Any, any_links: bool, set_ids: bool,
    shard_size: str | None, compression: str | None, jobs: int | None, force: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Copy an archive, and tell of it."""
    from fastloader.archive.choosing import Chosen
    from fastloader.archive.conversion import ENDINGS, sink_at, source_at
    from fastloader.formats.entries import copy_entries
    from fastloader.progress import progress

    if os.path.lexists(destination) and not force:
        raise click.UsageError(f"{destination} is there already; --force replaces it")
    if destination.lower().endswith(_NOT_WRITTEN):
        raise click.UsageError(
            f"{destination}: such archives are not written; those that end with {', '.join(ENDINGS)} are, and folders, "
            "whose names end with a slash"
        )
    told: dict[str, None] = {}

    def tell(text: str) -> None:
        """Once, though entries may be gone through several times."""
        if text not in told:
            told[text] = None
            complain(text)

    began = time.monotonic()
    try:
        there = _Counted(source_at(source, tell))
        sink = sink_at(
            destination, shard_size=shard_size, compression=compression, workers=jobs, overwrite=force,
            any_links=any_links, set_ids=set_ids, warn=tell,
        )  # fmt: skip
    except NotFoundError as error:
        raise NoSuchDatasetError(error.message, path=error.path, hint=error.hint) from error
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise click.UsageError(str(error)) from error
    everything = choice.is_all and duplicates == "refuse"
    taken = there if everything else _Counted(Chosen(there, choice, duplicates))
    try:
        with progress("copying", None, show=False if quiet else None) as advance:
            copied = copy_entries(taken, sink, advance)
        if not copied and choice.include:
            raise KeyNotFoundError("nothing fits", path=source)
        sink.close()
    except BaseException as error:
        sink.abort()
        is_taken = isinstance(error, OSError) and error.errno == errno.EEXIST
        if duplicates == "refuse" and (is_taken or isinstance(error, SampleError) or "two entries" in str(error)):
            _refuse_duplicate(there, source)
        raise
    seconds = time.monotonic() - began
    if as_json:
        facts = {
            "path": destination, "sources": [source], "entries": copied, "files": taken.files, "bytes": taken.bytes,
            "left_out": there.entries_ - copied + sum(text.endswith("left out") for text in told),
            "seconds": round(seconds, 3),
        }  # fmt: skip
        say(to_json(facts))
    elif not quiet:
        many = f"{copied:,} entr{'y' if copied == 1 else 'ies'}"
        say(f"{printable(destination)}: {many}, {seconds:.1f} s")


def _refuse_duplicate(source: EntrySource, path: str) -> None:
    """Where a path is there twice, as tars may have it, that is why it was refused."""
    from fastloader.formats.entries import EntryExistsError

    seen: set[bytes] = set()
    for entry in source.entries():
        if entry.path in seen:
            raise EntryExistsError(
                f"{entry.name!r} is there more than once", path=path,
                hint="--duplicates last takes the last, as tar does, or first the first",
            )  # fmt: skip
        seen.add(entry.path)
