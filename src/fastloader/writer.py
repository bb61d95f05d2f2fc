"""Writing datasets: samples in, one file or a folder of shards out, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError, SampleError, StoreError
from fastloader.fields import BY_TYPE_ID, Encoded, Field
from fastloader.formats.fld import Chunk, Column, Dataset, FieldSpec, is_sharded
from fastloader.formats.fld.layout import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, MIN_PAGE_SIZE
from fastloader.formats.fld.target import AppendTarget, FileTarget, FolderTarget, Target, concatenate_shards
from fastloader.progress import progress
from fastloader.types import Buffer, Key, SampleLike, byte_view, key_bytes, parse_size

CHUNK_SAMPLES = 256
CHUNK_BYTES = 4 << 20

Compression = str | None | Mapping[str, str | None]


class MapDataset(Protocol):
    """Anything with a length and samples by number."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Pending:
    """Samples taken from the caller, not yet encoded; ``first`` is the number of the first."""

    first: int
    samples: list[list[Any]]
    keys: list[bytes] | None


class DatasetWriter:
    """Writes a dataset; use it in a ``with`` block.

    ``path`` becomes one file, or a folder of shards when ``shard_size`` is given. Nothing appears there before
    ``close``; leaving the block by an exception leaves what was there before. Values are encoded in ``num_workers``
    threads (``None``: one a core, 0: in the caller's), in order: the bytes written do not depend on it.

    ``compression`` is ``None``, "lz4", "zstd" or "zstd:LEVEL", for all fields or by name. ``keys=True`` gives every
    sample a unique key. ``mode="a"`` adds the samples as new shards behind those already there; ``fields`` may then
    be ``None``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Mapping[str, Field] | None,
        page_size: int | str = DEFAULT_PAGE_SIZE,
        num_workers: int | None = None,
        *,
        compression: Compression = None,
        shard_size: int | str | None = None,
        keys: bool = False,
        mode: Literal["w", "a"] = "w",
    ) -> None:
        self._closed = True  # until everything below has worked
        self._failure: BaseException | None = None
        if mode not in ("w", "a"):
            raise ValueError(f"mode={mode!r}: 'w' writes anew, 'a' adds to what is there")
        target_path = Path(path)
        pages = _check_page_size(parse_size(page_size))
        limit = None if shard_size is None else parse_size(shard_size)
        if limit is not None and limit < 1:
            raise ValueError(f"shard_size={shard_size!r}: at least one byte")
        if num_workers is not None and num_workers < 0:
            raise ValueError(f"num_workers={num_workers}: 0 or more")
        existing = Dataset(target_path) if mode == "a" and target_path.exists() else None
        self._specs = _specs(fields, compression, existing)
        self._keyed = keys or (existing is not None and existing.has_keys)
        if existing is not None and keys and not existing.has_keys:
            raise ValueError(f"{target_path}: the samples there have no keys, so these can't have any either")
        self.num_samples = 0
        self._base = 0 if existing is None else existing.num_samples
        self._existing = existing
        self._names = [spec.name for spec in self._specs]
        self._known = frozenset(self._names)
        self._prepare = [spec.field.prepare for spec in self._specs]
        self._target: Target
        if existing is not None:
            self._target = AppendTarget(existing, self._specs, pages, keys=self._keyed, shard_size=limit)
        elif limit is not None:
            self._target = FolderTarget(target_path, self._specs, pages, keys=self._keyed, shard_size=limit)
        else:
            self._target = FileTarget(target_path, self._specs, pages, keys=self._keyed)
        workers = (os.cpu_count() or 1) if num_workers is None else num_workers
        self._pool = ThreadPoolExecutor(workers, "fastloader-writer") if workers else None
        self._in_flight: deque[Future[Chunk]] = deque()
        self._max_in_flight = 2 * workers
        self._samples: list[list[Any]] = []
        self._sample_keys: list[bytes] = []
        self._bytes = 0
        self._closed = False

    def write_sample(self, sample: SampleLike, key: Key | None = None) -> None:
        """Add one sample: a mapping from field name to value, or the values in field order. ``None`` is missing.

        The values are taken at once; the caller may reuse its arrays.
        """
        self._check_open()
        number = self._base + self.num_samples
        values = self._take(sample, number)
        if (key is not None) != self._keyed:
            raise SampleError(
                "has no key" if self._keyed else f"has a key, {key!r}, in a dataset without keys",
                sample=number, hint="pass key=" if self._keyed else "open the writer with keys=True",
            )  # fmt: skip
        if key is not None:
            self._sample_keys.append(self._fresh_key(key, number))
        self._samples.append(values)
        for value in values:
            self._bytes += len(value) if type(value) is bytes else _size_of(value)
        self.num_samples += 1
        if len(self._samples) >= CHUNK_SAMPLES or self._bytes >= CHUNK_BYTES:
            self._submit_samples()

    def write_many(self, samples: Iterable[SampleLike], keys: Iterable[Key] | None = None) -> None:
        """Add samples from any iterable, one after the other; with ``keys``, one for each."""
        self._check_open()
        if keys is None:
            for sample in samples:
                self.write_sample(sample)
        else:
            for sample, key in zip(samples, keys, strict=True):
                self.write_sample(sample, key)

    @classmethod
    def from_dataset(
        cls,
        dataset: MapDataset,
        path: str | os.PathLike[str],
        fields: Mapping[str, Field] | None,
        *,
        show_progress: bool | None = None,
        **options: Any,
    ) -> None:
        """Write a map-style dataset (``len`` and ``dataset[i]``), such as torch's; samples are fetched in parallel.

        ``options`` are those of the constructor, without ``keys``.
        """
        with cls(path, fields, **options) as writer, progress("writing", len(dataset), show=show_progress) as advance:
            if writer._keyed:
                raise ValueError("from_dataset gives no keys; use write_sample(sample, key) in a loop")
            for first in range(0, len(dataset), 16):
                numbers = range(first, min(first + 16, len(dataset)))
                writer._submit(lambda numbers=numbers: writer._fetch(dataset, numbers))  # type: ignore[misc]
                writer.num_samples += len(numbers)
                advance(len(numbers))

    def close(self) -> None:
        """Finish and publish. After an error in a sample nothing is published, and closing raises it again, once."""
        if self._closed:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            return
        try:
            self._submit_samples()
            while self._in_flight:
                self._store_next()
            self._target.finish()
        except BaseException:
            self.abort()
            raise
        self._stop()

    def abort(self) -> None:
        """Give up: nothing is published."""
        if not self._closed:
            self._stop()
            self._target.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            with contextlib.suppress(Exception):
                self.abort()
            warnings.warn("a DatasetWriter was never closed; nothing was published", ResourceWarning, stacklevel=1)

    def _stop(self) -> None:
        self._closed = True
        for future in self._in_flight:
            future.cancel()
        self._in_flight.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ValueError("this writer is closed")

    def _take(self, sample: SampleLike, number: int) -> list[Any]:
        """The sample's values in field order, in our own memory."""
        if isinstance(sample, Mapping):
            if sample.keys() != self._known:
                raise _wrong_names(set(sample), set(self._known), number)
            raw = [sample[name] for name in self._names]
        elif isinstance(sample, Sequence) and not isinstance(sample, str | bytes | bytearray):
            raw = list(sample)
            if len(raw) != len(self._names):
                raise SampleError(f"has {len(raw)} values for {len(self._names)} fields", sample=number)
        else:
            raise SampleError(f"is a {type(sample).__name__}; give a mapping or the values in order", sample=number)
        values: list[Any] = []
        try:
            for prepare, value in zip(self._prepare, raw, strict=True):
                values.append(None if value is None else prepare(value))
        except Exception as error:
            raise _bad_value(error, number, self._names[len(values)]) from error
        return values

    def _fresh_key(self, key: Key, number: int) -> bytes:
        if not isinstance(key, str | bytes):
            raise SampleError(f"has the key {key!r}; a key is text or bytes", sample=number)
        try:
            encoded = key_bytes(key)
        except UnicodeEncodeError as error:
            raise SampleError(f"has a key that is no UTF-8: {error}", sample=number) from error
        if self._existing is not None and self._existing.find(encoded) is not None:
            raise SampleError(f"key {key!r} is in the dataset already", sample=number, hint="keys are unique")
        return encoded

    def _fetch(self, dataset: MapDataset, numbers: range) -> Chunk:
        samples = []
        for number in numbers:
            try:
                item = dataset[number]
            except Exception as error:
                raise SampleError(
                    f"the dataset failed to give it: {type(error).__name__}: {error}", sample=self._base + number
                ) from error
            samples.append(self._take(item, self._base + number))
        return self._encode(_Pending(self._base + numbers.start, samples, None))

    def _submit_samples(self) -> None:
        if not self._samples:
            return
        first = self._base + self.num_samples - len(self._samples)
        pending = _Pending(first, self._samples, self._sample_keys if self._keyed else None)
        self._samples, self._sample_keys, self._bytes = [], [], 0
        self._submit(lambda: self._encode(pending))

    def _submit(self, job: Callable[[], Chunk]) -> None:
        """Run a job, now or in the pool; results are stored in the order of submission."""
        try:
            if self._pool is None:
                self._target.append(job())
                return
            while len(self._in_flight) >= self._max_in_flight:
                self._store_next()
            self._in_flight.append(self._pool.submit(job))
        except BaseException as error:
            # The samples of the job are gone with it. Going on would publish a dataset with a hole.
            self._failure = error
            self.abort()
            raise

    def _store_next(self) -> None:
        self._target.append(self._in_flight.popleft().result())

    def _encode(self, pending: _Pending) -> Chunk:
        columns = [
            _encode_column(spec, [sample[i] for sample in pending.samples], pending.first)
            for i, spec in enumerate(self._specs)
        ]
        return Chunk(len(pending.samples), columns, pending.keys)


