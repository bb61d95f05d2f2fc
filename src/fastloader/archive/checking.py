"""Archives of others checked: every header, every file, every checksum that they have, and whether they extract."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

from fastloader.archive.conversion import as_named, kind_of, unchecked
from fastloader.archive.folders import sorted_paths
from fastloader.errors import FastLoaderError
from fastloader.formats.barecat import OLD_ENDING
from fastloader.formats.barecat_entries import Fault, faults_of
from fastloader.formats.entries import Entry, EntryKind, is_plain
from fastloader.formats.extractable import Link, troubles_of
from fastloader.progress import progress
from fastloader.types import byte_view, key_text
from fastloader.verification import Problem, Report


def is_foreign(path: str) -> bool:
    """Whether there is an archive of another format: a tar, a zip, one of Barecat. What can't be told is none."""
    path = as_named(path)
    try:
        return os.path.isfile(path) and kind_of(path) not in (None, "fld", "folder")
    except FastLoaderError:
        return path.endswith((".tar", ".zip", ".barecat", OLD_ENDING))


def verify_archive(path: str, show_progress: bool | None = None) -> Report:
    """Everything read once. Tars have checksums of their headers alone."""
    path = as_named(path)
    report = Report(num_shards=1)
    kind = kind_of(path)
    assert kind is not None
    links: dict[bytes, Link] = {}
    with progress("verifying", None, show=show_progress) as advance:
        entries = unchecked(
            path, kind, lambda text: report.notes.append(Problem(path, text.removeprefix(f"{path}: ")))
        ).entries()
        if kind == "barecat":
            for found in faults_of(path):
                _count(report, found)
                advance(1)
            entries = _those_there(entries)
        else:
            entries = _read(entries, path, report, advance)
        for trouble in troubles_of(sorted_paths(_paths(entries, path, report, links)), links):
            (report.notes if trouble.is_note else report.problems).append(Problem(path, trouble.message))
    return report


def _count(report: Report, found: Fault | int) -> None:
    if isinstance(found, Fault):
        report.problems.append(Problem(found.path, found.message))
    else:
        report.data_bytes += found
        report.num_samples += 1


def _those_there(entries: Iterator[Entry]) -> Iterator[Entry]:
    with suppress(FastLoaderError, OSError):  # a shard that is gone, which is told of already
        yield from entries


def _read(entries: Iterator[Entry], path: str, report: Report, advance: Callable[[int], None]) -> Iterator[Entry]:
    for entry in entries:
        if entry.is_file:
            try:
                _count(report, len(byte_view(entry.read())))
            except FastLoaderError as error:
                _count(report, Fault(error.path or path, error.message))
            advance(1)
        yield entry


def _paths(entries: Iterator[Entry], path: str, report: Report, links: dict[bytes, Link]) -> Iterator[bytes]:
    """The paths that a folder can have; links are noted, and the last of one path counts, as it does for tar."""
    for entry in entries:
        if not is_plain(entry.path):
            said = f"the path {key_text(entry.path)!r} is not one that can be extracted"
            report.problems.append(Problem(path, said))
            continue
        links.pop(entry.path, None)
        if entry.kind in (EntryKind.SYMLINK, EntryKind.HARDLINK):
            links[entry.path] = (entry.kind, entry.target)
        yield entry.path + (b"/" if entry.kind is EntryKind.DIRECTORY else b"")
