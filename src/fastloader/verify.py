"""Checks a whole dataset: every table, every payload, every key, and on request that every sample decodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from fastloader import kernels
from fastloader.errors import FastLoaderError
from fastloader.formats.fld import Dataset, FldFile
from fastloader.formats.fld.layout import NO_FIELD, Kind
from fastloader.progress import progress

ROWS = 4096
PAYLOAD_BYTES = 32 << 20
BLOCKS = 256
DECODED_ROWS = 64


@dataclass(frozen=True, slots=True)
class Problem:
    """Something damaged: in which file, and in which sample and field where that is known."""

    path: str
    message: str
    sample: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        place = [] if self.sample is None else [f"sample {self.sample}"]
        place += [] if self.field is None else [f"field {self.field!r}"]
        return ": ".join(part for part in (self.path, ", ".join(place), self.message) if part)


@dataclass(slots=True)
class Report:
    """What ``verify`` found."""

    num_samples: int = 0
    num_shards: int = 0
    data_bytes: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems

    @property
    def bad_samples(self) -> list[int]:
        """Numbers of the samples with a problem, ascending."""
        return sorted({p.sample for p in self.problems if p.sample is not None})


_Job = Callable[[], list[Problem]]


def verify(
    path: str | os.PathLike[str],
    *,
    decode: bool = False,
    num_workers: int | None = None,
    show_progress: bool | None = None,
) -> Report:
    """Read everything once and report what is damaged. Raises only when the dataset can't be opened at all.

    ``decode=True`` also decodes every sample, which finds images that were broken when they were stored.
    """
    dataset = Dataset(Path(path))
    report = Report(dataset.num_samples, len(dataset.shards))
    jobs = _jobs(dataset, report, decode)
    workers = num_workers or os.cpu_count() or 1
    with (
        ThreadPoolExecutor(workers, "fastloader-verify") as pool,
        progress("verifying", _count(dataset, decode), show=show_progress) as advance,
    ):
        try:
            running: set[Future[list[Problem]]] = {pool.submit(job) for job in islice(jobs, 2 * workers)}
            while running:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    report.problems += future.result()
                    advance(1)
                running |= {pool.submit(job) for job in islice(jobs, len(finished))}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    report.problems.sort(key=lambda p: (p.path, -1 if p.sample is None else p.sample, p.field or "", p.message))
    return report


def _count(dataset: Dataset, decode: bool) -> int | None:
    """How many jobs there will be, for the progress bar, if that can be told without opening every shard."""
    return sum(1 for _ in _jobs(dataset, Report(), decode)) if len(dataset.shards) <= 64 else None


def _jobs(dataset: Dataset, report: Report, decode: bool) -> Iterator[_Job]:
    for number, shard in enumerate(dataset.shards):
        start = int(dataset.starts[number])
        try:
            file = dataset.file(number)
        except (FastLoaderError, OSError) as error:
            lost = Problem(
                str(dataset.path / shard.path),
                f"samples {start} to {start + shard.num_samples - 1} are lost: {error}",
            )
            yield partial(list, [lost])
            continue
        report.data_bytes += file.data.size
        yield partial(_check_pages, file)
        for kind, index in file.directory:
            if kind not in (Kind.DATA, Kind.DESCRIPTORS):
                yield from _table_jobs(file, Kind(kind), index)
        for index, descriptor in enumerate(file.descriptors):
            if descriptor.has_payload:
                step = _payload_rows(file)
                for begin in _begins(file, step):
                    yield partial(_check_payloads, file, index, begin, begin + step, start)
        if file.has_keys:
            for begin in _begins(file, ROWS):
                yield partial(_check_keys, file, begin, start)
        if decode:
            for begin in _begins(file, DECODED_ROWS):
                yield partial(_check_decoding, dataset, file, begin, start)


def _payload_rows(file: FldFile) -> int:
    """Rows a job: about ``PAYLOAD_BYTES`` of data, so that jobs of large payloads are spread and interrupted alike."""
    mean = max(1, file.data.size // max(1, file.num_samples))
    return max(1, min(ROWS, PAYLOAD_BYTES // mean))


def _begins(file: FldFile, step: int) -> range:
    """Where the runs of ``step`` rows begin; an empty file has one too, so that its fields and keys are looked at."""
    return range(0, max(file.num_samples, 1), step)


def _name(file: FldFile, index: int) -> str | None:
    return None if index == NO_FIELD else file.descriptors[index].name


def _say(message: str, stored: int, computed: int) -> str:
    sums = f": crc32c stored {stored:#010x}, computed {computed:#010x}" if stored != computed else ""
    return message + sums


def _table_jobs(file: FldFile, kind: Kind, index: int) -> Iterator[_Job]:
    entry = file.directory[kind, index]
    blocks = -(-entry.size // entry.block_size) if entry.block_size else 0
    for begin in range(0, max(blocks, 1), BLOCKS):
        yield partial(_check_blocks, file, kind, index, begin)


def _check_blocks(file: FldFile, kind: Kind, index: int, begin: int) -> list[Problem]:
    try:
        table = file.table(kind, index)
    except (FastLoaderError, kernels.Failure) as error:
        return [Problem(str(file.path), str(error), field=_name(file, index))]
    assert table is not None
    return [
        Problem(
            str(file.path),
            _say(f"block {block} of the {kind.name.lower()} table is damaged", stored, computed),
            field=_name(file, index),
        )
        for block, stored, computed in table.check(begin, begin + BLOCKS)
    ]


def _check_payloads(file: FldFile, index: int, begin: int, end: int, start: int) -> list[Problem]:
    name = _name(file, index)
    try:
        payloads = file.payloads(index)
    except (FastLoaderError, kernels.Failure) as error:
        return [Problem(str(file.path), str(error), field=name)] if begin == 0 else []
    assert payloads is not None
    problems = []
    for row, _, message, stored, computed in payloads.check(begin, min(end, file.num_samples)):
        try:
            if file.is_missing(index, row):
                continue
        except (FastLoaderError, kernels.Failure):
            pass  # the damaged validity table is reported by its own job
        problems.append(Problem(str(file.path), _say(message, stored, computed), start + row, name))
    return problems


def _check_keys(file: FldFile, begin: int, start: int) -> list[Problem]:
    try:
        keys = file.keys()
        if keys is not None and begin == 0:
            keys.find(b"")  # whether the index can be searched at all, even when it is empty
    except (FastLoaderError, kernels.Failure) as error:
        return [Problem(str(file.path), str(error))] if begin == 0 else []
    assert keys is not None
    found = keys.check(begin, min(begin + ROWS, file.num_samples))
    return [
        Problem(str(file.path), "key: " + _say(message, stored, computed), start + row)
        for row, _, message, stored, computed in found
    ]


def _check_pages(file: FldFile) -> list[Problem]:
    """The allocation table names each sample once, on the page where its first payload begins."""
    try:
        pages = file.pages()
    except (FastLoaderError, kernels.Failure):
        return []  # reported by the table's own job
    firsts = np.append(pages["first_sample"], np.uint64(file.num_samples)).astype(np.int64)
    counts = pages["num_samples"].astype(np.int64)
    if firsts[0] != 0 or (np.diff(firsts) != counts).any() or (counts < 0).any():
        return [Problem(str(file.path), "the allocation table does not name each sample once")]
    return []


def _check_decoding(dataset: Dataset, file: FldFile, begin: int, start: int) -> list[Problem]:
    problems = []
    for index, descriptor in enumerate(file.descriptors):
        try:
            column = dataset.field(index)
            decoder = column.get_decoder_class()(column)
        except FastLoaderError as error:
            if begin == 0:
                problems.append(Problem(str(file.path), error.message, field=descriptor.name))
            continue
        for row in range(begin, min(begin + DECODED_ROWS, file.num_samples)):
            try:
                if not file.is_missing(index, row):
                    metadata = file.metadata_row(index, row, column.metadata_type)
                    decoder(metadata, partial(file.payload, index, row))
            except kernels.Failure as failure:
                if failure.args[0] in ("decode", "size", "format"):  # others are found by the checks above
                    problems.append(Problem(str(file.path), failure.args[1], start + row, descriptor.name))
            except Exception as error:
                problems.append(Problem(str(file.path), f"does not decode: {error}", start + row, descriptor.name))
    return problems
