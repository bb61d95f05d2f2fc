"""JSONL and CSV: a record a line. Plain files have random access by an index; gzipped ones are gone through."""

from __future__ import annotations

import contextlib
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

from fastloader.errors import FastLoaderError, FormatError
from fastloader.formats.indexes import Ranges, index_of, read_ranges
from fastloader.formats.objects import Files, Object, buffered
from fastloader.formats.records import Names, Records, Stream, picked
from fastloader.formats.scanning import begin_of, scan
from fastloader.types import Sample

DELIMITERS = ",\t;|"
LOOKED_AT = 1000
"""Rows from which the types of columns are told."""
FIRST_LINE = 64 << 10
"""Bytes that are read at once where the first line alone is wanted."""

_INT = re.compile(r"[+-]?(0|[1-9]\d*)", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[+-]?\d+)?|nan|inf(inity)?)", re.ASCII | re.IGNORECASE
)  # fmt: skip
"""Numbers of which nothing is lost. With a leading zero they are codes."""


def whole(text: str) -> int:
    """A whole number of 64 bits; a larger one would be another in a batch."""
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise OverflowError
    return value


def plain_int(text: str) -> int:
    """The same, written as one."""
    if not _INT.fullmatch(text):
        raise ValueError
    return whole(text)


def plain_float(text: str) -> float:
    """A number, written as one; a whole one where a float holds it exactly."""
    if not _FLOAT.fullmatch(text):
        raise ValueError
    value = float(text)
    if abs(value) >= 2**53 and _INT.fullmatch(text) and whole(text) != value:
        raise OverflowError
    return value


TYPES: dict[str, Callable[[str], Any]] = {"int": whole, "float": float, "str": str}
"""What reads the values of a column whose type is named."""
TOLD: dict[str, Callable[[str], Any]] = {"int": plain_int, "float": plain_float, "str": str}
"""The same where it is told from the first rows: those behind them are held to what these were."""


@dataclass(frozen=True)
class Header:
    """The columns of a CSV file: what they are called, what parts them, and what their values are."""

    names: tuple[str, ...]
    delimiter: str
    types: tuple[str, ...]
    named: frozenset[str] = frozenset()
    """The columns whose types were asked for."""

    def sample(self, row: Sequence[str], names: Names) -> Sample:
        """A row as a sample. An empty value is missing, except in a column of texts."""
        if len(row) != len(self.names):
            raise ValueError(f"{len(row)} values for {len(self.names)} columns")
        found = {}
        for name, kind, text in zip(self.names, self.types, row, strict=True):
            if names is None or name in names:
                read = (TYPES if name in self.named else TOLD)[kind]
                try:
                    found[name] = None if text == "" and kind != "str" else read(text)
                except (ValueError, OverflowError) as error:
                    raise ValueError(
                        f"column {name!r}: {text!r} {_misfit(error, kind, name in self.named)}; "
                        f'open with types={{"{name}": "str"}}'
                    ) from None
        return found if names is None else {name: found[name] for name in names}


def _misfit(error: Exception, kind: str, named: bool) -> str:
    if isinstance(error, OverflowError):
        return f"does not fit in {'an int' if kind == 'int' else 'a float'} of 64 bits"
    return f"is no {kind}" if named else f"is no {kind}, as the first {LOOKED_AT} rows were"


def header_of(first: str, rows: Sequence[Sequence[str]], types: Mapping[str, str] | None, path: str) -> Header:
    """The columns, from the first line and the rows behind it."""
    delimiter = max(DELIMITERS, key=lambda mark: _values(first, mark))
    try:
        names = tuple(row_of(first, delimiter))
    except (ValueError, csv.Error) as error:
        raise FormatError(f"the first line names columns: {error}", path=path) from error
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or "" in names or twice:
        what = f"the column {twice[0]!r} twice" if twice else "a column without a name"
        raise FormatError(f"the first line names columns, and has {what}", path=path)
    unknown = [name for name in types or () if name not in names]
    if unknown:
        raise FormatError(f"types: no column {unknown[0]!r}; there are {', '.join(names)}", path=path)
    columns = list(zip(*(row for row in rows if len(row) == len(names)), strict=True)) or [()] * len(names)
    told = {name: type_of(column) for name, column in zip(names, columns, strict=True)} | dict(types or {})
    return Header(names, delimiter, tuple(told[name] for name in names), frozenset(types or ()))


def _values(line: str, delimiter: str) -> int:
    """How many values a line has, if this is what parts them."""
    try:
        return len(next(csv.reader([line], delimiter=delimiter), []))
    except csv.Error:
        return 0


def row_of(text: str, delimiter: str) -> list[str]:
    """The values of a record. One that ``csv`` takes for several rows, or for none, is an error and never a loss."""
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    if len(rows) != 1:
        cure = "; lines end with \\n or \\r\\n, and not with \\r alone" if "\r" in text else ""
        raise ValueError(f"{len(rows)} rows where one is expected{cure}")
    return rows[0]


