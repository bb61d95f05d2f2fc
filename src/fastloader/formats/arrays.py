"""NPY and NPZ: rows of arrays as samples, or each file as one."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError, FormatError
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


class ArrayRows(Columns):
    """The first axis counts samples; each array is a field. NPZ names them; that of an NPY is ``data``."""

    format = "npy"

    def begin(self, number: int) -> dict[str, Stored | Packed]:
        """The arrays of a file, by their headers."""
        source = self.source(number)
        arrays = described(source, self._kept)
        if self._wanted is not None:
            arrays = {name: array for name, array in arrays.items() if name in self._wanted}
        check_lengths(source.path, {name: array.shape for name, array in arrays.items()})
        return arrays

    def count(self, file: dict[str, Stored | Packed]) -> int:
        """As many as the arrays have rows."""
        return next(iter(file.values())).shape[0] if file else 0

    def samples(self, number: int, file: dict[str, Stored | Packed], rows: Sequence[int], names: Names) -> list[Sample]:
        """Rows of each array."""
        names = names or self._names
        missing = [name for name in names if name not in file]
        if missing:
            raise FormatError(f"has no array {missing[0]!r}, as {self.paths[0]} does", path=self.paths[number])
        columns = [file[name].rows(rows) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


class ArrayFiles(EachFile):
    """Each file is a sample, with all its arrays whole."""

    format = "npz"

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._names = tuple(described(files[0], Kept()))

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


def load(source: Object, names: Names) -> dict[str, NDArray[Any]]:
    """The arrays of a file, whole and checked by the checksums of a ZIP; an NPY's is ``data``, or has no name."""
    try:
        found = np.load(io.BytesIO(source.read(0, source.size)), allow_pickle=False)
        if isinstance(found, np.ndarray):
            return dict.fromkeys(names or ("",), found)
        missing = [name for name in names or () if name not in found]
        if missing:
            raise FormatError(f"has no array {missing[0]!r}; there are {', '.join(found)}", path=source.path)
        return {name: found[name] for name in names or found}
    except FastLoaderError:
        raise
    except Exception as error:  # whatever a header that is parsed as Python gives, and sizes that no memory has
        raise FormatError(f"can't be read as arrays: {error}", path=source.path) from error


def described(source: Object, kept: Kept) -> dict[str, Stored | Packed]:
    """The arrays of a file by name, without reading more than headers."""
    head = source.read(0, min(6, source.size))
    try:
        if head == NPY:
            return {"data": _array(source, 0, source.size, None, kept)}
        if head[:4] != ZIP:
            raise FormatError(f"is no NPY or NPZ: it begins with {head!r}", path=source.path)
        with zipfile.ZipFile(Reading(source)) as archive:
            members = archive.infolist()
            found: dict[str, Stored | Packed] = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if member.compress_type == zipfile.ZIP_STORED:
                    sizes = source.read(member.header_offset, _LOCAL_HEADER)[26:30]
                    skip = int.from_bytes(sizes[:2], "little") + int.from_bytes(sizes[2:], "little")
                    offset = member.header_offset + _LOCAL_HEADER + skip
                    found[name] = _array(source, offset, member.file_size, name, kept)
                else:
                    with archive.open(member) as stream:
                        shape, _, _ = _header(stream)
                    found[name] = Packed(source, name, shape, kept)
            return found
    except FastLoaderError as error:
        error.path = error.path or source.path
        raise
    except Exception as error:
        raise FormatError(f"can't be read as arrays: {error}", path=source.path) from error


def _array(source: Object, offset: int, size: int, member: str | None, kept: Kept) -> Stored | Packed:
    stream = io.BufferedReader(Reading(source), 4096)
    stream.seek(offset)
    shape, fortran, dtype = _header(stream)
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
    shape, fortran, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise FormatError("holds Python objects, which are pickled and never read: loading them may run code")
    return shape, fortran, dtype
