"""Tokens of a corpus, wherever they lie: which files or objects are meant, and where in each the tokens are."""

from __future__ import annotations

import glob
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError, NotFoundError
from fastloader.fields import TokenStreamField
from fastloader.formats.fld import Dataset, FldFile, Manifest, explain
from fastloader.formats.fld.file import tables_within
from fastloader.formats.fld.layout import MAGIC, Entry, Kind
from fastloader.formats.objects import Places, at_once
from fastloader.stores import MappedFile, ObjectPath, RefusedError, RemoteFile
from fastloader.stores.urls import is_url, local_path

NAME = "tokens"
_MEGATRON = b"MMIDIDX\x00\x00"
_MEGATRON_HEAD = len(_MEGATRON) + 9
_MEGATRON_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one file: bytes ``begin`` to ``end``. ``table`` has their checksums, where the file has some, and
    ``entry`` says where these are. Of an object, ``remote``, no tokens are here.
    """

    path: Path | ObjectPath
    bytes: NDArray[np.uint8]
    inode: tuple[int, int]
    dtype: np.dtype[Any]
    begin: int
    end: int
    remote: RemoteFile | None = None
    table: kernels.Table | None = None
    entry: Entry | None = None
    field: TokenStreamField | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return (self.end - self.begin) // self.dtype.itemsize

    @property
    def version(self) -> str:
        """Tells an object from others of its name; files are known by what is mapped."""
        return "" if self.remote is None else self.remote.version


def files_of(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], places: Places | None = None
) -> list[Path | ObjectPath]:
    """The files or objects that are named: one, several, or those that a pattern with ``*`` finds, in order of their
    names. ``places`` says how objects are got at, where not as the environment says.
    """
    places = places or Places()
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[Path | ObjectPath] = []
    for one in given:
        name = os.fspath(one)
        name = local_path(name) or name
        if glob.has_magic(name) and not name.startswith(("http://", "https://")) and not os.path.exists(name):
            matches = places.of(name).match(name) if is_url(name) else sorted(glob.glob(name))
            if not matches:
                raise NotFoundError("no file has such a name", path=name, hint="check the pattern")
            found += map(places.locate, matches)
        else:
            found.append(places.locate(name))
    if not found:
        raise ValueError("a stream of no files")
    if len({isinstance(one, ObjectPath) for one in found}) > 1:
        raise ValueError(f"{found[0]}, ..., {found[-1]}: local files and objects in a store; make a stream of each")
    return found


def open_all(paths: Sequence[Path | ObjectPath], dtype: np.dtype[Any] | None, header_bytes: int) -> list[Tokens]:
    """The tokens of all files; of objects many are asked for at the same time."""

    def one(number: int) -> list[Tokens]:
        return open_tokens(paths[number], dtype, header_bytes)

    several = len(paths) > 1 and isinstance(paths[0], ObjectPath)
    parts = at_once(one, range(len(paths))) if several else map(one, range(len(paths)))
    return [tokens for part in parts for tokens in part]


def open_tokens(path: Path | ObjectPath, dtype: np.dtype[Any] | None, header_bytes: int) -> list[Tokens]:
    """The tokens of a file or an object, or of each shard of a folder."""
    if isinstance(path, ObjectPath):
        try:
            remote = RemoteFile(path, tables_within)
        except (NotFoundError, RefusedError):  # who may not list is refused what is not there
            manifest = Manifest.found(path)
            if manifest is None:
                raise
            return _of_shards(Dataset(path, manifest), dtype)
        if remote.bytes[: len(MAGIC)].tobytes() == MAGIC:
            return [tokens_of(FldFile(path, remote=remote), dtype)]
        return [_raw(path, remote, dtype, header_bytes)]
    if path.is_dir():
        return _of_shards(Dataset(path), dtype)
    try:
        mapped = MappedFile(path)
    except FileNotFoundError:
        raise NotFoundError("there is no such file", path=path, hint="check the path") from None
    if mapped.bytes[: len(MAGIC)].tobytes() == MAGIC:
        return [tokens_of(FldFile(path), dtype)]
    return [_raw(path, mapped, dtype, header_bytes)]


def _of_shards(dataset: Dataset, dtype: np.dtype[Any] | None) -> list[Tokens]:
    if dataset.removed or dataset.manifest.columns is not None:
        raise FormatError(
            "is a stream of tokens that was changed", path=dataset.path, hint='run "fastloader compact" on it first'
        )
    numbers = range(len(dataset.shards))
    dataset.warm(numbers, lambda number: tokens_of(dataset.file(number), dtype))
    return [tokens_of(dataset.file(number), dtype) for number in numbers]


def _raw(
    path: Path | ObjectPath, opened: MappedFile | RemoteFile, dtype: np.dtype[Any] | None, header_bytes: int
) -> Tokens:
    dtype = dtype or _megatron_dtype(path)
    if dtype is None:
        raise ValueError(
            f"{path}: raw tokens do not say what they are; give dtype='uint16', or whatever they were written as"
        )
    size = opened.size - header_bytes
    if size < 0 or size % dtype.itemsize:
        raise FormatError(
            f"has {opened.size} bytes, which are no {header_bytes} of a header and whole tokens of {dtype}",
            path=path, hint="check dtype= and header_bytes=",
        )  # fmt: skip
    remote = opened if isinstance(opened, RemoteFile) else None
    return Tokens(path, opened.bytes, opened.inode, dtype, header_bytes, opened.size, remote)


def tokens_of(file: FldFile, dtype: np.dtype[Any] | None = None) -> Tokens:
    """The tokens of a ``.fld`` file, known to be of this type where one is given."""
    for number, descriptor in enumerate(file.descriptors):
        if descriptor.type_id == TokenStreamField.type_id:
            try:
                field = TokenStreamField.from_binary(descriptor.arguments)
                table, entry = file.table_alone(Kind.TOKENS, number), file.directory.get((Kind.TOKENS, number))
            except kernels.Failure as failure:
                raise explain(failure, file.path, None, descriptor.name) from failure
            except (ValueError, TypeError, KeyError) as error:
                raise file.broken(f"has options of {descriptor.name!r} that can't be read: {error}") from error
            if table is None or entry is None or entry.row_size != field.dtype.itemsize:
                raise file.broken(f"has no tokens of {field.dtype}")
            if dtype is not None and dtype != field.dtype:
                raise ValueError(f"{file.path}: dtype={str(dtype)!r}, and its tokens are {field.dtype}; leave it out")
            begin, end = entry.offset, entry.offset + entry.size
            return Tokens(file.path, file.bytes, file.inode, field.dtype, begin, end, file.remote, table, entry, field)
    raise FormatError(
        "holds samples and no stream of tokens", path=file.path,
        hint="TokenStreamWriter writes one; DataLoader reads samples",
    )  # fmt: skip


def _megatron_dtype(path: Path | ObjectPath) -> np.dtype[Any] | None:
    """The type of tokens that an index of Megatron-LM beside the file tells."""
    index, head = _beside(path, os.path.splitext(path.name)[0] + ".idx")
    if not head.startswith(_MEGATRON) or len(head) < _MEGATRON_HEAD:
        return None
    (code,) = struct.unpack_from("<B", head, len(_MEGATRON) + 8)
    if code not in _MEGATRON_TYPES:
        raise FormatError(f"says that tokens are of type {code}, which holds none", path=index, hint="give dtype=")
    return np.dtype(_MEGATRON_TYPES[code])


def _beside(path: Path | ObjectPath, name: str) -> tuple[Path | ObjectPath, bytes]:
    """A file of this name beside another one, and how it begins; with nothing where it is not there."""
    if isinstance(path, ObjectPath):
        there = path / f"../{name}"
        try:
            found = there.store.stat(there.key)
            return there, bytes(there.store.read(there.key, 0, min(_MEGATRON_HEAD, found.size), version=found.version))
        except (NotFoundError, RefusedError):
            return there, b""
    beside = path.with_name(name)
    if not beside.exists():
        return beside, b""
    with beside.open("rb") as file:
        return beside, file.read(_MEGATRON_HEAD)
