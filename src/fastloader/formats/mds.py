"""MosaicML's MDS: a folder with ``index.json`` and shards, each with a table of where its samples are."""

from __future__ import annotations

import json
import posixpath
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from fastloader.errors import FormatError, NotFoundError
from fastloader.formats.indexes import Ranges, read_ranges
from fastloader.formats.objects import Files, Object, Places
from fastloader.formats.records import Kept, Names, Records
from fastloader.formats.unpacked import MOST_BYTES, Unpacked
from fastloader.stores import RefusedError
from fastloader.types import Sample

INDEX = "index.json"
_NUMBERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)} | {"float16", "float32", "float64"}


@dataclass(frozen=True)
class Shard:
    """What the index says of a shard."""

    path: str
    samples: int
    raw_bytes: int
    zipped: str | None
    """The path of its compressed form, where only that is meant to be there."""
    compression: str | None
    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int | None, ...]


def load_index(source: Object) -> list[Shard]:
    """The shards that an ``index.json`` names."""
    path = source.path
    try:
        index = json.loads(source.read(0, source.size))
        return [_shard(posixpath.dirname(path), shard) for shard in index["shards"]]
    except FormatError as error:
        error.path = path
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"is no index of MDS shards: {type(error).__name__}: {error}", path=path) from error


def _shard(folder: str, about: dict[str, Any]) -> Shard:
    if about["format"] != "mds":
        raise FormatError(f"the shards are {about['format']!r}, and only those of MDS are read here")
    names = tuple(map(str, about["column_names"]))
    encodings, sizes = tuple(about["column_encodings"]), tuple(about["column_sizes"])
    if not len(names) == len(encodings) == len(sizes):
        raise FormatError("names, encodings and sizes of columns differ in number")
    for encoding in encodings:
        decoder_of(encoding)
    zipped = about.get("zip_data")
    paths = [within(folder, one["basename"]) for one in (about["raw_data"], zipped) if one]
    raw_bytes, samples = int(about["raw_data"]["bytes"]), int(about["samples"])
    if not 0 <= raw_bytes <= MOST_BYTES or samples < 0:
        raise FormatError(f"a shard of {samples} samples in {raw_bytes} bytes")
    return Shard(
        paths[0], samples, raw_bytes, paths[1] if zipped else None, about.get("compression"), names, encodings, sizes
    )


def within(folder: str, name: str) -> str:
    """The path of what an index names, which lies in its folder."""
    if posixpath.isabs(name) or ".." in name.split("/"):
        raise FormatError(f"the shard {name!r} lies outside of the folder")
    return posixpath.join(folder, name)


class Mds(Records):
    """Samples with the columns that the index names."""

    format = "mds"

    def __init__(self, indexes: Files) -> None:
        numbers = range(len(indexes.paths))
        self._shards = [shard for found in indexes.each(lambda n: load_index(indexes[n]), numbers) for shard in found]
        if not self._shards:
            raise FormatError("names no shards", path=indexes.paths[0])
        super().__init__(Files(tuple(shard.path for shard in self._shards), indexes.places))
        self._indexes = indexes.paths
        self._kept = Kept()
        first = self._shards[0]
        for shard in self._shards[1:]:
            if (shard.names, shard.encodings) != (first.names, first.encodings):
                raise FormatError(f"has other columns than {first.path}", path=shard.path)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return self._shards[0].names

    @property
    def starts(self) -> Any:
        """From the index alone."""
        return np.cumsum([0, *(shard.samples for shard in self._shards)], dtype=np.int64)

    def shared_bytes(self) -> list[int]:
        """From the index alone; what is packed is read whole, and kept unpacked in memory."""
        return [shard.raw_bytes for shard in self._shards if shard.zipped is None]

    def origins(self) -> list[str]:
        """Of indexes and shards, in the form in which each is read."""
        return origins_of(self.files, self._indexes, [shard.zipped for shard in self._shards])

    def begin(self, number: int) -> tuple[Object, Ranges]:
        """A shard, unpacked if need be, and where its samples are."""
        shard = self._shards[number]
        source = self._opened(number, shard)
        if source.size != shard.raw_bytes:
            raise FormatError(f"has {source.size} bytes, and the index says {shard.raw_bytes}", path=source.path)
        need = 4 * (shard.samples + 2)
        count = int.from_bytes(source.read(0, 4), "little") if source.size >= need else -1
        if count != shard.samples:
            raise FormatError(f"at offset 0: {count} samples, and the index says {shard.samples}", path=source.path)
        offsets = np.frombuffer(source.read(4, need - 4), "<u4").astype(np.int64)
        sizes = np.diff(offsets)
        if (sizes < 0).any() or offsets[0] < need or offsets[-1] > source.size:
            bad = int(np.argmax(sizes < 0)) if (sizes < 0).any() else 0
            raise FormatError(f"at offset {4 + 4 * bad}: its table of samples is broken", path=source.path)
        return source, np.stack([offsets[:-1], sizes], 1)

    def _opened(self, number: int, shard: Shard) -> Object:
        if shard.zipped is None or is_there(self.files.places, shard.path):
            return self.source(number)
        codec = (shard.compression or "").partition(":")[0]
        return Unpacked(self._kept, self.files.places.open(shard.zipped), shard.raw_bytes, codec)

    def count(self, file: Any) -> int:
        """One a range."""
        return len(file[1])

    def samples(self, number: int, file: tuple[Object, Ranges], rows: Sequence[int], names: Names) -> list[Sample]:
        """Decoded."""
        shard, (source, ranges) = self._shards[number], file
        found = []
        for row, data in zip(rows, read_ranges(source, ranges[rows]), strict=True):
            try:
                found.append(decoded(shard, data, names or shard.names))
            except (ValueError, TypeError, ArithmeticError, zlib.error, RecursionError) as error:
                if isinstance(error, FormatError):
                    raise
                offset = int(ranges[row, 0])
                raise FormatError(f"record {row} at offset {offset}: {error}", path=source.path) from error
        return found


