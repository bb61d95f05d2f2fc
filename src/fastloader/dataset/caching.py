"""Elements kept after they were made once: in memory, or in a file that appears when it is whole."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastloader import kernels
from fastloader.dataset.base import MapNode, Node, Run
from fastloader.dataset.once import Again
from fastloader.errors import ChecksumError, FormatError
from fastloader.stores import AtomicFile, MappedFile

MAGIC = b"FLCACHE1"
END = struct.Struct("<QQQI")
"""At the end of the file: elements, where the table begins, bytes of the signature behind it, CRC32C of both."""
ROW = np.dtype([("offset", "<u8"), ("size", "<u8"), ("crc", "<u4")])
PIECE = 4 << 20


@dataclass(frozen=True, eq=False)
class MemoryCache(MapNode):
    """Each element kept in memory when it was first asked for. Beneath, every pass is the first."""

    parent: MapNode
    _kept: Again[dict[int, Any]] = field(default_factory=Again, init=False, repr=False)

    def label(self) -> str:
        """The name."""
        return "cache()"

    def where(self, run: Run) -> str:
        """How many are kept."""
        return f"in memory: {len(self._kept.known() or ())} elements"

    def epochal(self) -> bool:
        """All passes are the same."""
        return False

    def length(self, run: Run) -> int | None:
        """As many as before."""
        return self.parent.length(run)

    def get(self, run: Run, epoch: int, index: int) -> Any:
        """The element, made at most once but for threads that meet."""
        kept = self._kept.get(None, dict)
        if index not in kept:
            kept.setdefault(index, self.parent.get(run, 0, index))
        return lent(kept[index])


@dataclass(frozen=True, eq=False)
class WholeCache(MapNode):
    """All elements, made in one pass when first needed, in memory or in a file. Then there is random access."""

    streams = True
    parent: Node
    path: Path | None
    _store: Again[Sequence[Any]] = field(default_factory=Again, init=False, repr=False)

    def label(self) -> str:
        """The name; the file may move."""
        return "cache()"

    def where(self, run: Run) -> str:
        """Where they are kept, if they are."""
        store = self._store.known()
        known = "made when first needed" if store is None else f"{len(store)} elements"
        return f"in {'memory' if self.path is None else self.path}: {known}"

    def epochal(self) -> bool:
        """All passes are the same."""
        return False

    def origin(self, run: Run) -> str:
        """That of the file, which what is beneath may have changed behind."""
        store = None if self.path is None else self.store(run)
        return store.origin if isinstance(store, CacheFile) else super().origin(run)

    def store(self, run: Run) -> Sequence[Any]:
        """The elements; a file that is there is used."""
        return self._store.get(None, lambda: self._make(run))

    def _make(self, run: Run) -> Sequence[Any]:
        if isinstance(self.parent, MapNode) and self.parent.length(run) is None:
            raise ValueError("cache: the dataset is endless; take(n) bounds it")
        signature = self.parent.signature(run)
        if self.path is not None and self.path.exists():
            return CacheFile(self.path, signature)
        with closing(run.start(self.parent, 0)) as elements:
            if self.path is None:
                return list(elements)
            write_cache(self.path, elements, signature)
        return CacheFile(self.path, signature)

    def length(self, run: Run) -> int:
        """All there are."""
        return len(self.store(run))

    def get(self, run: Run, epoch: int, index: int) -> Any:
        """One element."""
        return lent(self.store(run)[index])


def lent(value: Any) -> Any:
    """The value, so that changing what was given does not change what is kept: new containers, read-only arrays."""
    if isinstance(value, dict):
        return {key: lent(one) for key, one in value.items()}
    if isinstance(value, list):
        return [lent(one) for one in value]
    if type(value) is tuple:
        return tuple(lent(one) for one in value)
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    return value


def write_cache(path: Path, elements: Iterable[Any], signature: str) -> None:
    """Pickle elements one behind the other into a file aside, then a table of them; published by renaming."""
    file = AtomicFile(path)
    try:
        rows, waiting, offset, start = [], bytearray(MAGIC), len(MAGIC), 0
        for element in elements:
            data = pickle.dumps(element, protocol=pickle.HIGHEST_PROTOCOL)
            rows.append((offset, len(data), kernels.crc32c(data)))
            waiting += data
            offset += len(data)
            if len(waiting) >= PIECE:
                file.write_at(start, bytes(waiting))
                start, waiting = offset, bytearray()
        tail = np.array(rows, ROW).tobytes() + signature.encode()
        end = END.pack(len(rows), offset, len(signature.encode()), kernels.crc32c(tail))
        file.write_at(start, bytes(waiting) + tail + end)
        file.publish(offset + len(tail) + len(end))
    finally:
        file.discard()


class CacheFile(Sequence[Any]):
    """A file that ``write_cache`` made. Pickles can run code: read only caches of your own."""

    def __init__(self, path: Path, signature: str) -> None:
        self.path = path
        self._bytes = MappedFile(path).bytes
        size = len(self._bytes)
        if size < len(MAGIC) + END.size or self._bytes[: len(MAGIC)].tobytes() != MAGIC:
            raise self._refused("is no cache of a dataset")
        count, table, text, crc = END.unpack(self._bytes[size - END.size :].tobytes())
        if table < len(MAGIC) or table + count * ROW.itemsize + text + END.size != size:
            raise self._refused("is damaged: its table does not fit")
        tail = self._bytes[table : size - END.size]
        if kernels.crc32c(tail) != crc:
            raise ChecksumError(
                "the table is damaged", stored=crc, computed=kernels.crc32c(tail), path=path, hint=_HINT
            )
        self.origin = f"{size}-{crc:08x}"
        self._rows = tail[: count * ROW.itemsize].view(ROW)
        stored = tail[count * ROW.itemsize :].tobytes().decode()
        if stored != signature:
            raise self._refused(f"is a cache of another expression: {stored}, and this is {signature}")

    def _refused(self, message: str) -> FormatError:
        return FormatError(message, path=self.path, hint=_HINT)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        row = self._rows[index]
        data = self._bytes[row["offset"] : row["offset"] + row["size"]]
        computed = kernels.crc32c(data)
        if computed != row["crc"]:
            raise ChecksumError(
                "the element is damaged", stored=int(row["crc"]), computed=computed, path=self.path,
                sample=int(index), hint=_HINT,
            )  # fmt: skip
        return pickle.loads(data.data)


_HINT = "remove it and it will be made anew"
