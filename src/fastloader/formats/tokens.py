"""Files of tokens seen as windows: what a reader and a loader ask of a dataset, by arithmetic."""

from __future__ import annotations

import glob
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError, NotFoundError
from fastloader.fields import Field, NDArrayField, TokenStreamField
from fastloader.formats.fld import Dataset, FldFile, explain
from fastloader.formats.fld.layout import DEFAULT_PAGE_SIZE, MAGIC, PAGE, Descriptor, FieldFlags, Kind
from fastloader.formats.fld.manifest import Shard
from fastloader.formats.fld.runs import Runs
from fastloader.stores import MappedFile

NAME = "tokens"
_MEGATRON = b"MMIDIDX\x00\x00"
_MEGATRON_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one file: bytes ``begin`` to ``end``. ``table`` has their checksums, where the file has some."""

    path: Path
    mapped: NDArray[np.uint8]
    inode: tuple[int, int]
    dtype: np.dtype[Any]
    begin: int
    end: int
    table: kernels.Table | None = None
    field: TokenStreamField | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return (self.end - self.begin) // self.dtype.itemsize


def files_of(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that are named: one, several, or those that a pattern with ``*`` finds, in order of their names."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[Path] = []
    for one in given:
        name = os.fspath(one)
        if not os.path.exists(name) and glob.has_magic(name):
            matches = sorted(glob.glob(name))
            if not matches:
                raise NotFoundError("no file has such a name", path=name, hint="check the pattern")
            found += map(Path, matches)
        else:
            found.append(Path(name))
    if not found:
        raise ValueError("a stream of no files")
    return found


def open_tokens(path: Path, dtype: np.dtype[Any] | None, header_bytes: int) -> list[Tokens]:
    """The tokens of a file, or of each shard of a folder."""
    if path.is_dir():
        dataset = Dataset(path)
        if dataset.removed or dataset.manifest.columns is not None:
            raise FormatError(
                "is a stream of tokens that was changed", path=path, hint='run "fastloader compact" on it first'
            )
        return [_of_fld(dataset.file(number), dtype) for number in range(len(dataset.shards))]
    try:
        mapped = MappedFile(path)
    except FileNotFoundError:
        raise NotFoundError("there is no such file", path=path, hint="check the path") from None
    if mapped.bytes[: len(MAGIC)].tobytes() == MAGIC:
        return [_of_fld(FldFile(path), dtype)]
    dtype = dtype or _megatron_dtype(path)
    if dtype is None:
        raise ValueError(
            f"{path}: raw tokens do not say what they are; give dtype='uint16', or whatever they were written as"
        )
    size = mapped.size - header_bytes
    if size < 0 or size % dtype.itemsize:
        raise FormatError(
            f"has {mapped.size} bytes, which are no {header_bytes} of a header and whole tokens of {dtype}",
            path=path, hint="check dtype= and header_bytes=",
        )  # fmt: skip
    return [Tokens(path, mapped.bytes, mapped.inode, dtype, header_bytes, mapped.size)]


def _of_fld(file: FldFile, dtype: np.dtype[Any] | None) -> Tokens:
    for number, descriptor in enumerate(file.descriptors):
        if descriptor.type_id == TokenStreamField.type_id:
            try:
                field = TokenStreamField.from_binary(descriptor.arguments)
                table, entry = file.table(Kind.TOKENS, number), file.directory.get((Kind.TOKENS, number))
            except kernels.Failure as failure:
                raise explain(failure, file.path, None, descriptor.name) from failure
            except (ValueError, TypeError, KeyError) as error:
                raise file.broken(f"has options of {descriptor.name!r} that can't be read: {error}") from error
            if table is None or entry is None or entry.row_size != field.dtype.itemsize:
                raise file.broken(f"has no tokens of {field.dtype}")
            if dtype is not None and dtype != field.dtype:
                raise ValueError(f"{file.path}: dtype={str(dtype)!r}, and its tokens are {field.dtype}; leave it out")
            begin, end = entry.offset, entry.offset + entry.size
            assert isinstance(file.path, Path)  # streams are made of local files
            return Tokens(file.path, file.bytes, file.inode, field.dtype, begin, end, table, field)
    raise FormatError(
        "holds samples and no stream of tokens", path=file.path,
        hint="TokenStreamWriter writes one; DataLoader reads samples",
    )  # fmt: skip


def _megatron_dtype(path: Path) -> np.dtype[Any] | None:
    """The type of tokens that an index of Megatron-LM beside the file tells."""
    index = path.with_suffix(".idx")
    if not index.exists():
        return None
    with index.open("rb") as file:
        head = file.read(len(_MEGATRON) + 9)
    if not head.startswith(_MEGATRON) or len(head) < len(_MEGATRON) + 9:
        return None
    (code,) = struct.unpack_from("<B", head, len(_MEGATRON) + 8)
    if code not in _MEGATRON_TYPES:
        raise FormatError(f"says that tokens are of type {code}, which holds none", path=index, hint="give dtype=")
    return np.dtype(_MEGATRON_TYPES[code])


class WindowFile:
    """The windows of one file, as readers and the engine ask for samples."""

    has_keys = False
    remote = None

    def __init__(self, tokens: Tokens, length: int, step: int, descriptors: list[Descriptor]) -> None:
        item = tokens.dtype.itemsize
        self.path, self.inode, self.bytes = tokens.path, tokens.inode, tokens.mapped
        self.size = tokens.end - tokens.begin
        self.descriptors = descriptors
        self.directory: dict[tuple[int, int], Any] = {}
        self._step = step * item
        self._begin = tokens.begin
        self._windows = kernels.Payloads.windows(
            tokens.mapped, tokens.begin, tokens.end, length * item, self._step, tokens.table
        )
        self.num_samples = self._windows.rows

    def table(self, kind: Kind, field: int = 0, rows: NDArray[np.int64] | None = None) -> None:
        """There are none: nothing is missing and nothing needs metadata."""

    def payloads(self, field: int) -> kernels.Payloads:
        """The windows."""
        return self._windows

    def is_missing(self, field: int, sample: int) -> bool:
        """Never."""
        return False

    def metadata_row(self, field: int, sample: int, dtype: np.dtype[Any]) -> Any:
        """An empty one."""
        return np.zeros(1, dtype)[0]

    def payload(self, field: int, sample: int) -> memoryview:
        """The bytes of a window, a view of the file."""
        where = self._windows.locate(sample)
        assert where is not None
        return self.bytes[where[0] : where[0] + where[1]].data

    def keys(self) -> None:
        """There are none."""

    def find(self, key: bytes) -> None:
        """There are none."""

    def pages(self) -> NDArray[Any]:
        """Which windows begin on which page of the file."""
        edges = np.arange(0, self._begin + self.size + DEFAULT_PAGE_SIZE, DEFAULT_PAGE_SIZE)
        firsts = np.clip(-((self._begin - edges) // self._step), 0, self.num_samples)
        rows = np.zeros(len(edges) - 1, PAGE)
        rows["first_sample"], rows["num_samples"] = firsts[:-1], np.diff(firsts)
        return rows


class WindowDataset:
    """The windows of all files, one behind the other; none spans two files."""

    page_size = DEFAULT_PAGE_SIZE
    has_keys = False
    is_remote = False

    def __init__(
        self, paths: Sequence[Path], length: int, step: int, dtype: np.dtype[Any] | None, header_bytes: int,
        known: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        self._made = ([path.absolute() for path in paths], length, step, dtype, header_bytes)
        self.path = paths[0].absolute()
        self.tokens = [one for path in paths for one in open_tokens(path, dtype, header_bytes)]
        kinds = {one.dtype for one in self.tokens}
        if len(kinds) > 1:
            raise FormatError(
                f"files of one stream have tokens of {' and '.join(sorted(map(str, kinds)))}", path=self.path,
                hint="make a stream of each",
            )  # fmt: skip
        self.dtype = self.tokens[0].dtype
        if known is not None and known != self.counts:
            raise FormatError("has other files than when the stream was opened", path=self.path, hint="open it again")
        field = NDArrayField(self.dtype, (length,))
        self._field = field
        self.descriptors = [Descriptor(NAME, NDArrayField.type_id, FieldFlags.PAYLOAD, 0, 0, 0, field.to_binary())]
        self._files = [WindowFile(one, length, step, self.descriptors) for one in self.tokens]
        self.shards = tuple(Shard(str(file.path), file.num_samples, file.size, 0) for file in self._files)
        self.objects = self.shards
        self.runs = Runs.of(np.array([file.num_samples for file in self._files], np.int64))
        self.starts = self.row_starts = self.runs.starts
        self.names = [NAME]
        self.sample_bytes = length * self.dtype.itemsize

    @property
    def counts(self) -> tuple[int, ...]:
        """Tokens of each file."""
        return tuple(one.count for one in self.tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        return WindowDataset, (*self._made, self.counts)

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
