"""NPY and NPZ: rows of arrays as samples, or each file as one."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError, FormatError, KeyNotFoundError
from fastloader.formats.files import EachFile
from fastloader.formats.objects import Files, Object, Reading
from fastloader.formats.records import Columns, Kept, Names, runs
from fastloader.types import Sample

NPY, ZIP = b"\x93NUMPY", b"PK\x03\x04"
_LOCAL_HEADER = 30
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Stored:
    """An array that lies in a file as it is in memory, from ``offset`` on."""

    source: Object
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        """Of one step along the first axis."""
        return prod(self.shape[1:]) * self.dtype.itemsize

    def rows(self, rows: Sequence[int]) -> list[Any]:
        """Neighbours are read together."""
        wanted, back = np.unique(np.asarray(rows, np.int64), return_inverse=True)
        found: list[Any] = []
        for first, stop in runs(wanted):
            data = b""
            if self.row_bytes:
                data = self.source.read(self.offset + first * self.row_bytes, (stop - first) * self.row_bytes)
            found += list(np.frombuffer(data, self.dtype).reshape(stop - first, *self.shape[1:]))
        return [found[at] for at in back.tolist()]


@dataclass(frozen=True)
class Packed:
    """An array that must be read whole: compressed, or in Fortran's order."""

    source: Object
    member: str | None
    shape: tuple[int, ...]
    kept: Kept

    def rows(self, rows: Sequence[int]) -> list[Any]:
        """From the array, which is kept."""
        array = self.kept.get((self.source.path, self.member), self._load)
        return [array[row] for row in rows]

    def _load(self) -> tuple[NDArray[Any], int]:
        array = load(self.source, None if self.member is None else (self.member,))[self.member or ""]
        return array, array.nbytes


@dataclass(frozen=True)
class Pickled:
    """An array of Python objects, which is never read."""

    member: str | None

    def refused(self, path: str) -> FormatError:
        """Why."""
        which, hint = ("", None) if self.member is None else (f"array {self.member!r} ", "choose others with fields=")
        why = "holds Python objects, which are pickled and never read: loading them may run code"
        return FormatError(which + why, path=path, hint=hint)