def is_there(places: Places, path: str) -> bool:
    """Whether there is an object at a path."""
    try:
        places.open(path)
    except (NotFoundError, RefusedError):  # some stores refuse what is not there
        return False
    return True


def origins_of(files: Files, indexes: Sequence[str], zipped: Sequence[str | None]) -> list[str]:
    """What tells files that an index names from others, and the index; those that are not there are there zipped."""

    def form(number: int) -> str:
        path, other = files.paths[number], zipped[number]
        return path if other is None or is_there(files.places, path) else other

    return files.places.origins([*indexes, *files.each(form, range(len(files.paths)))])


def decoded(shard: Shard, data: memoryview, names: Sequence[str]) -> Sample:
    """A sample: the sizes of columns that vary, then the columns."""
    varying = sum(size is None for size in shard.sizes)
    if len(data) < 4 * varying:
        raise ValueError(f"{len(data)} bytes are too few for {varying} sizes")
    told = iter(np.frombuffer(data, "<u4", varying).tolist())
    at, found = 4 * varying, {}
    for name, encoding, size in zip(shard.names, shard.encodings, shard.sizes, strict=True):
        length = next(told) if size is None else size
        if at + length > len(data):
            raise ValueError(f"column {name!r} ends {at + length - len(data)} bytes behind its sample")
        if name in names:
            try:
                found[name] = decoder_of(encoding)(bytes(data[at : at + length]))
            except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
                raise ValueError(f"column {name!r} is no {encoding}: {error}") from error
        at += length
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes are left over behind its columns")
    return {name: found[name] for name in names}


def decoder_of(encoding: str) -> Callable[[bytes], Any]:
    """How values of an encoding are read. Images stay as they are encoded; pickles are not read."""
    if encoding in _DECODERS:
        return _DECODERS[encoding]
    if encoding in _NUMBERS:
        return lambda data: np.frombuffer(data, np.dtype(encoding).newbyteorder("<"))[0]
    kind, _, rest = encoding.partition(":")
    if kind == "ndarray":
        return _array_decoder(rest)
    hint = "pickles are not read: loading one may run code" if encoding == "pkl" else "write the column in another one"
    raise FormatError(f"the encoding {encoding!r} is not read here", hint=hint)


def _array_decoder(options: str) -> Callable[[bytes], Any]:
    """Arrays: the dtype and the shape are in the encoding, or before the values."""
    name, _, dims = options.partition(":")
    dtype = np.dtype(name) if name else None
    shape = tuple(map(int, dims.split(","))) if dims else None

    def decode(data: bytes) -> Any:
        kind, at = dtype, 0
        if kind is None:
            if not data or data[0] not in _DTYPES:
                raise ValueError(f"no type of arrays is told by {data[:1]!r}")
            kind, at = np.dtype(_DTYPES[data[0]]), 1
        if shape is not None:
            return np.frombuffer(data, kind, prod(shape), at).reshape(shape)
        code = data[at]
        width, ndim = 1 << (code & 3), code >> 2
        sizes = np.frombuffer(data, f"<u{width}", ndim, at + 1).tolist()
        return np.frombuffer(data, kind, prod(sizes), at + 1 + width * ndim).reshape(sizes)

    return decode


_DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
"""By the byte that stands before an array: its bits, and a bit or two of its kind."""


def pixels(data: bytes | memoryview) -> Any:
    """An image as its width, height, mode and pixels, as LitData has it too."""
    width, height, mode_size = np.frombuffer(data, "<u4", 3).tolist()
    mode = bytes(data[12 : 12 + mode_size]).decode()
    channels = {"L": 1, "RGB": 3, "RGBA": 4, "LA": 2}.get(mode)
    if channels is None:
        raise ValueError(f"pixels of the mode {mode!r} are not read here; there are L, LA, RGB, RGBA")
    return np.frombuffer(data, np.uint8, offset=12 + mode_size).reshape(height, width, channels)


def files_of(data: bytes | memoryview, at: int = 0) -> list[bytes]:
    """Files behind their number and sizes, which begin at ``at``, as LitData has them too."""
    count = int.from_bytes(data[at : at + 4], "little")
    begin = at + 4 + 4 * count
    if len(data) < begin:
        raise ValueError(f"{len(data)} bytes are too few for {count} files")
    ends = np.cumsum([begin, *np.frombuffer(data, "<u4", count, at + 4).tolist()]).tolist()
    if ends[-1] != len(data):
        raise ValueError(f"its files end at {ends[-1]}, and it has {len(data)} bytes")
    return [bytes(data[begin:end]) for begin, end in pairwise(ends)]


def _listed(data: bytes) -> list[bytes]:
    return files_of(data, 4)  # behind a number that means nothing yet


def _text(data: bytes) -> str:
    return data.decode("utf-8")


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes, "jpeg": bytes, "png": bytes, "jpeg_array": files_of, "jpegarray": files_of,
    "list[jpeg]": _listed, "list[png]": _listed, "list[pil]": lambda data: [pixels(one) for one in _listed(data)],
    "str": _text, "json": json.loads, "int": lambda data: int(np.frombuffer(data, "<i8")[0]), "pil": pixels,
    "str_int": lambda data: int(_text(data)), "str_float": lambda data: float(_text(data)),
    "str_decimal": lambda data: Decimal(_text(data)),
}  # fmt: skip
