"""Tokens seen as windows: what a reader and a loader ask of a dataset, by arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.fields import Field, NDArrayField
from fastloader.formats.fld.layout import DEFAULT_PAGE_SIZE, PAGE, Descriptor, FieldFlags, Kind
from fastloader.formats.fld.manifest import Shard
from fastloader.formats.fld.runs import Runs
from fastloader.formats.objects import Places, digest_of
from fastloader.formats.tokens import NAME, Tokens, open_all
from fastloader.stores import ObjectPath


class WindowFile:
    """The windows of one file, as readers and the engine ask for samples."""

    has_keys = False

    def __init__(self, tokens: Tokens, length: int, step: int, descriptors: list[Descriptor]) -> None:
        item = tokens.dtype.itemsize
        self.path, self.inode, self.bytes, self.remote = tokens.path, tokens.inode, tokens.bytes, tokens.remote
        self.size = tokens.end - tokens.begin
        self.descriptors = descriptors
        self.directory: dict[tuple[int, int], Any] = {}
        self._tokens = tokens
        self._length, self._step = length * item, step * item
        self._windows = self._windows_in(tokens.bytes, tokens.table)
        self.num_samples = self._windows.rows

    def _windows_in(self, data: NDArray[np.uint8], table: kernels.Table | None) -> kernels.Payloads:
        tokens = self._tokens
        return kernels.Payloads.windows(data, tokens.begin, tokens.end, self._length, self._step, table)

    def table(self, kind: Kind, field: int = 0, rows: NDArray[np.int64] | None = None) -> None:
        """There are none: nothing is missing and nothing needs metadata."""

    def payloads(self, field: int) -> kernels.Payloads:
        """The windows; of an object, who reads them has to fetch them."""
        return self._windows

    def payloads_of(self, field: int, rows: NDArray[np.int64]) -> kernels.Payloads:
        """Like ``payloads``, with the bytes of at least these rows; of an object, with the blocks that they are in, so
        that they can be checked.
        """
        if self.remote is None:
            return self._windows
        entry, begins = self._tokens.entry, rows[rows >= 0] * self._step
        if entry is None:
            first = (self._tokens.begin + begins).tolist()
            return self._windows_in(self.remote.fetched([(at, self._length) for at in first]), None)
        blocks = begins // entry.block_size
        counts = (begins + self._length - 1) // entry.block_size - blocks + 1
        ranges, sums = [], []
        for block, count in zip(blocks.tolist(), counts.tolist(), strict=True):
            at = block * entry.block_size
            ranges.append((entry.offset + at, min(count * entry.block_size, entry.size - at)))
            sums.append((entry.crcs_offset + 4 * block, 4 * count))
        data = self.remote.fetched(ranges, sums)
        table = kernels.Table(data, entry.offset, entry.size, entry.row_size, entry.block_size, entry.crcs_offset)
        return self._windows_in(data, table)

    def is_missing(self, field: int, sample: int) -> bool:
        """Never."""
        return False

    def metadata_row(self, field: int, sample: int, dtype: np.dtype[Any]) -> Any:
        """An empty one."""
        return np.zeros(1, dtype)[0]

    def payload(self, field: int, sample: int) -> memoryview:
        """The bytes of a window, checked where there are checksums: a view of the file where it is mapped."""
        if self.remote is not None:
            return self.payloads_of(field, np.array([sample], np.int64)).read(sample).data
        where = self._windows.locate(sample)
        assert where is not None
        return self.bytes[where[0] : where[0] + where[1]].data

    def keys(self) -> None:
        """There are none."""

    def find(self, key: bytes) -> None:
        """There are none."""

    def pages(self) -> NDArray[Any]:
        """Which windows begin on which page of the file."""
        edges = np.arange(0, self._tokens.end + DEFAULT_PAGE_SIZE, DEFAULT_PAGE_SIZE)
        firsts = np.clip(-((self._tokens.begin - edges) // self._step), 0, self.num_samples)
        rows = np.zeros(len(edges) - 1, PAGE)
        rows["first_sample"], rows["num_samples"] = firsts[:-1], np.diff(firsts)
        return rows


class WindowDataset:
    """The windows of all files, one behind the other; none spans two files."""

    page_size = DEFAULT_PAGE_SIZE
    has_keys = False

    def __init__(
        self, paths: Sequence[Path | ObjectPath], length: int, step: int, dtype: np.dtype[Any] | None,
        header_bytes: int, known: tuple[tuple[int, str], ...] | None = None,
    ) -> None:  # fmt: skip
        found = [path if isinstance(path, ObjectPath) else path.absolute() for path in paths]
        self._made = (found, length, step, dtype, header_bytes)
        self.path = found[0]
        self.is_remote = isinstance(self.path, ObjectPath)
        self.tokens = open_all(found, dtype, header_bytes)
        kinds = {one.dtype for one in self.tokens}
        if len(kinds) > 1:
            raise FormatError(
                f"files of one stream have tokens of {' and '.join(sorted(map(str, kinds)))}", path=self.path,
                hint="make a stream of each",
            )  # fmt: skip
        self.dtype = self.tokens[0].dtype
        if known is not None and known != self.identities:
            raise FormatError("has other files than when the stream was opened", path=self.path, hint="open it again")
        field = NDArrayField(self.dtype, (length,))
        self._field = field
        self.descriptors = [Descriptor(NAME, NDArrayField.type_id, FieldFlags.PAYLOAD, 0, 0, 0, field.to_binary())]
        self._files = [WindowFile(one, length, step, self.descriptors) for one in self.tokens]
        self.shards = tuple(Shard(str(file.path), file.num_samples, file.size, 0) for file in self._files)
        self.objects = self.shards
        if self.is_remote:  # of which a cache keeps all
            self.objects = tuple(Shard(str(one.path), one.num_samples, len(one.bytes), 0) for one in self._files)
        self.runs = Runs.of(np.array([file.num_samples for file in self._files], np.int64))
        self.starts = self.row_starts = self.runs.starts
        self.names = [NAME]
        self.sample_bytes = length * self.dtype.itemsize
        blocks = [one.entry.block_size for one in self.tokens if one.entry is not None]
        self.lone_bytes = self.sample_bytes + (max(blocks, default=0) if self.is_remote else 0)
        """What is read for the sake of one window: of an object, the blocks that it is in."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Tokens of each file."""
        return tuple(one.count for one in self.tokens)

    @property
    def identities(self) -> tuple[tuple[int, str], ...]:
        """What tells the files from others: their tokens and, of objects, their versions."""
        return tuple((one.count, one.version) for one in self.tokens)

    @property
    def origin(self) -> str:
        """What tells it from another dataset that may be there another day."""
        files = (one.version if one.remote is not None else Places().origins([str(one.path)])[0] for one in self.tokens)
        return digest_of([repr(self._made[1:]), *files])

    def __reduce__(self) -> tuple[Any, ...]:
        return WindowDataset, (*self._made, self.identities)

    def warm(self, numbers: Sequence[int], use: Callable[[int], object]) -> None:
        """All files are open."""

    @property
    def num_samples(self) -> int:
        """Windows of all files."""
        return int(self.starts[-1])

    def file(self, number: int) -> WindowFile:
        """One file's windows."""
        return self._files[number]

    def field(self, number: int) -> Field:
        """Arrays of tokens."""
        return self._field

    def find(self, key: bytes) -> None:
        """There are no keys."""

    def where(self, sample: int) -> tuple[int, int]:
        """File and row of a window."""
        return self.runs.where(sample)
