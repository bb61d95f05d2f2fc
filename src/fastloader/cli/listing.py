"""``fastloader ls`` of an archive: its paths, as ``ls`` lists those of a folder."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fastloader.cli.archives import facts_of, say_path
from fastloader.cli.output import printable, say, to_json
from fastloader.errors import KeyNotFoundError
from fastloader.types import key_bytes, key_text

if TYPE_CHECKING:
    from fastloader.archive import Archive
    from fastloader.formats.entries import Entry


def list_entries(archive: Archive, path: str, *, long: bool, deep: bool, as_json: bool, null: bool) -> None:
    """A line an entry: those of a folder, or with ``deep`` all below it."""
    from fastloader.formats.entries import EntryKind

    top = key_bytes(path).strip(b"/")
    top = b"" if top == b"." else top
    here = archive.entry(top)
    if here is None:
        raise KeyNotFoundError(f"no entry {path!r}", path=archive.path)
    entries: Iterator[Entry] = iter([here])
    if here.kind is EntryKind.DIRECTORY:
        entries = archive.entries(top) if deep else archive.scandir(top)
    for entry in entries:
        name = entry.path if deep or entry is here else entry.path.rpartition(b"/")[2]
        slash = b"/" if entry.kind is EntryKind.DIRECTORY else b""
        if as_json:
            say(to_json(facts_of(entry)))
        elif long:
            say(_long(entry, name + slash))
        else:
            say_path(name + slash, null=null)


def _long(entry: Entry, name: bytes) -> str:
    from fastloader.formats.entries import EntryKind

    kinds = {EntryKind.DIRECTORY: stat.S_IFDIR, EntryKind.SYMLINK: stat.S_IFLNK}
    mode = stat.filemode(entry.mode | kinds.get(entry.kind, stat.S_IFREG))
    try:
        time = datetime.fromtimestamp(entry.mtime // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        time = str(entry.mtime)
    arrow = {EntryKind.SYMLINK: " -> ", EntryKind.HARDLINK: " = "}.get(entry.kind, "")
    target = printable(key_text(entry.target)) if arrow else ""
    return f"{mode} {entry.size:>12,} {time} {printable(key_text(name))}{arrow}{target}"
