"""JSONL and CSV: a record a line. Plain files have random access by an index; gzipped ones are gone through."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastloader.errors import FormatError
from fastloader.formats.indexes import Ranges, index_of, read_ranges
from fastloader.formats.objects import Files, Object, buffered
from fastloader.formats.records import Names, Records, Stream, picked
from fastloader.types import Sample

BOM = b"\xef\xbb\xbf"
DELIMITERS = ",\t;|"
LOOKED_AT = 1000
"""Rows from which the types of columns are told."""
SCANNED = 4 << 20
TYPES: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}

_INT = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
_FLOAT = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|inf(inity)?)", re.IGNORECASE)
_LEADING_ZERO = re.compile(r"[+-]?0\d")


def scan(source: Object, begin: int, quoted: bool) -> Iterator[Ranges]:
    """Where records are, blank lines left out; with ``quoted``, a line goes on where quotes are open."""
    start, odd = begin, 0
    for offset in range(begin, source.size, SCANNED):
        piece = np.frombuffer(source.read(offset, min(SCANNED, source.size - offset)), np.uint8)
        ends = np.flatnonzero(piece == ord("\n"))
        if quoted:
            quotes = np.flatnonzero(piece == ord('"'))
            ends = ends[(np.searchsorted(quotes, ends) + odd) % 2 == 0]
            odd = (odd + len(quotes)) % 2
        if len(ends):
            starts = np.concatenate([[start], ends[:-1] + 1 + offset])
            start = int(ends[-1]) + 1 + offset
            yield _filled(source, np.stack([starts, ends + offset - starts], 1), piece, offset)
    if start < source.size:
        if odd:
            raise FormatError(f"at offset {start}: quotes are opened and never closed", path=source.path)
        yield np.array([[start, source.size - start]])


def _filled(source: Object, ranges: Ranges, piece: Any, offset: int) -> Ranges:
    """Without blank lines; only short ones need a look."""
    blank = ranges[:, 1] == 0
    for at in np.flatnonzero(ranges[:, 1] == 1).tolist():
        where = int(ranges[at, 0]) - offset
        blank[at] = (piece[where] if where >= 0 else source.read(offset + where, 1)[0]) == ord("\r")
    return np.ascontiguousarray(ranges[~blank])


@dataclass(frozen=True)
class Header:
    """The columns of a CSV file: what they are called, what parts them, and what their values are."""

    names: tuple[str, ...]
    delimiter: str
    types: tuple[str, ...]

    def sample(self, row: Sequence[str], names: Names) -> Sample:
        """A row as a sample. An empty value is missing, except in a column of texts."""
        if len(row) != len(self.names):
            raise ValueError(f"{len(row)} values for {len(self.names)} columns")
        found = {}
        for name, kind, text in zip(self.names, self.types, row, strict=True):
            if names is None or name in names:
                try:
                    found[name] = None if text == "" and kind != "str" else TYPES[kind](text)
                except ValueError:
                    raise ValueError(
                        f"column {name!r}: {text!r} is no {kind}, as the first {LOOKED_AT} rows were; "
                        f'open with types={{"{name}": "str"}}'
                    ) from None
        return found if names is None else {name: found[name] for name in names}


def header_of(first: str, rows: Sequence[Sequence[str]], types: Mapping[str, str] | None, path: str) -> Header:
    """The columns, from the first line and the rows behind it."""
    delimiter = max(DELIMITERS, key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))
    names = tuple(next(csv.reader([first], delimiter=delimiter), []))
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or "" in names or twice:
        what = f"the column {twice[0]!r} twice" if twice else "a column without a name"
        raise FormatError(f"the first line names columns, and has {what}", path=path)
    unknown = [name for name in types or () if name not in names]
    if unknown:
        raise FormatError(f"types: no column {unknown[0]!r}; there are {', '.join(names)}", path=path)
    columns = list(zip(*(row for row in rows if len(row) == len(names)), strict=True)) or [()] * len(names)
    told = {name: type_of(column) for name, column in zip(names, columns, strict=True)} | dict(types or {})
    return Header(names, delimiter, tuple(told[name] for name in names))


def type_of(texts: Sequence[str]) -> str:
    """What all of these are. A number with a leading zero is a text: it is a code, and the zero would be lost."""
    there = [text for text in texts if text]
    if there and all(_INT.fullmatch(text) for text in there):
        return "int"
    if there and all(_FLOAT.fullmatch(text) and not _LEADING_ZERO.match(text) for text in there):
        return "float"
    return "str"


def parse_json(line: str) -> Sample:
    """A line of JSONL."""
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError(f"a sample is an object like {{...}}, not a {type(value).__name__}")
    return value


class Lines(Records):
    """What both have in common."""

    def decoded(self, file: Ranges, rows: Sequence[int], number: int) -> Iterator[tuple[str, int, int]]:
        """The text of each line, its number and its offset."""
        source, ranges = self.source(number), file[rows]
        for row, offset, line in zip(rows, ranges[:, 0].tolist(), read_ranges(source, ranges), strict=True):
            try:
                yield str(line, "utf-8").removesuffix("\r"), row, offset
            except UnicodeDecodeError as error:
                raise FormatError(
                    f"record {row} at offset {offset + error.start}: is no UTF-8: {error.reason}", path=source.path
                ) from error

    def count(self, file: Ranges) -> int:
        """One a line."""
        return len(file)


class JsonLines(Lines):
    """An object a line. Samples have the fields they have."""

    format = "jsonl"

    @property
    def names(self) -> Names:
        """Each has its own."""
        return None

    def begin(self, number: int) -> Ranges:
        """The index of lines."""
        source = self.source(number)
        start = len(BOM) if source.read(0, min(3, source.size)) == BOM else 0
        return index_of(source, "lines", lambda: scan(source, start, quoted=False))

    def samples(self, number: int, file: Ranges, rows: Sequence[int], names: Names) -> list[Sample]:
        """Parsed."""
        found = []
        for text, row, offset in self.decoded(file, rows, number):
            try:
                found.append(picked(parse_json(text), names))
            except (ValueError, RecursionError) as error:
                raise FormatError(f"record {row} at offset {offset}: {error}", path=self.paths[number]) from error
        return found


class CommaLines(Lines):
    """Values with delimiters between them; the first line of each file names the columns."""

    format = "csv"

    def __init__(self, files: Files, types: Mapping[str, str] | None = None) -> None:
        super().__init__(files)
        self._header: Header | None = None
        lines = self._all_lines(0)
        if not len(lines):
            raise FormatError("is empty, where a line of column names is expected", path=self.paths[0])
        texts = [text for text, _, _ in self.decoded(lines, range(min(len(lines), LOOKED_AT + 1)), 0)]
        plain = header_of(texts[0], [], None, self.paths[0])
        rows = [row for text in texts[1:] for row in csv.reader([text], delimiter=plain.delimiter)]
        self._header = header_of(texts[0], rows, types, self.paths[0])

    @property
    def header(self) -> Header:
        """That of the first file."""
        assert self._header is not None
        return self._header

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return self.header.names

    def _all_lines(self, number: int) -> Ranges:
        source = self.source(number)
        start = len(BOM) if source.read(0, min(3, source.size)) == BOM else 0
        return index_of(source, "csv", lambda: scan(source, start, quoted=True))

    def begin(self, number: int) -> Ranges:
        """The index of lines behind the first, which must name the same columns."""
        lines = self._all_lines(number)
        if not len(lines):
            raise FormatError("is empty, where a line of column names is expected", path=self.paths[number])
        first, _, _ = next(self.decoded(lines, [0], number))
        names = tuple(next(csv.reader([first], delimiter=self.header.delimiter), []))
        if names != self.header.names:
            raise FormatError(
                f"has the columns {', '.join(names)}, and {self.paths[0]} has {', '.join(self.header.names)}",
                path=self.paths[number],
            )
        return lines[1:]

    def samples(self, number: int, file: Ranges, rows: Sequence[int], names: Names) -> list[Sample]:
        """Parsed, each value as the type of its column."""
        found = []
        for text, row, offset in self.decoded(file, rows, number):
            try:
                values = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.header.delimiter, strict=True))
                found.append(self.header.sample(values, names))
            except (ValueError, csv.Error) as error:
                raise FormatError(f"record {row} at offset {offset}: {error}", path=self.paths[number]) from error
        return found


def unzipped(source: Object) -> gzip.GzipFile:
    """A gzipped object as the bytes it stands for."""
    return gzip.GzipFile(fileobj=buffered(source), mode="rb")


class ZippedJsonLines(Stream):
    """The same, gzipped."""

    format = "jsonl.gz"

    @property
    def names(self) -> Names:
        """Each has its own."""
        return None

    def samples(self, source: Object, start: int, names: Names) -> Iterator[Sample]:
        """Line by line; those before ``start`` are not parsed."""
        number = 0
        with unzipped(source) as stream:
            for line in stream:
                text = line.decode("utf-8-sig" if not number else "utf-8").strip("\r\n")
                if text:
                    number += 1
                    if number > start:
                        yield picked(parse_json(text), names)


class ZippedCommaLines(Stream):
    """The same, gzipped."""

    format = "csv.gz"

    def __init__(self, files: Files, types: Mapping[str, str] | None = None) -> None:
        super().__init__(files)
        try:
            with unzipped(files[0]) as stream:
                text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
                first = text.readline()
                delimiter = header_of(first.rstrip("\r\n"), [], None, self.paths[0]).delimiter
                rows = [row for row, _ in zip(csv.reader(text, delimiter=delimiter), range(LOOKED_AT), strict=False)]
        except (OSError, EOFError, ValueError, csv.Error, zlib.error) as error:
            raise FormatError(str(error), path=self.paths[0]) from error
        self.header = header_of(first.rstrip("\r\n"), rows, types, self.paths[0])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return self.header.names

    def samples(self, source: Object, start: int, names: Names) -> Iterator[Sample]:
        """Row by row."""
        with unzipped(source) as stream:
            text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
            rows = (row for row in csv.reader(text, delimiter=self.header.delimiter, strict=True) if row)
            found = tuple(next(rows, ()))
            if found != self.header.names:
                raise FormatError(f"has other columns than {self.paths[0]}: {', '.join(found)}", path=source.path)
            for number, row in enumerate(rows):
                if number >= start:
                    yield self.header.sample(row, names)
