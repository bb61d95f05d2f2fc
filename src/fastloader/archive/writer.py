"""Archives written: entries in, in any order; one ``.fld`` file or a folder of shards out."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.archive.content import content_of
from fastloader.archive.encoding import ROW, Files, encode, is_archive, specs_for, without_rows
from fastloader.archive.tree import Tree
from fastloader.errors import FormatError, StoreError
from fastloader.formats.entries import Entry, EntryExistsError, EntryKind, checked_path
from fastloader.formats.file_content import FileContent, Warn
from fastloader.formats.fld import Chunk, Dataset, Node, Removed
from fastloader.formats.fld.builder import Payload
from fastloader.formats.fld.layout import DEFAULT_PAGE_SIZE
from fastloader.formats.fld.remote_target import BucketTarget, ObjectTarget
from fastloader.formats.fld.target import AppendTarget, FileTarget, FolderTarget, Target
from fastloader.formats.times import FIRST, LAST, kept_time
from fastloader.publishing import Published
from fastloader.stores import ObjectPath, locate
from fastloader.stores.local import explain
from fastloader.types import key_text, parse_size

CHUNK_FILES = 256
CHUNK_BYTES = 4 << 20
READ_AT_ONCE = 1 << 20
"""Files up to this size are read many in one go; larger ones piece by piece as they are stored."""

Advance = Callable[[int], None]
Nodes = list[tuple[int, Node]]


def silent(count: int) -> None:
    """Tells nobody."""


class Listed(Protocol):
    """Entries of a folder."""

    @property
    def root(self) -> bytes:
        """The folder's path."""

    @property
    def warn(self) -> Warn | None:
        """Who is told of files that change while they are read; ``None``: that is an error."""

    def found(self) -> Iterator[bytes | Entry]:
        """Of files the path within the folder, of all else the entry."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Files ready to be stored; ``shared`` has row, device and inode of those that have several names."""

    chunk: Chunk
    shared: list[tuple[int, int, int]]