def _encode_column(spec: FieldSpec, values: list[Any], first: int) -> Column:
    """One field of a run of samples. What numpy can do for all of them at once is left to the end."""
    field = spec.field
    rows: list[tuple[Any, ...]] = []
    payloads: list[Buffer] = []
    raw_sizes: list[int] = []
    codecs: list[int] = []
    blank = np.zeros((), field.metadata_type).item()
    try:
        for value in values:
            encoded = Encoded(blank) if value is None else field.encode(value)
            rows.append(encoded.metadata)
            if field.has_payload:
                payload: Buffer = encoded.payload
                payload = payload if type(payload) is bytes else byte_view(payload)
                raw_sizes.append(len(payload))
                payload, codec = _compressed(spec, payload)
                payloads.append(payload)
                codecs.append(codec)
    except Exception as error:
        raise _bad_value(error, first + len(codecs if field.has_payload else rows), spec.name) from error
    return Column(
        _metadata(spec, rows, first),
        np.fromiter((value is not None for value in values), np.bool_, len(values)),
        payloads,
        np.array(raw_sizes, np.uint64),
        np.array(codecs, np.uint8),
    )


def _metadata(spec: FieldSpec, rows: list[tuple[Any, ...]], first: int) -> NDArray[Any]:
    """The metadata rows as one array; a row that does not fit its type is named."""
    dtype = spec.field.metadata_type
    if dtype.itemsize == 0:
        return np.zeros(len(rows), dtype)
    try:
        return np.array(rows, dtype)
    except Exception:
        for i, row in enumerate(rows):
            try:
                np.zeros(1, dtype)[0] = row
            except Exception as error:
                raise _bad_value(error, first + i, spec.name) from error
        raise


