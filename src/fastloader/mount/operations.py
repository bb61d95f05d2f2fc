"""What FUSE asks of a file system, answered from an archive. Writing never gets here: the kernel refuses it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar

from fastloader.errors import FastLoaderError
from fastloader.formats.entries import Entry, EntryKind
from fastloader.mount.contents import Content
from fastloader.mount.shown import Shown
from fastloader.types import key_bytes, key_text

T = TypeVar("T")

BLOCK = 4096
LONGEST_NAME = 255
_TYPES = {EntryKind.FILE: stat.S_IFREG, EntryKind.DIRECTORY: stat.S_IFDIR, EntryKind.SYMLINK: stat.S_IFLNK}


class ArchiveFiles:
    """The operations of a mounted archive, as mfusepy calls them; paths are text, with surrogates for odd bytes.

    ``complain`` is told of what can't be read, which whoever reads it knows only as an I/O error; ``ready`` is called
    once the archive is mounted.
    """

    use_ns = True

    def __init__(self, shown: Shown, complain: Callable[[str], None], ready: Callable[[], None] = lambda: None) -> None:
        self._shown = shown
        self._complain = complain
        self._ready = ready
        self._owner = os.getuid(), os.getgid()
        self._open: dict[int, tuple[Entry, Content]] = {}
        self._numbers = count(1)

    def init(self, path: str) -> None:
        """It is mounted."""
        self._ready()

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        """What ``stat`` tells."""
        held = None if fh is None else self._open.get(fh)
        entry = self._entry(path) if held is None else held[0]
        size = len(entry.target) if entry.kind is EntryKind.SYMLINK else entry.size
        return {
            "st_mode": _TYPES[entry.kind] | (0o777 if entry.kind is EntryKind.SYMLINK else entry.mode),
            "st_nlink": 1, "st_uid": self._owner[0], "st_gid": self._owner[1], "st_size": size,
            "st_blocks": -(-size // 512), "st_blksize": BLOCK,
            "st_atime": entry.mtime, "st_mtime": entry.mtime, "st_ctime": entry.mtime,
        }  # fmt: skip

    def readlink(self, path: str) -> str:
        """What a link says, which may lead anywhere."""
        entry = self._entry(path)
        if entry.kind is not EntryKind.SYMLINK:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return key_text(entry.target)

    def readdir(self, path: str, fh: int) -> Iterator[Any]:
        """The names in a folder, and of what type they are."""
        folder = self._entry(path)
        if folder.kind is not EntryKind.DIRECTORY:
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        found = self._told(lambda: list(self._shown.listed(folder.path)))
        yield ".", stat.S_IFDIR, 0
        yield "..", stat.S_IFDIR, 0
        for name, kind in found:
            yield key_text(name), _TYPES[kind], 0

    def open(self, path: str, flags: int) -> int:
        """A number for a file, by which it is read."""
        entry = self._entry(path)
        content = self._told(lambda: self._shown.content(entry))
        number = next(self._numbers)
        self._open[number] = entry, content
        return number

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """Some of an open file."""
        content = self._open[fh][1]
        return self._told(lambda: bytes(content.read(offset, size)))

    def release(self, path: str, fh: int) -> int:
        """Nobody has it open any more."""
        del self._open[fh]
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """How large it is, and that it is full."""
        return {
            "f_bsize": BLOCK, "f_frsize": BLOCK, "f_blocks": -(-self._shown.size // BLOCK), "f_bfree": 0, "f_bavail": 0,
            "f_files": self._shown.count, "f_ffree": 0, "f_favail": 0, "f_namemax": LONGEST_NAME,
        }  # fmt: skip

    def _entry(self, path: str) -> Entry:
        found = self._told(lambda: self._shown.entry(key_bytes(path).strip(b"/")))
        if found is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return found

    def _told(self, ask: Callable[[], T]) -> T:
        """An answer of the archive; what is wrong with it is an I/O error, and told."""
        try:
            return ask()
        except (FastLoaderError, OSError) as error:
            self._complain(str(error))
            raise OSError(errno.EIO, os.strerror(errno.EIO)) from error
