"""Writing datasets: samples in, one file or a folder of shards out, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, Self

from fastloader.errors import NotFoundError, SampleError, StoreError
from fastloader.fields import Field
from fastloader.formats.fld import Chunk, Dataset, FieldSpec
from fastloader.formats.fld.layout import DEFAULT_PAGE_SIZE, REMOTE_PAGE_SIZE
from fastloader.formats.fld.remote_target import BucketTarget, ObjectTarget
from fastloader.formats.fld.target import AppendTarget, FileTarget, FolderTarget, Target
from fastloader.progress import progress
from fastloader.publishing import Published
from fastloader.stores import ObjectPath, locate
from fastloader.types import Key, SampleLike, key_bytes, parse_size
from fastloader.writer.encoding import Dictionary, encode_column
from fastloader.writer.fetching import fetch_in_order
from fastloader.writer.intake import Intake
from fastloader.writer.schema import Compression, check_page_size, make_specs, worker_count
from fastloader.writer.training import Dictionaries, Training, known_dictionaries

CHUNK_SAMPLES = 1024
POOL_CHUNK_SAMPLES = 256
"""Small samples that are worth a thread each take long: fewer of them let all workers have some sooner."""
CHUNK_BYTES = 4 << 20
IN_FLIGHT_BYTES = 64 << 20
"""Values that wait for a worker or for their turn to be stored; more where there are workers for more chunks."""


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
    dictionaries: Dictionaries


class DatasetWriter(Published):
    """Writes a dataset; use it in a ``with`` block.

    ``path`` becomes one file, or a folder of shards when ``shard_size`` is given: bytes of payloads a shard (of table
    rows, where samples have no payload bytes). Nothing appears there before ``close``; leaving the block by an
    exception leaves what was there before. Values are encoded in ``num_workers`` threads (``None``: one a core where
    a field's encoding or compression is worth it, 0: in the caller's), in order: the bytes written do not depend on it.

    A sample that can't be written ends the writing, whatever is wrong with it: the ``SampleError`` names sample and
    field, every later call raises it again, and nothing is published. To leave out bad samples, check them before.

    ``page_size`` is a power of two, 2 MiB unless given, or 4 MiB for objects in a store; a writer that adds to a
    dataset keeps the page size there.
    ``compression`` is ``None``, "lz4", "zstd" or "zstd:LEVEL", for all fields or by name; for fields that are not named
    it is the field's own, which only texts have. ``keys=True`` gives every
    sample a unique key. ``mode="a"`` adds the samples as new shards behind those already there; ``fields`` may then
    be ``None``.

    ``path`` may be a URL, such as ``s3://bucket/train``, with ``storage_options`` for its client. Shards are made in
    the temporary folder and sent while the next are made; the manifest follows last.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Mapping[str, Field] | None,
        page_size: int | str | None = None,
        num_workers: int | None = None,
        *,
        compression: Compression = None,
        shard_size: int | str | None = None,
        keys: bool = False,
        mode: Literal["w", "a"] = "w",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._closed = True  # until everything below has worked
        self._failure: BaseException | None = None
        if mode not in ("w", "a"):
            raise ValueError(f"mode={mode!r}: 'w' writes anew, 'a' adds to what is there")
        where = locate(path, storage_options)
        target_path = where if isinstance(where, ObjectPath) else Path(os.path.realpath(where))  # a link stays a link
        pages = None if page_size is None else check_page_size(parse_size(page_size, "page_size"))
        limit = None if shard_size is None else parse_size(shard_size, "shard_size")
        if limit is not None and limit < 1:
            raise ValueError(f"shard_size={shard_size!r}: at least one byte")
        given_workers = None if num_workers is None else worker_count("num_workers", num_workers)
        existing = _existing(target_path) if mode == "a" else None
        if existing is not None and existing.is_archive:
            raise StoreError(
                "is an archive, of files", path=target_path, hint=f'add files with "fastloader add {target_path} ..."'
            )
        self._specs = make_specs(fields, compression, existing)
        workers = _default_workers(self._specs) if given_workers is None else given_workers
        self._keyed = keys or (existing is not None and existing.has_keys)
        if existing is not None and keys and not existing.has_keys:
            raise ValueError(f"{target_path}: the samples there have no keys, so these can't have any either")
        if pages is None:
            new = REMOTE_PAGE_SIZE if isinstance(target_path, ObjectPath) else DEFAULT_PAGE_SIZE
            pages = new if existing is None else existing.page_size
        self.num_samples = 0
        self._base = 0 if existing is None else existing.num_samples
        self._existing = existing
        self._intake = Intake(self._specs)
        self._take = self._intake.take
        self._target: Target
        if isinstance(target_path, ObjectPath):
            self._target = self._remote_target(target_path, pages, limit, existing)
        elif existing is not None:
            self._target = AppendTarget(existing, self._specs, pages, keys=self._keyed, shard_size=limit)
        elif limit is not None:
            self._target = FolderTarget(target_path, self._specs, pages, keys=self._keyed, shard_size=limit)
        else:
            self._target = FileTarget(target_path, self._specs, pages, keys=self._keyed)
        self._pool = ThreadPoolExecutor(workers, "fastloader-writer") if workers else None
        self._in_flight: deque[tuple[Future[Chunk], int]] = deque()
        self._bytes_in_flight = 0
        self._chunk_samples = POOL_CHUNK_SAMPLES if workers else CHUNK_SAMPLES
        self._max_in_flight = 2 * workers
        self._max_bytes_in_flight = max(IN_FLIGHT_BYTES, self._max_in_flight * CHUNK_BYTES)
        self._samples: list[list[Any]] = []
        self._spent: deque[list[Any]] = deque()
        self._sample_keys: list[bytes] = []
        self._bytes = 0
        self._dictionaries = known_dictionaries(existing, self._specs)
        training = Training(self._specs, self._dictionaries)
        self._training = training if training.wanted else None
        self._process = os.getpid()
        self._closed = False

    def _remote_target(self, where: ObjectPath, pages: int, limit: int | None, existing: Dataset | None) -> Target:
        if existing is None and limit is None:
            return ObjectTarget(where, self._specs, pages, keys=self._keyed)
        return BucketTarget(where, self._specs, pages, keys=self._keyed, shard_size=limit, existing=existing)

    def write_sample(self, sample: SampleLike, key: Key | None = None) -> None:
        """Add one sample: a mapping from field name to value, or the values in field order. ``None`` is missing.

        The values are taken at once; the caller may reuse its arrays.
        """
        if self._closed or self._failure is not None:
            self._refuse()
        try:
            number = self._base + self.num_samples
            values, size = self._take(sample, number)
            self._add(values, size, self._fresh_key(key, number) if self._keyed or key is not None else None)
        except BaseException as error:
            self._fail(error)
            raise

    def write_many(
        self, samples: Iterable[SampleLike] | Mapping[str, Collection[Any]], keys: Iterable[Key] | None = None
    ) -> None:
        """Add samples from any iterable, one after the other; with ``keys``, one for each.

        A mapping gives whole columns: under each field's name a list or an array with the values of all samples.
        """
        if self._closed or self._failure is not None:
            self._refuse()
        write = self.write_sample
        if isinstance(samples, Mapping):
            try:
                samples = self._intake.rows(samples, self._base + self.num_samples)
            except BaseException as error:
                self._fail(error)
                raise
        if keys is None:
            for sample in samples:
                write(sample)
        else:
            for sample, key in zip(samples, keys, strict=True):
                write(sample, key)

    @classmethod
    def from_dataset(
        cls,
        dataset: MapDataset,
        path: str | os.PathLike[str],
        fields: Mapping[str, Field] | None,
        *,
        fetch_workers: int = 0,
        show_progress: bool | None = None,
        **options: Any,
    ) -> None:
        """Write a map-style dataset (``len`` and ``dataset[i]``), such as torch's. ``options`` are the constructor's.

        Samples are fetched in the caller's thread. With ``fetch_workers`` above 0 that many threads call
        ``dataset[i]`` at the same time, which is faster where it waits for a disk or a network. Its ``__getitem__``
        must then be thread-safe: one that seeks and reads in a file it keeps open, say, would give wrong samples.
        """
        workers = worker_count("fetch_workers", fetch_workers)
        count = len(dataset)
        with cls(path, fields, **options) as writer, progress("writing", count, show=show_progress) as advance:
            if writer._keyed:
                raise ValueError("from_dataset gives no keys; use write_sample(sample, key) in a loop")
            with contextlib.closing(fetch_in_order(partial(writer._fetch, dataset), count, workers)) as samples:
                for values, size in samples:
                    writer._add(values, size, None)
                    advance(1)

    @classmethod
    def shard(
        cls,
        path: str | os.PathLike[str],
        fields: Mapping[str, Field],
        *,
        first: int,
        dictionaries: Mapping[int, bytes],
        **options: Any,
    ) -> Self:
        """A writer of one shard of a dataset whose shards are written apart from each other.

        ``first`` is what errors call its first sample; ``dictionaries``, by number of the field, are those of the
        dataset's first shard. ``options`` are the constructor's.
        """
        writer = cls(path, fields, **options)
        writer._base = first
        writer._dictionaries = {number: Dictionary.of(data) for number, data in dictionaries.items()}
        training = Training(writer._specs, writer._dictionaries)
        writer._training = training if training.wanted else None
        return writer

    def close(self) -> None:
        """Finish and publish. After an error in a sample nothing is published, and closing raises it again, once."""
        if self._closed:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            return
        try:
            if self._training is not None:
                self._trained(self._training)
            self._submit()
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

    def __del__(self) -> None:
        # A forked child that drops its copy must not take the parent's file away.
        if not getattr(self, "_closed", True) and self._process == os.getpid():
            with contextlib.suppress(Exception):
                self.abort()
            warnings.warn("a DatasetWriter was never closed; nothing was published", ResourceWarning, stacklevel=1)

    def _stop(self) -> None:
        self._closed = True
        for future, _ in self._in_flight:
            future.cancel()
        self._in_flight.clear()
        self._spent.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _fail(self, error: BaseException) -> None:
        """Samples in flight may be gone with it. Going on would publish a dataset with a hole."""
        self._failure = error
        self.abort()

    def _refuse(self) -> NoReturn:
        raise ValueError("this writer is closed") if self._failure is None else self._failure

    def _fresh_key(self, key: Key | None, number: int) -> bytes | None:
        """The key as stored, known to be one and not to be in the dataset that is added to."""
        if (key is not None) != self._keyed:
            raise SampleError(
                "has no key" if self._keyed else f"has a key, {key!r}, in a dataset without keys",
                sample=number, hint="pass key=" if self._keyed else "open the writer with keys=True",
            )  # fmt: skip
        if key is None:
            return None
        if not isinstance(key, str | bytes):
            raise SampleError(f"has the key {key!r}; a key is text or bytes", sample=number)
        try:
            encoded = key_bytes(key)
        except UnicodeEncodeError as error:
            raise SampleError(f"has a key that is no UTF-8: {error}", sample=number) from error
        if self._existing is not None and self._existing.find(encoded) is not None:
            raise SampleError(f"key {key!r} is in the dataset already", sample=number, hint="keys are unique")
        return encoded

    def _fetch(self, dataset: MapDataset, number: int) -> tuple[list[Any], int]:
        """A dataset's sample, as ``_take`` gives it."""
        try:
            item = dataset[number]
        except Exception as error:
            raise SampleError(
                f"the dataset failed to give it: {type(error).__name__}: {error}", sample=self._base + number
            ) from error
        return self._take(item, self._base + number)

    def _add(self, values: list[Any], size: int, key: bytes | None) -> None:
        """Put a sample behind the others; a chunk of them is encoded when there are enough."""
        self._samples.append(values)
        if self._spent:
            self._spent.popleft()
        if key is not None:
            self._sample_keys.append(key)
        self._bytes += size
        self.num_samples += 1
        if self._training is not None:
            if self._training.look(values, size):
                self._trained(self._training)
            elif self._training.held:
                return
        if len(self._samples) >= self._chunk_samples or self._bytes >= CHUNK_BYTES:
            self._submit()

    def _trained(self, training: Training) -> None:
        """Compress with dictionaries from now on: what still waits, if all does, else what comes next."""
        if not training.held:
            self._submit()
        self._dictionaries, self._training = training.finish(), None

    def _submit(self) -> None:
        """Encode the samples taken, now or in the pool; chunks are stored in the order of submission."""
        first = self._base + self.num_samples - len(self._samples)
        samples, keys, size = self._samples, self._sample_keys, self._bytes
        self._samples, self._sample_keys, self._bytes = [], [], 0
        for begin in range(0, len(samples), self._chunk_samples):
            some = samples if len(samples) <= self._chunk_samples else samples[begin : begin + self._chunk_samples]
            theirs = keys[begin : begin + len(some)] if self._keyed else None
            pending = _Pending(first + begin, some, theirs, self._dictionaries)
            self._submit_one(pending, size * len(some) // len(samples))

    def _submit_one(self, pending: _Pending, size: int) -> None:
        if self._pool is None:
            self._target.append(self._encode(pending))
            # Samples stored are let go one by one as others come, which then get their memory. Let go all at once, it
            # would go back to the system, and getting it again costs as much as all else that is done to a sample.
            self._spent = deque(pending.samples)
            return
        while self._in_flight and (
            len(self._in_flight) >= self._max_in_flight or self._bytes_in_flight + size > self._max_bytes_in_flight
        ):
            self._store_next()
        self._in_flight.append((self._pool.submit(self._encode, pending), size))
        self._bytes_in_flight += size

    def _store_next(self) -> None:
        future, size = self._in_flight.popleft()
        self._target.append(future.result())
        self._bytes_in_flight -= size

    def _encode(self, pending: _Pending) -> Chunk:
        columns = [
            encode_column(spec, values, pending.first, pending.dictionaries.get(i))
            for i, (spec, values) in enumerate(zip(self._specs, zip(*pending.samples, strict=True), strict=True))
        ]
        return Chunk(len(pending.samples), columns, pending.keys)


def _existing(path: Path | ObjectPath) -> Dataset | None:
    """The dataset that is added to, if there is one."""
    if isinstance(path, Path):
        return Dataset(path) if path.exists() else None
    try:
        return Dataset(path)
    except NotFoundError:
        return None


def _default_workers(specs: Sequence[FieldSpec]) -> int:
    """One a core for work that leaves the GIL alone; plain copying is quicker done in place."""
    worthwhile = any(spec.codec or spec.field.worth_a_thread for spec in specs)
    return (os.cpu_count() or 1) if worthwhile else 0
