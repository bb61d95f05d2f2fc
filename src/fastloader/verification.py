"""Checks a whole dataset: every table, every payload, every key, and on request that every sample decodes."""

from __future__ import annotations

import contextlib
import operator
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError, FormatError, NotFoundError, StoreError, UnknownTypeError
from fastloader.fields import check_value
from fastloader.formats.entries import is_plain
from fastloader.formats.extractable import troubles_of
from fastloader.formats.fld import Dataset, FldFile
from fastloader.formats.fld.dataset import stored_field
from fastloader.formats.fld.layout import EXTENT, NO_FIELD, PAGE, Kind
from fastloader.formats.fld.nodes import nodes_of
from fastloader.formats.fld.outline import outline
from fastloader.progress import progress
from fastloader.stores import locate
from fastloader.types import FIRST_USER_TYPE, key_text

ROWS = 4096
PAGED_ROWS = 16 * ROWS
PAYLOAD_BYTES = 32 << 20
BLOCKS = 256
PATHS = 16 * ROWS
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


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A field that was to be decoded and could not be, because nobody here knows its type. That is no damage."""

    field: str
    type_id: int

    def __str__(self) -> str:
        cure = "use --import" if self.type_id >= FIRST_USER_TYPE else "a newer fastloader may know it"
        return f"not decoded (type id {self.type_id} is not registered; {cure})"


@dataclass(slots=True)
class Report:
    """What ``verify`` found, and which fields it had no decoder for.

    ``notes`` tell of what is no damage: links of an archive that lead out of the folder it is extracted to.
    """

    num_samples: int = 0
    num_shards: int = 0
    data_bytes: int = 0
    num_tokens: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    not_decoded: list[Undecoded] = field(default_factory=list)

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
    storage_options: Mapping[str, Any] | None = None,
    *,
    decode: bool = False,
    num_workers: int | None = None,
    show_progress: bool | None = None,
    snapshot: int | str | None = None,
) -> Report:
    """Read everything once and report what is damaged. Raises only when the dataset can't be opened at all.

    ``decode=True`` also decodes every sample, which finds images that were broken when they were stored.
    ``num_workers`` is the number of threads besides the caller's: ``None`` is one a core, 0 works in the caller's own.
    Of a dataset in a store every byte is fetched; ``storage_options`` are for its client. What the store does not give
    is no damage, and raised. ``snapshot`` checks a folder of shards as it was.
    """
    workers = (os.cpu_count() or 1) if num_workers is None else operator.index(num_workers)
    if workers < 0:
        raise ValueError(f"num_workers={workers}: 0 works in the calling thread, None uses one thread a core")
    dataset = Dataset(locate(path, storage_options), snapshot=snapshot)
    report = Report(dataset.num_samples, len(dataset.shards))
    if decode:
        report.not_decoded = _not_decoded(dataset)
    jobs = _jobs(dataset, report, decode)
    with progress("verifying", _count(dataset, decode), show=show_progress) as advance:
        for found in _run(jobs, workers):
            report.problems += found
            advance(1)
    report.problems = [_numbered(dataset, problem) for problem in report.problems]
    report.problems.sort(key=lambda p: (p.path, -1 if p.sample is None else p.sample, p.field or "", p.message))
    return report


def _run(jobs: Iterator[_Job], workers: int) -> Iterator[list[Problem]]:
    """What the jobs find, as they finish."""
    if workers == 0:
        for job in jobs:
            yield job()
        return
    with ThreadPoolExecutor(workers, "fastloader-verify") as pool:
        try:
            running: set[Future[list[Problem]]] = {pool.submit(job) for job in islice(jobs, 2 * workers)}
            while running:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
                running |= {pool.submit(job) for job in islice(jobs, len(finished))}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _not_decoded(dataset: Dataset) -> list[Undecoded]:
    found = []
    for index, descriptor in enumerate(dataset.descriptors):
        try:
            dataset.field(index)
        except UnknownTypeError:
            found.append(Undecoded(descriptor.name, descriptor.type_id))
        except FastLoaderError:
            pass  # reported by the jobs that decode
    return found


def _count(dataset: Dataset, decode: bool) -> int | None:
    """How many jobs there will be, for the progress bar, if that can be told without opening every shard."""
    return sum(1 for _ in _jobs(dataset, Report(), decode)) if len(dataset.shards) <= 64 else None


def _jobs(dataset: Dataset, report: Report, decode: bool) -> Iterator[_Job]:
    for number, shard in enumerate(dataset.shards):
        start = int(dataset.row_starts[number])
        try:
            dataset.file(number)  # whether all of its fields are there
            members = dataset.members(number)
        except (FastLoaderError, OSError) as error:
            if dataset.is_remote and isinstance(error, StoreError) and not isinstance(error, NotFoundError):
                raise
            first, behind = dataset.runs.rank(dataset.row_starts[number : number + 2]).tolist()
            lost = Problem(str(dataset.path / shard.path), f"samples {first} to {behind - 1} are lost: {error}")
            yield partial(list, [lost])
            continue
        for file in members:
            yield from _file_jobs(file, start, report, decode)
        if number == 0 and members[0].is_archive:
            yield partial(_check_tree, dataset, report)


def _file_jobs(file: FldFile, start: int, report: Report, decode: bool) -> Iterator[_Job]:
    """The checks of one file, whose first row is ``start`` among all."""
    report.data_bytes += file.data.size
    report.num_tokens += sum(
        entry.size // max(1, entry.row_size) for (kind, _), entry in file.directory.items() if kind == Kind.TOKENS
    )
    yield partial(_check_pages, file)
    for begin in _begins(file, PAGED_ROWS):
        yield partial(_check_places, file, begin, start)
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
    if file.is_archive:
        for begin in _begins(file, PATHS):
            yield partial(_check_paths, file, begin, start)
        yield partial(_check_nodes, file)
    if decode:
        for begin in _begins(file, DECODED_ROWS):
            yield partial(_check_decoding, file, begin, start)


def _numbered(dataset: Dataset, problem: Problem) -> Problem:
    """The problem with the number that its sample has, where it was found in a row."""
    if problem.sample is None or not dataset.removed:
        return problem
    sample = dataset.runs.sample_at(problem.sample)
    removed = "" if sample is not None else " (in a row that is removed)"
    return replace(problem, sample=sample, message=problem.message + removed)


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
        assert table is not None
        damaged = table.check(begin, begin + BLOCKS)
        if begin == 0 and not damaged:
            file.check_list(kind, index)
    except StoreError:
        raise
    except kernels.Failure as failure:
        _, message, _, stored, computed = failure.args
        what = _say(f"the {kind.name.lower()} table: {message}", stored, computed)
        return [Problem(str(file.path), what, field=_name(file, index))]
    except FastLoaderError as error:
        return [Problem(str(file.path), str(error), field=_name(file, index))]
    return [
        Problem(
            str(file.path),
            _say(f"block {block} of the {kind.name.lower()} table is damaged", stored, computed),
            field=_name(file, index),
        )
        for block, stored, computed in damaged
    ]


def _check_payloads(file: FldFile, index: int, begin: int, end: int, start: int) -> list[Problem]:
    name = _name(file, index)
    try:
        payloads = file.payloads_of(index, np.arange(begin, min(end, file.num_samples)))
    except StoreError:
        raise
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
    except StoreError:
        raise
    except (FastLoaderError, kernels.Failure) as error:
        return [Problem(str(file.path), str(error))] if begin == 0 else []
    assert keys is not None
    found = keys.check(begin, min(begin + ROWS, file.num_samples))
    return [
        Problem(str(file.path), "key: " + _say(message, stored, computed), start + row)
        for row, _, message, stored, computed in found
    ]


def _check_paths(file: FldFile, begin: int, start: int) -> list[Problem]:
    """Paths of an archive ascend, as the table of their order says, and lead nowhere else."""
    try:
        keys, table = file.keys(), file.table(Kind.KEY_ORDER)
        assert keys is not None
        assert table is not None
        end = min(begin + PATHS, file.num_samples)
        first = max(begin - 1, 0)
        ordered = np.frombuffer(table.row(first, end - first), "<u8") if table.rows else np.arange(first, end)
        rows: list[int] = ordered.tolist()
        if rows and max(rows) >= file.num_samples:
            return [Problem(str(file.path), "the order of its paths names a file that is not there")]
        paths = [keys.key(row) for row in rows]
    except (FastLoaderError, kernels.Failure):
        return []  # reported by the tables' own jobs
    problems = [
        Problem(str(file.path), f"the path {key_text(path)!r} is not in its order", start + row)
        for before, path, row in zip(paths, paths[1:], rows[1:], strict=False)
        if path <= before
    ]
    return problems + [
        Problem(str(file.path), f"the path {key_text(path)!r} is not one that can be extracted", start + row)
        for path, row in zip(paths[begin - first :], rows[begin - first :], strict=True)
        if not is_plain(path)
    ]


def _check_nodes(file: FldFile) -> list[Problem]:
    """Folders and links of an archive ascend, and are what they can be."""
    last = b""
    problems = []
    try:
        for node in nodes_of(file):
            why = None
            if node.path <= last:
                why = "is not in its order"
            elif not node.is_sound or not is_plain(node.path.removesuffix(b"/")):
                why = "is not one that can be extracted"
            if why is not None:
                problems.append(Problem(str(file.path), f"the path {key_text(node.path)!r} {why}"))
            last = node.path
    except (FastLoaderError, kernels.Failure) as error:
        said = error.args[1] if isinstance(error, kernels.Failure) else str(error)
        problems.append(Problem(str(file.path), f"a folder or link: {said}"))
    return problems


def _check_tree(dataset: Dataset, report: Report) -> list[Problem]:
    """The paths of all shards together are those of a folder, and its links lead somewhere."""
    where = str(dataset.path)
    problems: list[Problem] = []
    try:
        for trouble in troubles_of(*outline(dataset)):
            (report.notes if trouble.is_note else problems).append(Problem(where, trouble.message))
    except (FormatError, NotFoundError, kernels.Failure):
        pass  # reported by the tables' own jobs
    return problems


def _check_pages(file: FldFile) -> list[Problem]:
    """The allocation table names each sample once."""
    try:
        pages = file.pages()
    except StoreError:
        raise
    except (FastLoaderError, kernels.Failure):
        return []  # reported by the table's own job
    firsts = np.append(pages["first_sample"], np.uint64(file.num_samples)).astype(np.int64)
    counts = pages["num_samples"].astype(np.int64)
    if firsts[0] != 0 or (np.diff(firsts) != counts).any() or (counts < 0).any():
        return [Problem(str(file.path), "the allocation table does not name each sample once")]
    return []


def _check_places(file: FldFile, begin: int, start: int) -> list[Problem]:
    """The allocation table names these samples on the page where their first payload begins."""
    count = min(PAGED_ROWS, file.num_samples - begin)
    if count <= 0:
        return []
    try:
        before = 1 if begin else 0
        firsts, ends = _spans(file, begin - before, count + before)
        told = _told_pages(file, begin - before, count + before)
    except StoreError:
        raise
    except (FastLoaderError, kernels.Failure):
        return []  # reported by the tables' own jobs
    if told is None:
        return []  # reported once for the whole table
    page_size = np.uint64(file.header.page_size)
    has = ends > 0
    # A sample without payload counts with the byte before it, which ends the last payload before. Where the sample in
    # front of these has none either, its own place was checked by the job before this one.
    last = np.maximum.accumulate(np.where(has, np.arange(len(has)), -1))
    previous = np.where(last >= 0, ends[last] - np.uint64(1), np.uint64(max(0, file.data.offset - 1))) // page_size
    if before:
        previous[last < 0] = told[0]
    found = np.where(has, firsts // page_size, previous).astype(np.int64)
    wrong = np.flatnonzero(found != told)
    return [
        Problem(str(file.path), f"begins on page {found[i]}, the allocation table says {told[i]}", start + row)
        for i in wrong[wrong >= before].tolist()
        for row in (begin - before + i,)
    ]


def _spans(file: FldFile, begin: int, count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Where the first payload that is not empty begins and the last ends, for each sample; 0 and 0 without any."""
    firsts, ends = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    for index in range(len(file.descriptors)):
        table = file.table(Kind.EXTENTS, index)
        if table is None:
            continue
        extents = np.frombuffer(table.row(begin, count), EXTENT)
        has = (extents["size"] > 0) & _valid(file, index, begin, count)
        firsts = np.where(has & (ends == 0), extents["pointer"], firsts)
        ends = np.where(has, extents["pointer"] + extents["size"], ends)
    return firsts, ends