def _compressed(spec: FieldSpec, payload: bytes | memoryview) -> tuple[bytes | memoryview, int]:
    """The payload in the field's compression, where that makes it smaller, and the compression used."""
    if spec.codec and len(payload):
        packed = kernels.compress(payload, spec.codec, spec.level)
        if len(packed) < len(payload):
            return packed, spec.codec
    return payload, 0


def _bad_value(error: Exception, sample: int, field: str) -> SampleError:
    if isinstance(error, SampleError):
        if error.sample is None:
            error.sample, error.field = sample, field
        return error
    if isinstance(error, kernels.Failure):
        detail = error.args[1]
    elif isinstance(error, ValueError | TypeError):
        detail = str(error)
    else:
        detail = f"{type(error).__name__}: {error}"
    return SampleError(detail, sample=sample, field=field)


def _wrong_names(given: set[str], known: set[str], sample: int) -> SampleError:
    said = []
    if known - given:
        said.append(f"lacks {', '.join(sorted(map(repr, known - given)))}")
    if given - known:
        said.append(f"has unknown fields {', '.join(sorted(map(repr, given - known)))}")
    return SampleError(" and ".join(said), sample=sample, hint="a missing value is given as None")


def _size_of(value: Any) -> int:
    """About how much memory a value holds, so that a chunk is cut before it holds too much."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_size_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size_of, value))
    return getattr(value, "nbytes", 64)


def _check_page_size(size: int) -> int:
    if size & (size - 1) or not MIN_PAGE_SIZE <= size <= MAX_PAGE_SIZE:
        raise ValueError(f"page_size={size}: a power of two from {MIN_PAGE_SIZE} to {MAX_PAGE_SIZE}")
    return size


def _specs(fields: Mapping[str, Field] | None, compression: Compression, existing: Dataset | None) -> list[FieldSpec]:
    """The schema to write: what was asked for, checked against what is there."""
    there = None if existing is None else existing.specs()
    if fields is None:
        if there is None:
            raise ValueError("fields=None: only a writer that adds to an existing dataset may leave them out")
        fields = {spec.name: spec.field for spec in there}
    if not isinstance(fields, Mapping):
        raise TypeError(f"fields is a {type(fields).__name__}; give a mapping from name to field")
    if not fields:
        raise ValueError("a dataset has at least one field")
    for name, field in fields.items():
        _check_field(name, field)
    if there is not None and _schema(there) != [(n, type(f), f.to_binary()) for n, f in fields.items()]:
        has = {spec.name: spec.field for spec in there}
        raise ValueError(f"the dataset has the fields {has}, not {dict(fields)}")
    if isinstance(compression, Mapping):
        unknown = compression.keys() - fields.keys()
        if unknown:
            raise ValueError(f"compression names unknown fields: {', '.join(sorted(unknown))}")
        by_name = dict(compression)
    elif compression is None and there is not None:
        return there
    else:
        by_name = dict.fromkeys(fields, compression)
    return [FieldSpec(name, field, *kernels.codec_id(by_name.get(name))) for name, field in fields.items()]


def _check_field(name: Any, field: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"field name {name!r} is a {type(name).__name__}; a name is text")
    if not isinstance(field, Field):
        raise TypeError(f"field {name!r} is a {type(field).__name__}; give an instance of a Field, like IntField()")
    if field.type_id and BY_TYPE_ID.get(field.type_id) is not type(field):
        raise TypeError(
            f"field {name!r}: type id {field.type_id} is not registered for {type(field).__name__}, so it would be "
            f"read back as another class; use @register_type(id) on it"
        )


def _schema(specs: Sequence[FieldSpec]) -> list[tuple[str, type[Field], bytes]]:
    """What must agree for samples to stand in one dataset: names, types and options."""
    return [(spec.name, type(spec.field), spec.field.to_binary()) for spec in specs]


def concatenate(path: str | os.PathLike[str], sources: Sequence[str | os.PathLike[str]]) -> None:
    """Make a dataset at ``path`` of all samples of ``sources``, in order, without copying: a manifest that names them.

    The sources must stay where they are, relative to ``path``, and have the same fields. A key that two sources share
    finds the sample of the first.
    """
    if not sources:
        raise ValueError("nothing to concatenate")
    target = Path(path)
    if target.exists() and not is_sharded(target):
        raise StoreError("is there already and is no folder of shards", path=target, hint="choose another name")
    datasets = [Dataset(Path(source)) for source in sources]
    for dataset in datasets[1:]:
        if _schema(dataset.specs()) != _schema(datasets[0].specs()):
            raise FormatError(f"has other fields than {datasets[0].path}", path=dataset.path)
        if dataset.has_keys != datasets[0].has_keys:
            raise FormatError(f"differs from {datasets[0].path} in having keys", path=dataset.path)
    concatenate_shards(target, datasets)