class ArchiveWriter(Published):
    """Writes an archive; use it in a ``with`` block. Nothing appears at ``path`` before it ends.

    ``shard_size`` makes it a folder of shards of that many bytes of files (or "50G"). ``compression`` is "lz4", "zstd"
    or "zstd:LEVEL", for what is no JPEG. ``workers`` threads read and encode (``None``: one a core). ``append`` adds to
    the archive that is there; a path that is there already is then an error, unless ``replace``.
    ``path`` may be a URL, with ``storage_options`` for its client.

    The bytes written depend on the entries and their order alone. Entries in the order of their paths take no memory;
    others take as much as their paths while the archive is finished.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shard_size: int | str | None = None,
        compression: str | None = None,
        workers: int | None = None,
        append: bool = False,
        replace: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        where = locate(path, storage_options)
        place = where if isinstance(where, ObjectPath) else Path(os.path.realpath(where))
        limit = None if shard_size is None else parse_size(shard_size, "shard_size")
        if limit is not None and limit < 1:
            raise ValueError(f"shard_size={shard_size!r}: at least one byte")
        if workers is not None and workers < 0:
            raise ValueError(f"workers={workers}: a whole number of threads, 0 for none")
        existing = archive_at(place) if append else None
        self._specs = existing.specs() if existing is not None and compression is None else specs_for(compression)
        self._replace = replace
        self._near = None if isinstance(place, ObjectPath) else place.parent
        self._tree = None if existing is None else Tree(existing)
        self._removed: list[Removed] = []
        self._replaced: set[bytes] = set()
        self._target = self._make_target(place, limit, existing)
        count = (os.cpu_count() or 1) if workers is None else workers
        self._pool = ThreadPoolExecutor(count, "fastloader-archive") if count else None
        self._most = 2 * count + 1
        self._in_flight: deque[Future[_Encoded]] = deque()
        self._files = Files()
        self._carried: list[Node] = []
        self._links: dict[tuple[int, int], bytes] = {}
        self._mean = float(CHUNK_BYTES)
        self._advance: Advance = silent
        self.num_files = 0
        self.num_bytes = 0
        self._open = True

    def _make_target(self, place: Path | ObjectPath, limit: int | None, existing: Dataset | None) -> Target:
        specs, pages = self._specs, DEFAULT_PAGE_SIZE if existing is None else existing.page_size
        if isinstance(place, ObjectPath):
            if existing is None and limit is None:
                return ObjectTarget(place, specs, pages, keys=True)
            return BucketTarget(place, specs, pages, keys=True, shard_size=limit, existing=existing)
        if existing is not None:
            return AppendTarget(existing, specs, pages, keys=True, shard_size=limit)
        if limit is not None:
            return FolderTarget(place, specs, pages, keys=True, shard_size=limit)
        return FileTarget(place, specs, pages, keys=True)

    def add(self, entry: Entry) -> None:
        """The next entry."""
        path = checked_path(entry.path)
        if entry.kind is EntryKind.FILE:
            self._make_room(path, entry.kind)
            content = entry.read if isinstance(entry.read, FileContent) else entry.read()
            self._files.add(path, content, stat.S_IMODE(entry.mode), kept_time(entry.mtime, path))
            if len(self._files.paths) >= CHUNK_FILES or self._files.size >= CHUNK_BYTES:
                self._flush()
        elif self._make_room(path, entry.kind):
            target = checked_path(entry.target) if entry.kind is EntryKind.HARDLINK else entry.target
            node = Node.of(Entry(path, entry.kind, stat.S_IMODE(entry.mode), kept_time(entry.mtime, path), 0, target))
            self._files.nodes.append((len(self._files.paths), node))

    def add_folder(self, source: Listed, advance: Advance = silent) -> None:
        """All entries of a folder, read by several threads; ``advance`` is told how many files were stored."""
        self._flush()
        self._advance = advance
        try:
            folder = os.open(source.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise explain(error, Path(os.fsdecode(source.root)), "give a folder") from error
        try:
            names: list[bytes] = []
            nodes: Nodes = []
            room = self._room()
            for found in source.found():
                if not isinstance(found, bytes):
                    if self._make_room(found.path, found.kind):
                        mtime = kept_time(found.mtime, found.path, source.warn)
                        nodes.append((len(names), Node.of(replaced(found, mtime=mtime))))
                    continue
                if self._tree is not None:
                    self._make_room(found, EntryKind.FILE)
                names.append(found)
                if len(names) >= room:
                    self._submit(partial(self._read, folder, source, names, nodes))
                    names, nodes, room = [], [], self._room()
            self._submit(partial(self._read, folder, source, names, nodes))
            while self._in_flight:
                self._store()
        finally:
            for future in self._in_flight:  # none may use the folder any more
                if not future.cancel():
                    wait([future])
            self._in_flight.clear()
            os.close(folder)
            self._advance = silent

    def add_chunk(self, chunk: Chunk) -> None:
        """Files that are encoded already, as those of another archive are."""
        self._flush()
        for path in chunk.keys or ():
            self._make_room(path, EntryKind.FILE)
        self._submit(lambda: _Encoded(chunk, []))

    def remove(self, rows: Sequence[Removed]) -> None:
        """Take rows of the archive that is added to out of it, in the same step."""
        if not isinstance(self._target, AppendTarget):
            raise StoreError("entries of an archive in a store can't be removed", hint="write it anew")
        self._removed += rows

    def _room(self) -> int:
        """How many files to read together: so many that they come to a chunk's size, as those before did."""
        return max(1, min(CHUNK_FILES, int(CHUNK_BYTES / max(self._mean, 1.0))))

    def _make_room(self, path: bytes, kind: EntryKind) -> bool:
        """Whether an entry is to be added to an archive: it is not there, or takes the place of what is."""
        for removed, there in () if self._tree is None else self._tree.rows_of(path):
            both = (kind is EntryKind.DIRECTORY) + (there is EntryKind.DIRECTORY)
            if both == 1:
                raise EntryExistsError(
                    f"{key_text(path)!r} is a folder, there or here, and not both", hint="remove it first"
                )
            if both == 0 and not self._replace:
                raise EntryExistsError(
                    f"{key_text(path)!r} is in the archive already", hint="--replace puts the new one in its place"
                )
            if not isinstance(self._target, AppendTarget):
                if both:
                    return False
                raise StoreError("entries of an archive in a store can't be replaced", hint="write it anew")
            self._removed.append(removed)
            if there in (EntryKind.FILE, EntryKind.HARDLINK):
                self._replaced.add(path)
        return True

    def _keep_names(self) -> None:
        """Hard links to files that were replaced: the first becomes the file as it was, others lead there."""
        if self._tree is None or not self._replaced:
            return
        gone = {(one.shard, one.first) for one in self._removed if one.is_node}
        files: dict[bytes, bytes] = {}
        for shard in self._tree.shards:
            for at in range(len(shard.nodes)):
                node = shard.nodes.node(at)
                if node.kind != EntryKind.HARDLINK or node.target not in self._replaced:
                    continue
                file = None if shard.is_removed(True, at) else self._tree.linked(node.target)
                if file is None or (shard.number, at) in gone:
                    continue
                self._removed.append(Removed(shard.number, True, at, 1))
                first = files.setdefault(file[0], node.path) if file[0] in self._replaced else file[0]
                if first == node.path:
                    content = content_of(self._tree.shards[file[1]].file, file[3], file[0])
                    self._files.add(node.path, content, node.mode, node.mtime)
                    if self._files.size >= CHUNK_BYTES:
                        self._flush()
                else:
                    self._files.nodes.append((len(self._files.paths), replaced(node, target=first)))

    def _read(self, folder: int, source: Listed, names: list[bytes], nodes: Nodes) -> _Encoded:
        """Files as they are on disk, encoded."""
        content, numbers = kernels.read_files(folder, names, READ_AT_ONCE)
        facts = numbers.reshape(-1, 8)
        for i in np.flatnonzero(facts[:, 7])[:1]:
            error, place = int(facts[i, 7]), Path(os.fsdecode(os.path.join(source.root, names[i])))
            raise explain(OSError(error, os.strerror(error)), place, "leave it out with --exclude")
        data = content.data
        sizes, offsets = facts[:, 0], facts[:, 1]
        contents: list[Payload] = [
            data[offset : offset + size] for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True)
        ]
        times = self._true_times(source, names, facts[:, 2])
        for i in np.flatnonzero(offsets < 0).tolist():
            large = os.path.join(source.root, names[i])
            contents[i] = FileContent(large, int(sizes[i]), times.get(i, int(facts[i, 2])), source.warn)
        for i, mtime in times.items():
            facts[i, 2] = kept_time(mtime, names[i], source.warn)
        files = Files(names, contents, facts[:, 3] & 0o7777, facts[:, 2], nodes)
        shared = [(int(i), int(facts[i, 4]), int(facts[i, 5])) for i in np.flatnonzero(facts[:, 6] > 1)]
        return _Encoded(encode(self._specs, files, self._near), shared)

    def _true_times(self, source: Listed, names: list[bytes], mtimes: NDArray[np.int64]) -> dict[int, int]:
        """Times that do not fit into 64 bits: read as such, those after 2262 are long ago."""
        found = {}
        for i in np.flatnonzero(mtimes < 0).tolist():
            with suppress(OSError):
                mtime = os.lstat(os.path.join(source.root, names[i])).st_mtime_ns
                if not FIRST <= mtime <= LAST:
                    found[i] = mtime
        return found

    def _flush(self) -> None:
        """Have the files that were added one by one encoded."""
        files, self._files = self._files, Files()
        if files.paths or files.nodes:
            self._submit(lambda: _Encoded(encode(self._specs, files, self._near), []))

    def _submit(self, job: Callable[[], _Encoded]) -> None:
        """Have a job done, now or in the pool; what it gives is stored in the order of submission."""
        if self._pool is None:
            done: Future[_Encoded] = Future()
            done.set_result(job())
            self._in_flight.append(done)
            self._store()
            return
        while len(self._in_flight) >= self._most:
            self._store()
        self._in_flight.append(self._pool.submit(job))

    def _store(self) -> None:
        """Store what was submitted first."""
        encoded = self._in_flight.popleft().result()
        chunk = self._linked(encoded)
        keys, sizes = chunk.keys or [], chunk.columns[-1].metadata["value"]
        size = int(sizes.sum())
        if keys:
            self._mean = 0.5 * self._mean + 0.5 * size / len(keys)
        # What stands behind the last file comes before the next: so it does not matter where chunks are cut.
        nodes = [(0, node) for node in self._carried] + [(at, node) for at, node in chunk.nodes or () if at < len(keys)]
        carried = [node for at, node in chunk.nodes or () if at >= len(keys)]
        if not keys:
            self._carried += carried
            return
        self._carried = carried
        self._target.append(Chunk(chunk.count, chunk.columns, chunk.keys, nodes, sizes + ROW))
        self.num_files += len(keys)
        self.num_bytes += size
        self._advance(len(keys))

    def _linked(self, encoded: _Encoded) -> Chunk:
        """The chunk with second names of files as links."""
        chunk, links = encoded.chunk, {}
        assert chunk.keys is not None
        for row, device, inode in encoded.shared:
            path = chunk.keys[row]
            first = self._links.setdefault((device, inode), path)
            if first != path:
                mode, mtime = (int(chunk.columns[column].metadata["value"][row]) for column in (2, 3))
                links[row] = Node(path, first, mtime, mode, EntryKind.HARDLINK)
        return without_rows(chunk, links) if links else chunk

    def close(self) -> None:
        """Finish and publish."""
        if not self._open:
            return
        try:
            self._keep_names()
            self._flush()
            while self._in_flight:
                self._store()
            last = encode(self._specs, Files())
            self._target.append(Chunk(0, last.columns, [], [(0, node) for node in self._carried]))
            if isinstance(self._target, AppendTarget):
                self._target.removed = self._removed
            self._target.finish()
        except BaseException:
            self.abort()
            raise
        self._stop()

    def abort(self) -> None:
        """Give up: nothing is published."""
        if self._open:
            self._stop()
            self._target.discard()

    def _stop(self) -> None:
        self._open = False
        self._in_flight.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def archive_at(place: Path | ObjectPath) -> Dataset:
    """The archive that is added to."""
    dataset = Dataset(place)
    if not is_archive(dataset):
        raise FormatError(
            "is a dataset and no archive", path=place, hint='"fastloader create" makes archives, of files'
        )
    return dataset
