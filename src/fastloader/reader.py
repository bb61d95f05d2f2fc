"""Random access to a dataset: samples, batches, keys."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, FastLoaderError, KeyNotFoundError, UnknownTypeError
from fastloader.fields import BatchDecoder, BatchParts, Decoder, Field, MappedPayloads, locate_batch, locate_value
from fastloader.formats.fld import Dataset, explain
from fastloader.formats.fld.dataset import OPENED_AT_ONCE
from fastloader.formats.fld.file import FldFile, check_hint
from fastloader.formats.fld.joined import place_of
from fastloader.formats.fld.layout import Kind
from fastloader.stores import ObjectPath, locate
from fastloader.stores.cache import cache_at
from fastloader.types import Batch, Key, Sample, distinct, key_bytes, key_text, mask_missing


class _Column:
    """A field ready to be read."""

    def __init__(self, number: int, name: str, field: Field) -> None:
        self.number = number
        self.name = name
        self.field = field
        self.decoder: Decoder = field.get_decoder_class()(field)
        self.batch = self.decoder.batch if isinstance(self.decoder, BatchDecoder) else None
        self.metadata_type = field.metadata_type


class DatasetReader:
    """A dataset open for reading. Safe from many threads and across fork; pickles to its path and snapshot.

    Every payload and every table row is checked against its CRC32C before it is believed.

    ``path`` may be a URL (``s3://``, ``gs://``, ``az://``, ``https://``): header and tables are fetched as they are
    needed, and of payloads what is asked for. ``storage_options`` are for the store's client. With ``cache_dir`` what
    was fetched is kept there, in at most ``cache_size`` bytes (or "50GB"; half of the free space unless given), for all
    processes of the machine. ``snapshot`` opens a folder of shards as it was: by its number, or its name in a loader's
    state.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        snapshot: int | str | None = None,
    ) -> None:
        self._dataset: Dataset | None = dataset_at(
            path, storage_options, cache_dir=cache_dir, cache_size=cache_size, snapshot=snapshot
        )
        self._columns: dict[str, _Column] = {}

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """A reader of a dataset that is open already."""
        reader = cls.__new__(cls)
        reader._dataset, reader._columns = dataset, {}
        return reader

    @property
    def dataset(self) -> Dataset:
        """The files behind this reader."""
        if self._dataset is None:
            raise ValueError("this reader is closed")
        return self._dataset

    @property
    def path(self) -> Path | ObjectPath:
        """What was opened."""
        return self.dataset.path

    @property
    def num_samples(self) -> int:
        """How many samples there are."""
        return self.dataset.num_samples

    @property
    def snapshot(self) -> str | None:
        """What the snapshot is called that is read; ``None`` for files of others, which have none."""
        return getattr(self.dataset, "snapshot", None)

    @property
    def field_names(self) -> list[str]:
        """Field names, in the order they were declared."""
        return list(self.dataset.names)

    @property
    def fields(self) -> dict[str, Field]:
        """Fields by name, with the options they were written with."""
        return {name: self._column(name).field for name in self.dataset.names}

    @property
    def has_keys(self) -> bool:
        """Whether samples can be asked for by key."""
        return self.dataset.has_keys

    def __len__(self) -> int:
        return self.num_samples

    def __repr__(self) -> str:
        if self._dataset is None:
            return "DatasetReader(closed)"
        return f"DatasetReader({str(self.path)!r}, {len(self)} samples of {', '.join(self.field_names)})"

    @overload
    def __getitem__(self, index: int | Key) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> SampleSlice: ...
    def __getitem__(self, index: int | Key | slice) -> Sample | SampleSlice:
        if isinstance(index, slice):
            return SampleSlice(self, range(len(self))[index])
        return self.read_sample(index)

    def __iter__(self) -> Iterator[Sample]:
        for index in range(len(self)):
            yield self.read_sample(index)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | bytes) and self.has_keys and self._find(key) is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files. Arrays already read stay valid."""
        self._dataset = None
        self._columns = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_dataset": self._dataset, "_columns": {}}

    def own_order(self, seed: int) -> Any:
        """The order in which a loader goes through the samples at random; ``None``: a shuffle of all of them."""
        return None

    def index_of(self, key: Key) -> int:
        """The number of the sample with this key."""
        if not self.has_keys:
            raise KeyNotFoundError("the samples have no keys", path=self.path, hint="write them with keys=True")
        found = self._find(key)
        if found is None:
            raise KeyNotFoundError(f"no sample has the key {key!r}", path=self.path)
        return found

    def _find(self, key: Key) -> int | None:
        try:
            return self.dataset.find(key_bytes(key))
        except UnicodeEncodeError:  # text that no key can be
            return None

    def key_of(self, index: int) -> str:
        """The key of a sample, as text (undecodable bytes as surrogates, as in file names)."""
        sample = self.number_of(index)
        number, row = self.dataset.where(sample)
        file = self.dataset.file(number)
        with self._blame(file.path, sample):
            keys = file.keys()
            if keys is None:
                raise KeyNotFoundError("the samples have no keys", path=self.path)
            return key_text(keys.key(row))

    def number_of(self, index: int | Key) -> int:
        """The number of a sample that is named by its number, from the end where that is negative, or by its key."""
        if isinstance(index, str | bytes):
            return self.index_of(index)
        try:
            sample = index.__index__()
        except AttributeError:
            raise TypeError(f"a sample is named by a number or a key, not by {type(index).__name__}") from None
        if not -len(self) <= sample < len(self):
            raise IndexError(f"sample {sample} of a dataset of {len(self)}")
        return sample % len(self) if sample < 0 else sample

    def read_sample(self, index: int | Key, fields: Sequence[str] | None = None) -> Sample:
        """One sample as a dictionary; missing values are ``None``. Arrays may be read-only views of the file."""
        sample = self.number_of(index)
        number, row = self.dataset.where(sample)
        file = self.dataset.file(number)
        values: Sample = {}
        for name in self._names(fields):
            column = self._column(name)
            path = place_of(file, column.number)[0].path
            with self._blame(path, sample, name):
                if file.is_missing(column.number, row):
                    values[name] = None
                    continue
                metadata = file.metadata_row(column.number, row, column.metadata_type)
                values[name] = column.decoder(metadata, lambda c=column: file.payload(c.number, row))  # type: ignore[misc]
            locate_value(values[name], path, sample, name)
        return values

    def read_payload(self, index: int | Key, field: str) -> memoryview | None:
        """A field's stored bytes, checked and decompressed but not decoded: a JPEG stays a JPEG, without its index.

        ``None`` where the value is missing. A field that keeps its values in a table, as numbers do, has no payloads.
        """
        sample = self.number_of(index)
        number, row = self.dataset.where(sample)
        file = self.dataset.file(number)
        with self._blame(file.path, sample, field):
            position = self._position(field)
            if not file.descriptors[position].has_payload:
                raise KeyNotFoundError(
                    "the field has no payloads: its values are rows of a table", hint="read_sample gives the value"
                )
            if file.is_missing(position, row):
                return None
            payload = file.payload(position, row)
            try:
                return self._column(field).field.stored_value(payload)
            except UnknownTypeError:  # nobody here knows more about these bytes
                return payload

    def read_batch(self, indices: ArrayLike, fields: Sequence[str] | None = None) -> Batch:
        """Many samples at once, a native call a field.

        Numbers and fixed shapes come as one array (batch, ...); so do varying shapes when all of the batch agree,
        else they come as a list. Where values are missing, arrays are masked and lists hold ``None``.
        """
        samples = self._indices(indices)
        which, rows, shards = self._locate(samples)
        return {name: self._read_column(self._column(name), samples, which, rows, shards)
                for name in self._names(fields)}  # fmt: skip

    def _read_column(
        self,
        column: _Column,
        samples: NDArray[np.int64],
        which: NDArray[np.int32] | None,
        rows: NDArray[np.int64],
        shards: list[int],
    ) -> Any:
        self.dataset.warm(shards, self.dataset.file)
        files = [self.dataset.file(number) for number in shards]
        try:
            valid = None
            if any((Kind.VALIDITY, column.number) in file.directory for file in files):
                valid = self._validity(column, which, rows, shards)
                if valid.all():
                    valid = None
                else:
                    rows = np.where(valid, rows, -1)
            if column.batch is not None:
                found = self._payloads(column, files, which, rows) if column.field.has_payload else []
                sources = [source for source in found if source is not None]
                metadata = self._metadata(column, files, sources, which, rows)
                values = column.batch(metadata, MappedPayloads(sources, which, rows))
                locate_batch(values, samples, partial(self._path_of, column.number), column.name)
            else:
                present = samples if valid is None else samples[valid]
                found = [self.read_sample(int(i), [column.name])[column.name] for i in present]
                if valid is None:
                    return column.field.collate(found)
                filled = iter(found)
                return [next(filled) if good else None for good in valid]
        except FastLoaderError as error:
            if error.sample is not None:
                raise
            self._name_culprit(column, samples, error)
        except kernels.Failure as failure:
            sample = int(samples[failure.args[2]])
            raise explain(failure, self._path_of(column.number, sample), sample, column.name) from failure
        except MemoryError:
            raise
        except Exception as error:
            self._name_culprit(column, samples, DecodeError(f"does not decode: {type(error).__name__}: {error}"))
        if type(values) is not np.ndarray and isinstance(values, BatchParts):
            return values.entries(column.name, valid)[column.name]
        return values if valid is None else mask_missing(values, valid)

    def _metadata(
        self, column: _Column, files: list[FldFile], sources: list[kernels.Payloads],
        which: NDArray[np.int32] | None, rows: NDArray[np.int64],
    ) -> NDArray[Any]:  # fmt: skip
        metadata = np.zeros(len(rows), column.metadata_type)
        if column.metadata_type.itemsize:
            remote = self.dataset.is_remote
            tables = [
                file.table(Kind.METADATA, column.number, _of(which, rows, i) if remote else None)
                for i, file in enumerate(files)
            ]
            known = [table for table in tables if table is not None]
            if len(known) < len(tables):  # in files of others, images alone have some, and their bytes tell it
                told: NDArray[Any] = files[0].metadata(column.number, sources, which, rows)  # type: ignore[attr-defined]
                return told
            kernels.take(known, which, rows, metadata.view(np.uint8))
        return metadata

    def _path_of(self, field: int, sample: int) -> Path | ObjectPath:
        """The file that a value is in."""
        path: Path | ObjectPath = place_of(self.dataset.file(self.dataset.where(sample)[0]), field)[0].path
        return path

    def _payloads(
        self, column: _Column, files: list[FldFile], which: NDArray[np.int32] | None, rows: NDArray[np.int64]
    ) -> list[kernels.Payloads | None]:
        """The field's payloads in these files; of objects, those of the rows are fetched."""
        if not self.dataset.is_remote:
            return [file.payloads(column.number) for file in files]

        def fetch(position: int) -> kernels.Payloads | None:
            return files[position].payloads_of(column.number, _of(which, rows, position))

        if len(files) < 2:
            return list(map(fetch, range(len(files))))
        with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(files)), "fastloader-reader") as pool:
            return list(pool.map(fetch, range(len(files))))

    def _name_culprit(self, column: _Column, samples: NDArray[np.int64], error: FastLoaderError) -> NoReturn:
        """A batch failed without saying where: find the sample by reading one at a time."""
        for sample in samples:
            self.read_sample(int(sample), [column.name])
        error.path, error.field, error.hint = str(self.path), column.name, error.hint or _look(self.path)
        raise error

    def _validity(
        self, column: _Column, which: NDArray[np.int32] | None, rows: NDArray[np.int64], shards: list[int]
    ) -> NDArray[np.bool_]:
        valid = np.ones(len(rows), np.bool_)
        for position, number in enumerate(shards):
            file = self.dataset.file(number)
            mine = slice(None) if which is None else which == position
            table = file.table(Kind.VALIDITY, column.number, rows[mine] // 8 if file.remote is not None else None)
            if table is None:
                continue
            bits = np.empty(len(rows[mine]), np.uint8)
            try:
                kernels.take_bits([table], None, np.ascontiguousarray(rows[mine]), bits)
            except kernels.Failure as failure:  # its position counts this shard's rows alone, so it names no sample
                raise explain(failure, file.path) from failure
            valid[mine] = bits.astype(np.bool_)
        return valid

    def _locate(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int32] | None, NDArray[np.int64], list[int]]:
        """For each sample the position of its source in the returned list, and its row there."""
        runs = self.dataset.runs
        if len(runs.starts) == 2:
            return None, samples + runs.firsts[0], runs.sources.tolist()
        number, rows = runs.locate(samples)
        shards = distinct(number)
        return np.searchsorted(shards, number).astype(np.int32), rows, shards.tolist()

    def _indices(self, indices: ArrayLike) -> NDArray[np.int64]:
        array = np.asarray(indices)
        if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise TypeError("indices are a one-dimensional sequence of whole numbers")
        if array.dtype.kind == "u" and array.size and int(array.max()) >= len(self):
            raise IndexError(f"sample {array.max()} of a dataset of {len(self)}")  # before it wraps around below
        samples = np.ascontiguousarray(array, np.int64)
        if samples.size and samples.view(np.uint64).max() >= len(self):  # negative numbers look huge
            samples = np.where(samples < 0, samples + len(self), samples)
            bad = (samples < 0) | (samples >= len(self))
            if bad.any():
                raise IndexError(f"sample {array[bad][0]} of a dataset of {len(self)}")
        return samples

    def _names(self, fields: Sequence[str] | None) -> Sequence[str]:
        if isinstance(fields, str):
            return [fields]
        return self.dataset.names if fields is None else fields

    def _position(self, name: str) -> int:
        try:
            return self.dataset.names.index(name)
        except ValueError:
            known = ", ".join(self.dataset.names)
            raise KeyNotFoundError(f"no field {name!r}; there are {known}", path=self.path) from None

    def _column(self, name: str) -> _Column:
        column = self._columns.get(name)
        if column is None:
            position = self._position(name)
            column = self._columns[name] = _Column(position, name, self.dataset.field(position))
        return column

    @contextlib.contextmanager
    def _blame(self, path: Path | ObjectPath, sample: int, field: str | None = None) -> Iterator[None]:
        """Name file, sample and field in whatever goes wrong."""
        try:
            yield
        except kernels.Failure as failure:
            raise explain(failure, path, sample, field) from failure
        except FastLoaderError as error:
            if error.sample is None:
                error.path, error.sample, error.field = error.path or str(path), sample, field
            error.hint = error.hint or _look(path)
            raise
        except (MemoryError, OSError):
            raise
        except Exception as error:
            raise DecodeError(
                f"does not decode: {type(error).__name__}: {error}",
                path=path, sample=sample, field=field, hint=_look(path),
            ) from error  # fmt: skip


