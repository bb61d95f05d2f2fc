"""Parquet and Arrow IPC (Feather), through pyarrow. A row group or record batch is read whole and kept for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError, FormatError
from fastloader.formats.extras import required
from fastloader.formats.objects import Files, Object, Reading
from fastloader.formats.records import Kept, Names, Records, Stream
from fastloader.formats.where import Where, checked, mask, possible, text_of
from fastloader.types import Sample

PARQUET, ARROW, FEATHER_1, CONTINUATION = b"PAR1", b"ARROW1", b"FEA1", b"\xff\xff\xff\xff"


class Tables(Records):
    """Rows of tables that come in pieces."""

    def __init__(self, files: Files, where: Where | None = None) -> None:
        super().__init__(files)
        self._kept = Kept()
        self.where = None if where is None else checked(where)
        self._names = tuple(self.file(0).names)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return self._names

    def origins(self) -> list[str]:
        """With the comparisons, which choose as many rows as others might."""
        return [*super().origins(), text_of(self.where)]

    def chosen(self, fields: Sequence[str] | None) -> Names:
        """A choice of columns, each of a name of its own."""
        found = super().chosen(fields)
        check_once(self._names, found or self._names, self.paths[0])
        return found

    def open(self, number: int) -> Pieces:
        """A file, as its pieces."""
        raise NotImplementedError

    def begin(self, number: int) -> Pieces:
        """The file's tables, known to have the columns of the first."""
        path = self.paths[number]
        with explained(path):
            found = self.open(number)
        if number and tuple(found.names) != self._names:
            raise FormatError(
                f"has the columns {', '.join(found.names)}, and {self.paths[0]} has {', '.join(self._names)}", path=path
            )
        if self.where is not None:
            unknown = [name for name, _, _ in self.where if name not in found.names]
            if unknown:
                raise FormatError(f"where: no column {unknown[0]!r}; there are {', '.join(found.names)}", path=path)
            check_once(found.names, [name for name, _, _ in self.where], path)
            with explained(path):
                found.rows = np.concatenate([np.zeros(0, np.int64), *found.matching(self.where)])
        return found

    def count(self, file: Pieces) -> int:
        """All rows, or those that were asked for."""
        return int(file.starts[-1]) if file.rows is None else len(file.rows)

    def samples(self, number: int, file: Pieces, rows: Sequence[int], names: Names) -> list[Sample]:
        """Rows, each piece read once."""
        wanted = np.asarray(rows, np.int64)
        if file.rows is not None:
            wanted = file.rows[wanted]
        names = names or self._names
        pieces = np.searchsorted(file.starts, wanted, "right") - 1
        found: list[Sample] = [{}] * len(rows)
        for piece in dict.fromkeys(pieces.tolist()):
            with explained(self.paths[number], piece):
                table = self._kept.get((number, piece, names), partial(file.loaded, piece, names))
                at = np.flatnonzero(pieces == piece)
                for place, sample in zip(
                    at.tolist(), to_samples(table, wanted[at] - file.starts[piece], names), strict=True
                ):
                    found[place] = sample
        return found


class Pieces:
    """The pieces of a file: where each begins, and how it is read."""

    names: Sequence[str]
    starts: NDArray[np.int64]
    rows: NDArray[np.int64] | None = None
    """The rows that are wanted, where not all are."""

    def load(self, piece: int, names: Sequence[str]) -> Any:
        """A piece as a table with these columns."""
        raise NotImplementedError

    def may_match(self, piece: int, where: Where) -> bool:
        """Whether a piece can hold rows that are wanted, as far as can be told without reading it."""
        return True

    def loaded(self, piece: int, names: Sequence[str]) -> tuple[Any, int]:
        """A piece and its size."""
        table = self.load(piece, list(names))
        if table.num_rows != self.starts[piece + 1] - self.starts[piece]:
            raise FormatError(f"piece {piece} has {table.num_rows} rows, not as many as the file says")
        return table, table.nbytes

    def matching(self, where: Where) -> Iterator[NDArray[np.int64]]:
        """The rows for which all comparisons hold; only the columns compared are read, of pieces that may hold some."""
        names = list(dict.fromkeys(name for name, _, _ in where))
        for piece in range(len(self.starts) - 1):
            if self.may_match(piece, where):
                yield np.flatnonzero(mask(self.load(piece, names), where)) + self.starts[piece]


class RowGroups(Pieces):
    """Those of a Parquet file."""

    def __init__(self, source: Object) -> None:
        pq = required("pyarrow.parquet", "Parquet", source.path)
        file = required("pyarrow", "Parquet", source.path).PythonFile(Reading(source), mode="r")
        self._file = pq.ParquetFile(file, page_checksum_verification=True)
        self._about = self._file.metadata
        self.names = self._file.schema_arrow.names
        groups = range(self._about.num_row_groups)
        self.starts = np.cumsum([0, *(self._about.row_group(group).num_rows for group in groups)])
        # Those that are a column each: what is within one may be called like another, with dots.
        paths = [self._about.schema.column(i).path for i in range(self._about.num_columns)]
        self._columns = {path: i for i, path in enumerate(paths) if "." not in path}

    def load(self, piece: int, names: Sequence[str]) -> Any:
        """A row group. Threads are ours to use: pyarrow's own are not there in a forked child."""
        return self._file.read_row_group(piece, columns=list(names), use_threads=False)

    def may_match(self, piece: int, where: Where) -> bool:
        """By the smallest and largest value that the footer tells."""
        group = self._about.row_group(piece)
        for name, comparison, value in where:
            told = group.column(self._columns[name]).statistics if name in self._columns else None
            if told is not None and told.has_min_max and not possible(told.min, told.max, comparison, value):
                return False
        return True