def _valid(file: FldFile, index: int, begin: int, count: int) -> NDArray[np.bool_]:
    table = file.table(Kind.VALIDITY, index)
    if table is None:
        return np.ones(count, np.bool_)
    first = begin // 8
    packed = np.frombuffer(table.row(first, (begin + count - 1) // 8 - first + 1), np.uint8)
    return np.unpackbits(packed, bitorder="little")[begin - 8 * first :][:count].astype(np.bool_)


def _told_pages(file: FldFile, begin: int, count: int) -> NDArray[np.int64] | None:
    """The pages on which the allocation table names these samples; ``None`` where it names some never or twice."""
    table = file.table(Kind.PAGES)
    assert table is not None

    def first_sample(page: int) -> int:
        return int(np.frombuffer(table.row(page), PAGE)["first_sample"][0])

    # The last page that begins with such a sample or an earlier one.
    low = bisect_right(range(table.rows), begin, key=first_sample) - 1
    high = bisect_right(range(table.rows), begin + count - 1, key=first_sample) - 1
    if low < 0 or high < low:
        return None
    pages = np.frombuffer(table.row(low, high - low + 1), PAGE)
    firsts, behind = pages["first_sample"], pages["first_sample"] + pages["num_samples"]
    if (firsts[1:] != behind[:-1]).any() or (behind < firsts).any() or behind[-1] < begin + count:
        return None
    return low + np.searchsorted(firsts, np.arange(begin, begin + count, dtype=np.uint64), "right").astype(np.int64) - 1


def _check_decoding(file: FldFile, begin: int, start: int) -> list[Problem]:
    problems = []
    for index, descriptor in enumerate(file.descriptors):
        try:
            column = stored_field(descriptor, file.path)
            decoder = column.get_decoder_class()(column)
        except UnknownTypeError:
            continue  # told in the report, once
        except FastLoaderError as error:
            if begin == 0:
                problems.append(Problem(str(file.path), error.message, field=descriptor.name))
            continue
        rows = range(begin, min(begin + DECODED_ROWS, file.num_samples))
        fetched = _fetched(file, index, rows)
        for row in rows:
            try:
                if not file.is_missing(index, row):
                    metadata = file.metadata_row(index, row, column.metadata_type)
                    read = partial(file.payload, index, row) if fetched is None else partial(_payload, fetched, row)
                    check_value(decoder(metadata, read))
                    if (fault := column.fault_of(read)) is not None:
                        problems.append(Problem(str(file.path), fault, start + row, descriptor.name))
            except kernels.Failure as failure:
                if failure.args[0] in ("decode", "size", "format"):  # others are found by the checks above
                    problems.append(Problem(str(file.path), failure.args[1], start + row, descriptor.name))
            except StoreError:
                raise
            except Exception as error:
                problems.append(Problem(str(file.path), f"does not decode: {error}", start + row, descriptor.name))
    return problems


def _fetched(file: FldFile, index: int, rows: range) -> kernels.Payloads | None:
    """Of an object in a store, the payloads of these rows, which come together; ``None`` for a file, or where the
    tables are damaged, which their own jobs tell.
    """
    if file.remote is None or not rows:
        return None
    with contextlib.suppress(FormatError, kernels.Failure):
        return file.payloads_of(index, np.arange(rows.start, rows.stop))
    return None


def _payload(payloads: kernels.Payloads, row: int) -> memoryview:
    return payloads.read(row).data