def dataset_at(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    snapshot: int | str | None = None,
) -> Dataset:
    """The dataset at a path or URL, opened; the options are those of ``DatasetReader``."""
    where = locate(path, storage_options)
    cache = cache_at(cache_dir, cache_size)
    if cache is not None:
        if not isinstance(where, ObjectPath):
            raise ValueError(f"{os.fspath(path)}: cache_dir is for URLs; this is a local path")
        where = replace(where, cache=cache)
    return Dataset(where, snapshot=snapshot)


def _look(path: Path | ObjectPath) -> str:
    if isinstance(path, ObjectPath):
        return f'get a copy to look at with "fastloader store get {path} ."'
    return check_hint(path, "--decode ")


def _of(which: NDArray[np.int32] | None, rows: NDArray[np.int64], position: int) -> NDArray[np.int64]:
    """The rows of one of several files."""
    return rows if which is None else rows[which == position]


class SampleSlice(Sequence[Sample]):
    """Some of a reader's samples, read when asked for."""

    def __init__(self, reader: DatasetReader, samples: range) -> None:
        self._reader = reader
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> SampleSlice: ...
    def __getitem__(self, index: int | slice) -> Sample | SampleSlice:
        if isinstance(index, slice):
            return SampleSlice(self._reader, self._samples[index])
        return self._reader.read_sample(self._samples[index])


def open_dataset(path: str | os.PathLike[str], **options: Any) -> DatasetReader:
    """Open a dataset for reading, whatever it is stored as; the options are those of ``DatasetReader``."""
    return DatasetReader(path, **options)
