"""Plain folders as archives: gone through in the order of paths, and written without ever leaving them."""

from __future__ import annotations

import errno
import heapq
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fastloader.archive.patterns import ALL, Choice
from fastloader.errors import StoreError
from fastloader.formats.entries import Entry, EntryKind, UnsafePathError, checked_path
from fastloader.formats.extractable import leads_out
from fastloader.formats.file_content import FileContent, Warn, pieces_of
from fastloader.publishing import Published
from fastloader.stores.local import explain
from fastloader.types import key_text

SORTED_AT_ONCE = 500_000
"""Paths of a list that are sorted in memory; longer lists are sorted in runs on disk."""

IN_PLACE = 1 << 20
"""Files up to this size are written under their own name: to move each would take longer than to write it."""

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
"""What file systems say that have no hard links."""


@dataclass(frozen=True, slots=True)
class FolderSource:
    """The entries of a folder, in the order of their paths' bytes. Links are kept, never followed.

    ``names``, where given, are paths relative to the folder, and only they are taken, not what lies in them. What is no
    file, folder or link, and what ``skip`` names by device and inode, is left out; ``warn`` is told, and of files that
    change while they are read, which is an error where it is not given. ``aside`` are beginnings of paths that are left
    out too: those of files under construction.
    """

    folder: str | os.PathLike[str]
    choice: Choice = ALL
    names: Iterable[bytes] | None = None
    skip: frozenset[tuple[int, int]] = frozenset()
    warn: Warn | None = None
    aside: tuple[bytes, ...] = ()

    @property
    def root(self) -> bytes:
        """The folder's path."""
        return os.fsencode(self.folder)

    def found(self) -> Iterator[bytes | Entry]:
        """What the folder lists: of files the path, of all else the entry. There may be millions of files."""
        walk = self._listed(self.names) if self.names is not None else self._walk()
        return walk if self.choice.is_all else self._chosen(walk)

    def entries(self) -> Iterator[Entry]:
        """All entries; files with size, mode and time, and their content when asked for it."""
        links: dict[tuple[int, int], bytes] = {}
        for one in self.found():
            yield self._known(one, links) if isinstance(one, bytes) else one

    def _known(self, path: bytes, links: dict[tuple[int, int], bytes]) -> Entry:
        place = os.path.join(self.root, path)
        try:
            status = os.lstat(place)
        except OSError as error:
            raise explain(error, Path(os.fsdecode(place))) from error
        mode, mtime = stat.S_IMODE(status.st_mode), status.st_mtime_ns
        if status.st_nlink > 1:
            first = links.setdefault((status.st_dev, status.st_ino), path)
            if first != path:
                return Entry(path, EntryKind.HARDLINK, mode, mtime, 0, first)
        return Entry(
            path, EntryKind.FILE, mode, mtime, status.st_size, read=FileContent(place, status.st_size, mtime, self.warn)
        )

    def _walk(self) -> Iterator[bytes | Entry]:
        waiting = [self._children(b"")]
        while waiting:
            for child in waiting[-1]:
                yield child
                if not isinstance(child, bytes) and child.kind is EntryKind.DIRECTORY:
                    waiting.append(self._children(child.path + b"/"))
                    break
            else:
                waiting.pop()

    def _children(self, prefix: bytes) -> Iterator[bytes | Entry]:
        """What lies in a folder. A subfolder is sorted as if its name ended with a slash, as paths within it are."""
        folder = os.path.join(self.root, prefix) if prefix else self.root
        try:
            with os.scandir(folder) as listing:
                found = [_named(one) for one in listing]
        except OSError as error:
            raise explain(error, Path(os.fsdecode(folder)), "leave it out with --exclude") from error
        found.sort()
        left_out = self.skip or any(one.startswith(prefix) for one in self.aside)
        everything = self.choice.is_all and not left_out
        for name, is_file in found:
            if is_file and everything:
                yield prefix + name
                continue
            path = prefix + name.removesuffix(b"/")
            if self.choice.excludes(path) or path.startswith(self.aside):
                continue
            if is_file:
                if not self.skip or not self._is_skipped(path):
                    yield path
                continue
            entry = self._looked_at(path)
            if entry is not None:
                yield entry

    def _is_skipped(self, path: bytes) -> bool:
        with suppress(OSError):
            status = os.lstat(os.path.join(self.root, path))
            return (status.st_dev, status.st_ino) in self.skip
        return False

    def _looked_at(self, path: bytes) -> bytes | Entry | None:
        """What the file system says is at a path."""
        place = os.path.join(self.root, path)
        try:
            status = os.lstat(place)
            if (status.st_dev, status.st_ino) in self.skip:
                return None
            mode, mtime = stat.S_IMODE(status.st_mode), status.st_mtime_ns
            if stat.S_ISREG(status.st_mode):
                return path
            if stat.S_ISDIR(status.st_mode):
                return Entry(path, EntryKind.DIRECTORY, mode, mtime)
            if stat.S_ISLNK(status.st_mode):
                return Entry(path, EntryKind.SYMLINK, mode, mtime, 0, os.readlink(place))
        except OSError as error:
            raise explain(error, Path(os.fsdecode(place)), "check the list, or leave it out with --exclude") from error
        if self.warn is not None:
            self.warn(f"{os.fsdecode(place)}: is neither a file nor a folder nor a link; left out")
        return None

    def _listed(self, names: Iterable[bytes]) -> Iterator[bytes | Entry]:
        last = None
        links: set[bytes] = set()
        for path in sorted_paths(self._relative(name) for name in names):
            path = path.removesuffix(b"/")
            if path == last or path == b"." or self.choice.excludes(path):
                continue
            last = path
            if links:
                _refuse_below(links, path)
            entry = self._looked_at(path)
            if entry is not None:
                yield entry
                if isinstance(entry, Entry) and entry.kind is EntryKind.SYMLINK:
                    links.add(path)

    def _relative(self, name: bytes) -> bytes:
        """A name of a list: relative to the folder, or beginning with the folder's own path, as ``find`` gives them."""
        root = self.root.rstrip(b"/") + b"/"
        if root != b"./" and name.startswith(root):
            name = name[len(root) :]
        if not name.strip(b"/") or name.rstrip(b"/") in (b".", root.rstrip(b"/")):
            return b"."
        path = checked_path(name)
        is_folder = os.path.isdir(os.path.join(self.root, path)) and not os.path.islink(os.path.join(self.root, path))
        return path + b"/" if is_folder else path

    def _chosen(self, walk: Iterator[bytes | Entry]) -> Iterator[bytes | Entry]:
        """Those that are included, and the folders that lead to them."""
        waiting: list[Entry] = []
        for one in walk:
            path = one if isinstance(one, bytes) else one.path
            while waiting and not path.startswith(waiting[-1].path + b"/"):
                waiting.pop()
            if self.choice.includes(path):
                yield from waiting
                waiting.clear()
                yield one
            elif not isinstance(one, bytes) and one.kind is EntryKind.DIRECTORY:
                waiting.append(one)


