"""TFRecord: records with two CRC32C each, found by an index that is built once. Examples are parsed."""

from __future__ import annotations

import contextlib
import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fastloader.errors import ChecksumError, FormatError
from fastloader.formats.indexes import Ranges, index_of, read_ranges
from fastloader.formats.lines import unzipped
from fastloader.formats.objects import Files, Object, buffered
from fastloader.formats.records import Names, Records, Stream, picked
from fastloader.kernels import Failure, crc32c, parse_example
from fastloader.types import Sample

HEAD = struct.Struct("<QI")
"""The length of the data, and the masked CRC32C of these eight bytes."""
TAIL = struct.Struct("<I")
LOOKED_AT = 100
"""Records from which it is told which features hold one value."""
_LONGEST = 1 << 40


def masked(data: bytes | memoryview) -> int:
    """The checksum as TFRecord stores it.

    >>> hex(masked(b""))
    '0xa282ead8'
    """
    value = crc32c(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_head(head: bytes) -> bool:
    """Whether these bytes begin a record."""
    return len(head) >= HEAD.size and HEAD.unpack_from(head)[1] == masked(head[:8])


def length_of(head: bytes, record: int, offset: int, left: int) -> int:
    """The length that a record's head tells, checked; ``left`` bytes follow the head."""
    if len(head) < HEAD.size:
        raise FormatError(f"record {record} at offset {offset}: the file ends within its head")
    length, stored = HEAD.unpack(head)
    if stored != masked(head[:8]):
        raise ChecksumError(f"record {record} at offset {offset}: its length", stored=stored, computed=masked(head[:8]))
    if length + TAIL.size > left:
        raise FormatError(
            f"record {record} at offset {offset}: {length + TAIL.size} bytes should follow its head, and {left} do"
        )
    return int(length)


def scan(source: Object) -> Iterator[Ranges]:
    """Where the data of each record is. Lengths are checked; data is when it is read."""
    stream = buffered(source)
    found: list[tuple[int, int]] = []
    at = record = 0
    while at < source.size:
        head = stream.read(HEAD.size)
        length = length_of(head, record, at, source.size - at - HEAD.size)
        found.append((at + HEAD.size, length))
        at += HEAD.size + length + TAIL.size
        stream.seek(at)
        record += 1
        if len(found) == 65_536:
            yield np.array(found, np.int64)
            found = []
    if found:
        yield np.array(found, np.int64)


def checked(data: memoryview, record: int, offset: int) -> memoryview:
    """A record's data, without the checksum that follows it and agrees."""
    (stored,) = TAIL.unpack(data[-TAIL.size :])
    body = data[: -TAIL.size]
    if stored != masked(body):
        raise ChecksumError(f"record {record} at offset {offset}: its data", stored=stored, computed=masked(body))
    return body


class Parser:
    """Records to samples: the features of an Example, or ``data`` where the first record is none.

    A feature that held one value in each of the first records is that value, any other a list of bytes or an array.
    """

    def __init__(self, first: Sequence[bytes], types: Mapping[str, str] | None) -> None:
        self.lists: set[str] = {name for name, kind in (types or {}).items() if kind == "list"}
        self.ones: set[str] = set()
        try:
            examples = [parse_example(data, set()) for data in first[:1]]
            self.is_example = True
        except ValueError:
            self.is_example = False
            return
        for data in first[1:]:
            with contextlib.suppress(ValueError):  # told when it is read
                examples.append(parse_example(data, set()))
        seen: dict[str, list[int]] = {}
        for example in examples:
            for name, feature in example.items():
                seen.setdefault(name, []).append(len(feature))
        self.ones = {name for name, counts in seen.items() if set(counts) == {1} and name not in self.lists}

    def sample(self, data: memoryview, names: Names) -> Sample:
        """A record as a sample; what an Example lacks is missing."""
        if not self.is_example:
            return picked({"data": bytes(data)}, names)
        found = parse_example(data, self.ones)
        for name in self.ones & found.keys():
            feature = found[name]
            if isinstance(feature, list | np.ndarray):
                if len(feature):
                    raise ValueError(
                        f"feature {name!r} has {len(feature)} values, and one in each of the first records; "
                        f'open with types={{"{name}": "list"}}'
                    )
                found[name] = None
        return {name: found.get(name) for name in (sorted(found) if names is None else names)}


class TFRecord(Records):
    """Plain files, with random access."""

    format = "tfrecord"

    def __init__(self, files: Files, types: Mapping[str, str] | None = None) -> None:
        super().__init__(files)
        first = _leading(self.source(self.first_filled()))
        self._parser = Parser(first, types)

    @property
    def names(self) -> Names:
        """Each record may have its own."""
        return None if self._parser.is_example else ("data",)

    def begin(self, number: int) -> Ranges:
        """The index."""
        source = self.source(number)
        try:
            return index_of(source, "tfrecord", lambda: scan(source))
        except FormatError as error:
            error.path = error.path or source.path
            raise

    def count(self, file: Ranges) -> int:
        """All records."""
        return len(file)

    def samples(self, number: int, file: Ranges, rows: Sequence[int], names: Names) -> list[Sample]:
        """Checked and parsed."""
        path, found = self.paths[number], []
        ranges = file[rows] + (0, TAIL.size)
        heads = (ranges[:, 0] - HEAD.size).tolist()
        for row, offset, data in zip(rows, heads, read_ranges(self.source(number), ranges), strict=True):
            try:
                found.append(self._parser.sample(checked(data, row, offset), names))
            except FormatError:
                raise
            except Failure as failure:
                raise FormatError(f"record {row} at offset {offset}: {failure.args[1]}", path=path) from failure
            except ValueError as error:
                raise FormatError(f"record {row} at offset {offset}: {error}", path=path) from error
        return found


def _leading(source: Object) -> list[bytes]:
    """The data of the first records, up to one that is damaged, which is told when it is read."""
    found: list[bytes] = []
    stream = buffered(source)
    at = 0
    while at < source.size and len(found) < LOOKED_AT:
        try:
            length = length_of(stream.read(HEAD.size), len(found), at, source.size - at - HEAD.size)
            found.append(bytes(checked(memoryview(stream.read(length + TAIL.size)), len(found), at)))
        except FormatError as error:
            if not found and not at and not isinstance(error, ChecksumError):
                error.path = source.path
                raise
            break
        at += HEAD.size + length + TAIL.size
    return found


class ZippedTFRecord(Stream):
    """Gzipped files, gone through."""

    format = "tfrecord.gz"

    def __init__(self, files: Files, types: Mapping[str, str] | None = None) -> None:
        super().__init__(files)
        some = (_leading_packed(files[number]) for number in range(len(files.paths)))
        self._parser = Parser(next(filter(None, some), []), types)

    @property
    def names(self) -> Names:
        """Each record may have its own."""
        return None if self._parser.is_example else ("data",)

    def samples(self, source: Object, start: int, names: Names) -> Iterator[Sample]:
        """Record by record; those before ``start`` are checked and not parsed."""
        for record, data in enumerate(_records(source)):
            if record >= start:
                yield self._parser.sample(memoryview(data), names)


def _leading_packed(source: Object) -> list[bytes]:
    """The same of a gzipped file."""
    found: list[bytes] = []
    try:
        found.extend(itertools.islice(_records(source), LOOKED_AT))
    except (FormatError, OSError, EOFError, zlib.error) as error:
        if not found:
            raise FormatError(str(error), path=source.path) from error
    return found


def _records(source: Object) -> Iterator[bytes]:
    at = record = 0
    with unzipped(source) as stream:
        while head := stream.read(HEAD.size):
            length = length_of(head, record, at, _LONGEST)
            data = stream.read(length + TAIL.size)
            if len(data) < length + TAIL.size:
                raise FormatError(f"record {record} at offset {at} of what is packed: the file ends within it")
            yield bytes(checked(memoryview(data), record, at))
            at += HEAD.size + len(data)
            record += 1
