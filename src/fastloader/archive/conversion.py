"""From any archive to any other: who reads what is there, and who writes what its name promises."""

from __future__ import annotations

import os
from collections.abc import Callable

from fastloader.archive.archive import Archive
from fastloader.archive.encoding import is_archive
from fastloader.archive.folders import FolderSink, FolderSource
from fastloader.archive.writer import ArchiveWriter
from fastloader.errors import FormatError
from fastloader.formats.barecat import OLD_ENDING
from fastloader.formats.barecat_entries import BarecatSink, BarecatSource
from fastloader.formats.entries import EntrySink, EntrySource
from fastloader.formats.file_content import Warn
from fastloader.formats.fld import Dataset
from fastloader.formats.objects import Places
from fastloader.formats.recognise import format_of, promised
from fastloader.formats.tar_entries import TarSink, TarSource
from fastloader.formats.zip_entries import ZipSink, ZipSource
from fastloader.types import parse_size

SOURCES: dict[str, Callable[..., EntrySource]] = {
    "tar": TarSource, "tar.gz": TarSource, "tar.zst": TarSource, "zip": ZipSource, "npz": ZipSource,
    "barecat": BarecatSource, "fld": Archive,
}  # fmt: skip
"""By the format of what is there."""
ENDINGS = {
    ".tar": "tar", ".tar.gz": "tar", ".tgz": "tar", ".tar.zst": "tar", ".tzst": "tar", ".zip": "zip",
    ".barecat": "barecat", ".fld": "fld",
}  # fmt: skip
"""What a name that ends so is to become; any other is a folder's."""


def as_named(path: str) -> str:
    """The path under which there is something: an index of Barecat may have its old name."""
    return path + OLD_ENDING if not os.path.exists(path) and os.path.exists(path + OLD_ENDING) else path


def kind_of(path: str, places: Places | None = None) -> str | None:
    """What kind of archive is there: a name of ``SOURCES``, or "folder"; ``None`` where it is none."""
    places, path = places or Places(), as_named(path)
    if places.of(path).is_folder(path):
        if promised(path) == "fld":
            return "fld" if is_archive(Dataset(places.locate(path))) else None
        return "folder"
    found = format_of(places.open(path))
    if found == "fld":
        return found if is_archive(Dataset(places.locate(path))) else None
    return found if found in SOURCES else None


def named_kind(path: str) -> str:
    """What a path is to become."""
    return next((kind for ending, kind in ENDINGS.items() if path.lower().endswith(ending)), "folder")


def source_at(path: str, warn: Warn | None = None) -> EntrySource:
    """The entries of what is there. ``warn`` is told of files of a folder that change meanwhile, and of devices in a
    tar, which are an error else.
    """
    path = as_named(path)
    kind = kind_of(path)
    if kind is None:
        raise FormatError(
            "is no archive", path=path, hint="a tar, a zip, a Barecat archive, a .fld archive or a folder is one"
        )
    return FolderSource(path, warn=warn) if kind == "folder" else unchecked(path, kind, warn)


def unchecked(path: str, kind: str, warn: Warn | None = None) -> EntrySource:
    """The entries of an archive with paths as they are told: who passes them on checks them, as ``copy_entries`` does,
    when those that nobody wants are left out. ``warn`` is told of what no archive holds.
    """
    if kind == "fld":
        return Archive(path)
    told = {"warn": warn} if SOURCES[kind] is TarSource else {}
    return SOURCES[kind](path, checked=False, **told)


def sink_at(
    path: str, *, shard_size: int | str | None = None, compression: str | None = None, workers: int | None = None,
    overwrite: bool = False, any_links: bool = False, set_ids: bool = False, warn: Warn | None = None,
) -> EntrySink:  # fmt: skip
    """What writes an archive of this name. ``warn`` is told of what a folder gets otherwise than it was."""
    kind = named_kind(path)
    if compression is not None and kind != "fld":
        raise ValueError(f"compression is for .fld archives, not for {path}")
    if shard_size is not None and kind not in ("fld", "barecat"):
        raise ValueError(f"shard_size is for .fld and Barecat archives, not for {path}")
    if any_links and kind != "folder":
        raise ValueError(f"any links go into a folder alone, not into {path}")
    if set_ids and kind != "folder":
        raise ValueError(f"modes are always whole in archives; set ids are for a folder, not for {path}")
    if kind == "fld":
        return ArchiveWriter(path, shard_size=shard_size, compression=compression, workers=workers)
    if kind == "barecat":
        return BarecatSink(path, None if shard_size is None else parse_size(shard_size, "shard_size"))
    if kind == "folder":
        return FolderSink(path, overwrite=overwrite, any_links=any_links, set_ids=set_ids, warn=warn)
    return ZipSink(path) if kind == "zip" else TarSink(path)