def _refuse_below(links: set[bytes], path: bytes) -> None:
    """Raise for a path below a link that is taken too, as ``find -L`` lists them: nobody could extract both."""
    above = path.rpartition(b"/")[0]
    while above:
        if above in links:
            raise ValueError(
                f"the list has {key_text(path)!r} and the link {key_text(above)!r}, below which nothing can be "
                "extracted; leave out one of them with --exclude, or list without find -L"
            )
        above = above.rpartition(b"/")[0]


def _named(found: os.DirEntry[bytes]) -> tuple[bytes, bool]:
    """The name, with a slash behind that of a folder, and whether it is a file."""
    if found.is_file(follow_symlinks=False):
        return found.name, True
    return found.name + b"/" if found.is_dir(follow_symlinks=False) else found.name, False


def sorted_paths(paths: Iterable[bytes]) -> Iterator[bytes]:
    """Paths in ascending order, in bounded memory."""
    runs: list[Iterator[bytes]] = []
    held: list[bytes] = []
    for path in paths:
        held.append(path)
        if len(held) >= SORTED_AT_ONCE:
            runs.append(_run(sorted(held)))
            held = []
    held.sort()
    return heapq.merge(*runs, held) if runs else iter(held)


def _run(paths: list[bytes]) -> Iterator[bytes]:
    """Sorted paths, kept in an unnamed file; they hold no zero byte."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the iterator
    file.writelines(path + b"\0" for path in paths)
    file.seek(0)

    def read() -> Iterator[bytes]:
        rest = b""
        with file:
            while block := file.read(1 << 20):
                *whole, rest = (rest + block).split(b"\0")
                yield from whole

    return read()


_SET_IDS = stat.S_ISUID | stat.S_ISGID


class FolderSink(Published):
    """Entries put into a folder, which is made if it is not there. Nothing is ever written outside of it.

    Paths that lead out of it are refused, and so is a link that leads out, and an entry below a link: archives come
    from anywhere. ``overwrite`` replaces files and links that are there; without it they are an error. ``any_links``
    makes links that lead out, too; nothing is written through them in any case. Files run as who runs them:
    setuid and setgid bits are left out, and ``warn`` is told, unless ``set_ids`` keeps them.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, overwrite: bool = False, any_links: bool = False,
        set_ids: bool = False, warn: Warn | None = None,
    ) -> None:  # fmt: skip
        self._folder = os.fsencode(folder)
        self._any_links = any_links
        self._set_ids = set_ids
        self._warn = warn
        self._overwrite = overwrite
        self._made: dict[bytes, Entry] = {}
        self._later: list[Entry] = []
        self._safe: set[bytes] = {b""}
        try:
            os.makedirs(self._folder, exist_ok=True)
            self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise explain(error, Path(os.fsdecode(self._folder)), "choose another folder") from error

    def add(self, entry: Entry) -> None:
        """Write the entry."""
        path = checked_path(entry.path)
        if path != entry.path:
            raise UnsafePathError(f"the path {key_text(entry.path)!r} is not plain", hint="such an entry is refused")
        try:
            if entry.kind is EntryKind.DIRECTORY:
                self._enter(path)
                self._made[path] = entry
                return
            parent, _, _ = path.rpartition(b"/")
            self._enter(parent)
            if entry.kind is EntryKind.FILE:
                self._file(path, entry)
            elif entry.kind is EntryKind.SYMLINK:
                self._symlink(path, entry)
            else:
                self._hardlink(path, entry)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            hint = "--overwrite replaces what is there" if error.errno == errno.EEXIST else None
            raised = explain(error, Path(os.fsdecode(os.path.join(self._folder, path))), hint)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raised.hint = "the disk is full; this was not written, what came before it is there"
            raise raised from error

    def _enter(self, folder: bytes) -> None:
        """Have a folder and those above it, none of which is a link."""
        if folder in self._safe:
            return
        parent, _, _ = folder.rpartition(b"/")
        self._enter(parent)
        try:
            os.mkdir(folder, 0o777, dir_fd=self._fd)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(folder, dir_fd=self._fd).st_mode):
                raise UnsafePathError(
                    f"{key_text(folder)!r} is a link or a file where the archive has a folder",
                    hint="extract to an empty folder",
                ) from None
        if len(self._safe) > 100_000:
            self._safe = {b""}
        self._safe.add(folder)

    def _file(self, path: bytes, entry: Entry) -> None:
        """A small file is written where it belongs, if nothing is there; any other beside, and moved when it is whole.

        So whatever has the name of an entry is whole, and what was there stays until then.
        """
        pieces = pieces_of(entry.read)
        first = next(pieces, memoryview(b""))
        content = chain([first], pieces)
        if max(len(first), entry.size) <= IN_PLACE:
            try:
                return self._write(path, content, entry)
            except FileExistsError:
                if not self._overwrite:
                    raise
        elif not self._overwrite and self._is_there(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        aside = _beside(path)
        self._write(aside, content, entry)
        self._move(aside, path)

    def _write(self, path: bytes, content: Iterable[memoryview], entry: Entry) -> None:
        """A new file, whole or not there."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600, dir_fd=self._fd)
        try:
            for view in content:
                while len(view):
                    view = view[os.write(fd, view) :]
            os.fchmod(fd, self._mode_of(entry))
            os.utime(fd, ns=(entry.mtime, entry.mtime))
        except BaseException:
            os.unlink(path, dir_fd=self._fd)
            raise
        finally:
            os.close(fd)

    def _mode_of(self, entry: Entry) -> int:
        """What a file may be used for. Whose rights it would lend to others, only who extracts it knows."""
        mode = entry.mode & 0o7777
        if self._set_ids or not mode & _SET_IDS:
            return mode
        if self._warn is not None:
            self._warn(f"{entry.name}: its setuid and setgid bits are left out; --set-ids keeps them")
        return mode & ~_SET_IDS

    def _linked(self, path: bytes, make: Callable[[bytes], None]) -> None:
        """Have a link made: under its name, or beside what has that name and is replaced."""
        try:
            return make(path)
        except FileExistsError:
            if not self._overwrite:
                raise
        aside = _beside(path)
        make(aside)
        self._move(aside, path)

    def _move(self, aside: bytes, path: bytes) -> None:
        """Give what was made its name; what has it is replaced only with ``overwrite``."""
        try:
            if self._overwrite:
                os.rename(aside, path, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            else:
                os.link(aside, path, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)
        except OSError as error:
            if self._overwrite or error.errno not in _NO_LINKS or self._is_there(path):
                raise
            os.rename(aside, path, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        finally:  # two names of one file are not renamed, and a link leaves both
            with suppress(FileNotFoundError):
                os.unlink(aside, dir_fd=self._fd)

    def _is_there(self, path: bytes) -> bool:
        try:
            os.lstat(path, dir_fd=self._fd)
        except FileNotFoundError:
            return False
        return True

    def _symlink(self, path: bytes, entry: Entry) -> None:
        if not self._any_links and leads_out(path, entry.target):
            raise UnsafePathError(
                f"the link {key_text(path)!r} leads out of the folder, to {key_text(entry.target)!r}",
                hint="leave it out with --exclude, or make it with --any-links",
            )

        def make(place: bytes) -> None:
            os.symlink(entry.target, place, dir_fd=self._fd)
            os.utime(place, ns=(entry.mtime, entry.mtime), dir_fd=self._fd, follow_symlinks=False)

        self._linked(path, make)
        self._safe = {b""}  # a folder that was one may be a link now

    def _hardlink(self, path: bytes, entry: Entry) -> None:
        target = checked_path(entry.target)
        try:
            self._enter(target.rpartition(b"/")[0])
            status = os.lstat(target, dir_fd=self._fd)
        except FileNotFoundError:
            if entry in self._later:
                raise UnsafePathError(
                    f"{key_text(path)!r} is a hard link to {key_text(target)!r}, which is no file in the archive",
                    hint="leave it out with --exclude",
                ) from None
            self._later.append(entry)  # the file may come yet
            return
        if not stat.S_ISREG(status.st_mode):
            raise UnsafePathError(f"{key_text(path)!r} is a hard link to {key_text(target)!r}, which is no file")
        self._linked(
            path, lambda place: os.link(target, place, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)
        )

    def close(self) -> None:
        """Make the links to files that came behind them, and give folders their modes and times, which were changed."""
        try:
            for entry in self._later:
                self._hardlink(entry.path, entry)
            for path, entry in sorted(self._made.items(), reverse=True):
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
                try:
                    os.fchmod(fd, entry.mode & 0o7777)
                    os.utime(fd, ns=(entry.mtime, entry.mtime))
                finally:
                    os.close(fd)
        except OSError as error:
            raise explain(error, Path(os.fsdecode(self._folder))) from error
        finally:
            self.abort()

    def abort(self) -> None:
        """Leave what was written so far."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _beside(path: bytes) -> bytes:
    """A name nobody else has, in the same folder."""
    folder, slash, _ = path.rpartition(b"/")
    return folder + slash + b".fastloader-" + secrets.token_hex(8).encode()
