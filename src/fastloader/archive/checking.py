"""Archives of others checked: every header, every file, every checksum that they have."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fastloader.archive.conversion import SOURCES, kind_of
from fastloader.errors import FastLoaderError
from fastloader.formats.barecat import OLD_ENDING
from fastloader.formats.barecat_entries import Fault, faults_of
from fastloader.progress import progress
from fastloader.types import byte_view
from fastloader.verification import Problem, Report


def is_foreign(path: str) -> bool:
    """Whether there is an archive of another format: a tar, a zip, one of Barecat. What can't be told is none."""
    try:
        return os.path.isfile(path) and kind_of(path) not in (None, "fld", "folder")
    except FastLoaderError:
        return path.endswith((".tar", ".zip", ".barecat", OLD_ENDING))


def verify_archive(path: str, show_progress: bool | None = None) -> Report:
    """Everything read once. Tars have checksums of their headers alone."""
    report = Report(num_shards=1)
    kind = kind_of(path)
    assert kind is not None
    with progress("verifying", None, show=show_progress) as advance:
        for found in faults_of(path) if kind == "barecat" else _read_all(path, kind):
            if isinstance(found, Fault):
                report.problems.append(Problem(found.path, found.message))
            else:
                report.data_bytes += found
                report.num_samples += 1
            advance(1)
    return report


def _read_all(path: str, kind: str) -> Iterator[Fault | int]:
    for entry in SOURCES[kind](path).entries():
        if entry.is_file:
            try:
                yield len(byte_view(entry.read()))
            except FastLoaderError as error:
                yield Fault(error.path or path, error.message)