def type_of(texts: Sequence[str]) -> str:
    """What all of these are. What a number would not keep makes them texts: a leading zero, more digits than it has."""
    there = [text for text in texts if text]
    return next((kind for kind in ("int", "float") if there and all(_reads(TOLD[kind], text) for text in there)), "str")


def _reads(read: Callable[[str], Any], text: str) -> bool:
    try:
        read(text)
    except (ValueError, OverflowError):
        return False
    return True


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
        return index_of(source, "lines", lambda: scan(source, begin_of(source)))

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
        number = self._told_by = self.first_filled()
        source, path = self.source(number), self.paths[number]
        heads = scan(source, begin_of(source), DELIMITERS, FIRST_LINE)
        head = next((ranges for ranges in heads if len(ranges)), None)
        if head is None:
            raise FormatError("is empty, where a line of column names is expected", path=path)
        first, _, _ = next(self.decoded(head, [0], number))
        plain = header_of(first, [], None, path)
        lines = self._all_lines(number, plain.delimiter)
        rows = []
        for text, _, _ in self.decoded(lines, range(1, min(len(lines), LOOKED_AT + 1)), number):
            with contextlib.suppress(ValueError, csv.Error):  # told when it is read
                rows.append(row_of(text, plain.delimiter))
        self._header = header_of(first, rows, types, path)

    @property
    def header(self) -> Header:
        """That of the first file that is not empty."""
        assert self._header is not None
        return self._header

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return self.header.names

    def _all_lines(self, number: int, delimiter: str) -> Ranges:
        source = self.source(number)
        return index_of(source, f"csv {delimiter}", lambda: scan(source, begin_of(source), delimiter))

    def begin(self, number: int) -> Ranges:
        """The index of lines behind the first, which must name the same columns. An empty file has none."""
        if not self.source(number).size:
            return np.zeros((0, 2), np.int64)
        lines = self._all_lines(number, self.header.delimiter)
        if not len(lines):
            raise FormatError("is empty, where a line of column names is expected", path=self.paths[number])
        first, _, _ = next(self.decoded(lines, [0], number))
        try:
            names = tuple(row_of(first, self.header.delimiter))
        except (ValueError, csv.Error) as error:
            raise FormatError(f"the first line names columns: {error}", path=self.paths[number]) from error
        if names != self.header.names:
            raise FormatError(
                f"has the columns {', '.join(names)}, and {self.paths[self._told_by]} has "
                f"{', '.join(self.header.names)}",
                path=self.paths[number],
            )
        return lines[1:]

    def samples(self, number: int, file: Ranges, rows: Sequence[int], names: Names) -> list[Sample]:
        """Parsed, each value as the type of its column."""
        found = []
        for text, row, offset in self.decoded(file, rows, number):
            try:
                found.append(self.header.sample(row_of(text, self.header.delimiter), names))
            except (ValueError, csv.Error) as error:
                raise FormatError(f"record {row} at offset {offset}: {error}", path=self.paths[number]) from error
        return found


def unzipped(source: Object) -> gzip.GzipFile:
    """A gzipped object as the bytes it stands for."""
    return gzip.GzipFile(fileobj=buffered(source), mode="rb")


def _packs_nothing(source: Object) -> bool:
    """Whether a gzipped object stands for no bytes; what is damaged does not, and is told when it is read."""
    try:
        with unzipped(source) as stream:
            return not stream.read(1)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False


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
        some = (files[number] for number in range(len(files.paths)))
        source = next((one for one in some if not _packs_nothing(one)), files[0])
        self._told_by = source.path
        try:
            with unzipped(source) as stream:
                text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
                first = text.readline()
                delimiter = header_of(first.rstrip("\r\n"), [], None, source.path).delimiter
                rows = [row for row, _ in zip(csv.reader(text, delimiter=delimiter), range(LOOKED_AT), strict=False)]
        except FastLoaderError:
            raise
        except (OSError, EOFError, ValueError, csv.Error, zlib.error) as error:
            raise FormatError(str(error), path=source.path) from error
        self.header = header_of(first.rstrip("\r\n"), rows, types, source.path)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return self.header.names

    def samples(self, source: Object, start: int, names: Names) -> Iterator[Sample]:
        """Row by row. An empty file has none."""
        if _packs_nothing(source):
            return
        with unzipped(source) as stream:
            text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
            rows = (row for row in csv.reader(text, delimiter=self.header.delimiter, strict=True) if row)
            found = tuple(next(rows, ()))
            if found != self.header.names:
                raise FormatError(f"has other columns than {self._told_by}: {', '.join(found)}", path=source.path)
            for number, row in enumerate(rows):
                if number >= start:
                    yield self.header.sample(row, names)