class RecordBatches(Pieces):
    """Those of an Arrow IPC file."""

    def __init__(self, source: Object) -> None:
        pa = required("pyarrow", "Arrow IPC", source.path)
        self._pa = pa
        self._source = source
        schema = self._open(None).schema
        self.names = schema.names
        # The lengths of batches stand before each. Of their columns, one that is quick to read comes along.
        widths = [kind.bit_width if pa.types.is_primitive(kind) else 2**16 for kind in schema.types]
        narrow = self._open([widths.index(min(widths))] if widths else None)
        counts = [narrow.get_batch(number).num_rows for number in range(narrow.num_record_batches)]
        self.starts = np.cumsum([0, *counts], dtype=np.int64)

    def _open(self, columns: list[int] | None) -> Any:
        options = self._pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
        return self._pa.ipc.open_file(self._pa.PythonFile(Reading(self._source), mode="r"), options=options)

    def load(self, piece: int, names: Sequence[str]) -> Any:
        """A record batch; only the columns asked for are read."""
        batch = self._open([self.names.index(name) for name in names]).get_batch(piece)
        batch.validate(full=True)  # offsets of a damaged file lead anywhere in memory
        return self._pa.Table.from_batches([batch]).select(list(names))


class Parquet(Tables):
    """Row groups, read whole, of the columns asked for."""

    format = "parquet"

    def open(self, number: int) -> Pieces:
        """The footer."""
        return RowGroups(self.source(number))


class ArrowFile(Tables):
    """Arrow IPC in the file format, which Feather is."""

    format = "arrow"

    def open(self, number: int) -> Pieces:
        """The footer, and the lengths of batches."""
        return RecordBatches(self.source(number))


class ArrowStream(Stream):
    """Arrow IPC in the stream format: batches one after the other, with no table of where they are."""

    format = "arrow stream"

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        with explained(self.paths[0]):
            self._names = tuple(self._reader(files[0]).schema.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the first file."""
        return self._names

    def chosen(self, fields: Sequence[str] | None) -> Names:
        """A choice of columns, each of a name of its own."""
        found = super().chosen(fields)
        check_once(self._names, found or self._names, self.paths[0])
        return found

    def _reader(self, source: Object) -> Any:
        pa = required("pyarrow", "Arrow IPC", source.path)
        return pa.ipc.open_stream(pa.PythonFile(Reading(source), mode="r"))

    def samples(self, source: Object, start: int, names: Names) -> Iterator[Sample]:
        """Batch by batch; those before ``start`` are passed over."""
        names = names or self.names
        with explained(source.path):
            reader = self._reader(source)
            if tuple(reader.schema.names) != self.names:
                raise FormatError(f"has other columns than {self.paths[0]}: {', '.join(reader.schema.names)}")
        first = piece = 0
        while True:
            with explained(source.path, piece):
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    return
                batch.validate(full=True)
                rows = np.arange(max(0, start - first), batch.num_rows)
                found = to_samples(batch, rows, names)
            yield from found
            first, piece = first + batch.num_rows, piece + 1


def check_once(names: Sequence[str], wanted: Iterable[str], path: str) -> None:
    """Refuse a name that several columns have."""
    for name in wanted:
        if names.count(name) > 1:
            raise FormatError(
                f"has {names.count(name)} columns called {name!r}", path=path,
                hint="choose others with fields=, or write it with names of their own",
            )  # fmt: skip


class explained:
    """pyarrow's errors as ours, with the file and the piece."""

    def __init__(self, path: str, piece: int | None = None) -> None:
        self._path, self._piece = path, piece

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FastLoaderError):
            error.path = error.path or self._path
        elif type(error).__module__.startswith("pyarrow") or isinstance(error, OSError | ValueError | TypeError):
            where = "" if self._piece is None else f"piece {self._piece}: "
            raise FormatError(f"{where}{str(error).splitlines()[0] if str(error) else error!r}",
                              path=self._path) from error  # fmt: skip


def to_samples(table: Any, rows: NDArray[np.int64], names: Sequence[str]) -> list[Sample]:
    """Rows of a table as dictionaries. Lists of numbers become arrays."""
    taken = table if np.array_equal(rows, np.arange(table.num_rows)) else table.take(rows)
    columns = [values_of(taken.column(name)) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def values_of(column: Any) -> list[Any]:
    """The values of a column: numbers, texts, bytes, ``None``; lists of numbers as arrays, where they can be."""
    import pyarrow as pa

    depth, kind = 0, column.type
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        depth, kind = depth + 1, kind.value_type
    if depth and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return [_array(value, depth, kind.to_pandas_dtype()) for value in column]
    return list(column.to_pylist())


def _array(value: Any, depth: int, dtype: Any) -> Any:
    """An array of a list of numbers; the list where numbers are missing or inner lists differ in length."""
    if not value.is_valid:
        return None
    inner = value.values
    if depth == 1:
        return inner.to_pylist() if inner.null_count else inner.to_numpy(zero_copy_only=False)
    found = value.as_py()
    try:
        return np.array(found, dtype)
    except (ValueError, TypeError):
        return found
