"""What archives of any format hold: entries, with a path and what a file system keeps of them.

An archive to read is an ``EntrySource``, one to write an ``EntrySink``; so each format is written once and any can be
copied to any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from fastloader.errors import FastLoaderError, FormatError
from fastloader.types import Buffer, key_bytes, key_text


class EntryKind(IntEnum):
    """What an entry is. The numbers are those of ``.fld`` files."""

    FILE = 0
    DIRECTORY = 1
    SYMLINK = 2
    HARDLINK = 3


def _nothing() -> Buffer:
    return b""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an archive.

    - ``path``: bytes, as file systems have them: names with ``/`` between them, relative to the archive's root, without
      a slash at either end (``checked_path`` makes them so).
    - ``mode``: the permission bits, ``stat.S_IMODE`` of what the file system said.
    - ``mtime``: nanoseconds since 1970; negative before.
    - ``size``: bytes of a file's content; 0 for what is no file.
    - ``target``: what a symbolic link says, or the path of the file in the archive that a hard link is another name of.
    - ``read``: gives a file's content, whole; call it at most once, and while the source is open. It may be a view of a
      mapped file, so that large files take no memory.
    - ``part``: gives so many bytes of a file's content from an offset on, without reading the rest, unchecked.
      ``None`` where content has to be unpacked as a whole.
    """

    path: bytes
    kind: EntryKind = EntryKind.FILE
    mode: int = 0o644
    mtime: int = 0
    size: int = 0
    target: bytes = b""
    read: Callable[[], Buffer] = field(default=_nothing, repr=False, compare=False)
    part: Callable[[int, int], Buffer] | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The path as text; bytes that are no UTF-8 as surrogates, as Python has file names."""
        return key_text(self.path)

    @property
    def is_file(self) -> bool:
        """Whether it has content of its own."""
        return self.kind is EntryKind.FILE

    @classmethod
    def of(cls, path: str | bytes, data: Buffer, mode: int = 0o644, mtime: int = 0) -> Entry:
        """A file with this content."""
        return cls(key_bytes(path), EntryKind.FILE, mode, mtime, len(data), read=lambda: data)


class EntrySource(Protocol):
    """An archive to read: all entries, in the order in which they are stored.

    A hard link comes behind the file it names. Directories may be left out: that a file lies in them tells of them.
    """

    def entries(self) -> Iterator[Entry]:
        """All entries, from the start, each time it is called."""
        ...


class EntrySink(Protocol):
    """An archive to write, in a ``with`` block: whole when it ends, and not there if it ends with an exception."""

    def add(self, entry: Entry) -> None:
        """The next entry."""
        ...

    def close(self) -> None:
        """Finish and publish."""
        ...

    def abort(self) -> None:
        """Give up: nothing is published."""
        ...


class EntryExistsError(FastLoaderError, FileExistsError):
    """An entry has a path that is taken."""


class UnsafePathError(FormatError):
    """A path of an archive that leads out of the folder it is put in, or that no file can have."""


_PLAIN = re.compile(rb"(?!\.{0,2}(?:/|\Z))[^/\0]+(?:/(?!\.{0,2}(?:/|\Z))[^/\0]+)*").fullmatch
"""Paths that need no change, as nearly all are: no name is empty, ``.`` or ``..``."""


def is_plain(path: bytes) -> bool:
    """Whether a path is as entries have it, and so can be that of a file in a folder."""
    return _PLAIN(path) is not None


def checked_path(path: bytes) -> bytes:
    """A path as entries have it: ``./a//b/`` becomes ``a/b``. One that leads out of its folder is an error.

    >>> checked_path(b"./photos//cat.jpg")
    b'photos/cat.jpg'
    """
    if _PLAIN(path):
        return path
    if path.startswith(b"/"):
        raise _unsafe(path, "is absolute")
    if b"\0" in path:
        raise _unsafe(path, "holds a zero byte")
    names = path.split(b"/")
    if b".." in names:
        raise _unsafe(path, "leads out of its folder")
    kept = [name for name in names if name not in (b"", b".")]
    if not kept:
        raise _unsafe(path, "names nothing")
    return b"/".join(kept)


def check_path(path: bytes) -> None:
    """Refuse a path that is not as entries have it: nobody is to write it anywhere."""
    if checked_path(path) != path:
        raise _unsafe(path, "is not plain")


def _unsafe(path: bytes, why: str) -> UnsafePathError:
    return UnsafePathError(
        f"the path {key_text(path)!r} {why}", hint="such an entry is refused; leave it out with --exclude"
    )


def copy_entries(source: EntrySource, sink: EntrySink, advance: Callable[[int], None] = lambda count: None) -> int:
    """All entries of one archive into another; returns how many. ``advance`` is told of each.

    A path that leads out of its folder is an error, whatever the archives are.
    """
    count = 0
    early: list[Entry] = []
    for entry in source.entries():
        try:
            check_path(entry.path)
            if entry.kind is EntryKind.HARDLINK:
                check_path(entry.target)
        except UnsafePathError as error:
            error.path = error.path or str(getattr(source, "path", "")) or None
            raise
        if entry.kind is EntryKind.HARDLINK and entry.target > entry.path:
            early.append(entry)  # an archive in the order of paths has it before its file, which most must have first
            continue
        sink.add(entry)
        count += 1
        advance(1)
    for entry in early:
        sink.add(entry)
        advance(1)
    return count + len(early)


__all__ = [
    "Entry", "EntryExistsError", "EntryKind", "EntrySink", "EntrySource", "UnsafePathError", "check_path",
    "checked_path", "copy_entries", "is_plain",
]  # fmt: skip