class ArrayRows(Columns):
    """The first axis counts samples; each array is a field. NPZ names them; that of an NPY is ``data``."""

    format = "npy"

    def begin(self, number: int) -> dict[str, Stored | Packed]:
        """The arrays of a file, by their headers."""
        source = self.source(number)
        arrays = readable(described(source, self._kept), getattr(self, "_names", self._wanted), source.path)
        check_lengths(source.path, {name: array.shape for name, array in arrays.items()})
        return arrays

    def count(self, file: dict[str, Stored | Packed]) -> int:
        """As many as the arrays have rows."""
        return next(iter(file.values())).shape[0] if file else 0

    def samples(self, number: int, file: dict[str, Stored | Packed], rows: Sequence[int], names: Names) -> list[Sample]:
        """Rows of each array."""
        names = names or self._names
        columns = [file[name].rows(rows) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


class ArrayFiles(EachFile):
    """Each file is a sample, with all its arrays whole; ``wanted`` are those of interest."""

    format = "npz"

    def __init__(self, files: Files, wanted: Names = None) -> None:
        super().__init__(files)
        self._names = tuple(readable(described(files[0], Kept()), wanted, self.paths[0]))

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays of the first file."""
        return self._names

    def samples(self, number: int, file: Object, rows: Sequence[int], names: Names) -> list[Sample]:
        """The one sample."""
        arrays = load(file, names or self._names)
        return [{name: arrays[name] for name in names or self._names}] * len(rows)


def check_lengths(path: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse arrays whose first axes do not agree."""
    flat = [name for name, shape in shapes.items() if not shape]
    if flat:
        raise FormatError(
            f"{flat[0]!r} has no axis that could count samples", path=path,
            hint="choose others with fields=, or rows=False, which makes each file a sample",
        )  # fmt: skip
    lengths = {name: shape[0] for name, shape in shapes.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise FormatError(f"the first axes differ in length: {said}", path=path, hint="choose with fields=")


def readable(arrays: Mapping[str, Stored | Packed | Pickled], wanted: Names, path: str) -> dict[str, Stored | Packed]:
    """The arrays that are wanted, all unless some are named; those that are never read are refused."""
    missing = [name for name in wanted or () if name not in arrays]
    if missing:
        raise KeyNotFoundError(f"has no array {missing[0]!r}; there are {', '.join(arrays) or 'none'}", path=path)
    found: dict[str, Stored | Packed] = {}
    for name in arrays if wanted is None else wanted:
        array = arrays[name]
        if isinstance(array, Pickled):
            raise array.refused(path)
        found[name] = array
    return found


def load(source: Object, names: Names) -> dict[str, NDArray[Any]]:
    """The arrays of a file, whole and checked by the checksums of a ZIP; an NPY's is ``data``, or has no name."""
    try:
        found = np.load(io.BytesIO(source.read(0, source.size)), allow_pickle=False)
        if isinstance(found, np.ndarray):
            return dict.fromkeys(names or ("",), found)
        missing = [name for name in names or () if name not in found]
        if missing:
            raise FormatError(f"has no array {missing[0]!r}; there are {', '.join(found)}", path=source.path)
        return {name: _loaded(found, name, source.path) for name in names or found}
    except FastLoaderError:
        raise
    except Exception as error:  # whatever a header that is parsed as Python gives, and sizes that no memory has
        raise FormatError(f"can't be read as arrays: {error}", path=source.path) from error


def _loaded(archive: Any, name: str, path: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = archive[name]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise Pickled(name).refused(path) from error
        raise
    return array


def described(source: Object, kept: Kept) -> dict[str, Stored | Packed | Pickled]:
    """The arrays of a file by name, without reading more than headers."""
    head = source.read(0, min(6, source.size))
    try:
        if head == NPY:
            return {"data": _array(source, 0, source.size, None, kept)}
        if head[:4] != ZIP:
            raise FormatError(f"is no NPY or NPZ: it begins with {head!r}", path=source.path)
        with zipfile.ZipFile(Reading(source)) as archive:
            members = archive.infolist()
            found: dict[str, Stored | Packed | Pickled] = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if member.compress_type == zipfile.ZIP_STORED:
                    sizes = source.read(member.header_offset, _LOCAL_HEADER)[26:30]
                    skip = int.from_bytes(sizes[:2], "little") + int.from_bytes(sizes[2:], "little")
                    offset = member.header_offset + _LOCAL_HEADER + skip
                    found[name] = _array(source, offset, member.file_size, name, kept)
                else:
                    with archive.open(member) as stream:
                        shape, _, dtype = _header(stream)
                    found[name] = Pickled(name) if dtype.hasobject else Packed(source, name, shape, kept)
            return found
    except FastLoaderError as error:
        error.path = error.path or source.path
        raise
    except Exception as error:
        raise FormatError(f"can't be read as arrays: {error}", path=source.path) from error


def _array(source: Object, offset: int, size: int, member: str | None, kept: Kept) -> Stored | Packed | Pickled:
    stream = io.BufferedReader(Reading(source), 4096)
    stream.seek(offset)
    shape, fortran, dtype = _header(stream)
    if dtype.hasobject:
        return Pickled(member)
    begin = stream.tell()
    need = prod(shape) * dtype.itemsize
    if begin + need > offset + size:
        raise FormatError(
            f"at offset {begin}: {need} bytes of {dtype} {shape} should follow, and {max(0, offset + size - begin)} do"
        )
    if fortran and len(shape) > 1:
        return Packed(source, member, shape, kept)
    return Stored(source, begin, shape, dtype)


def _header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise FormatError(f"NPY version {version[0]}.{version[1]} is not known; there are 1.0 and 2.0")
    return _HEADERS[version](stream)
