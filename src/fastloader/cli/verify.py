"""``fastloader verify``: is everything intact? Scripts read the exit status, people the lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.output import complain, count, printable, say, to_json
from fastloader.cli.places import located, not_there, settings_of, snapshot_option, store_options
from fastloader.cli.status import DAMAGED, NOT_FOUND, message_of, status_of
from fastloader.errors import FastLoaderError

if TYPE_CHECKING:
    from fastloader.verification import Report


@click.command("verify")
@click.argument("datasets", metavar="DATASET...", nargs=-1, required=True, type=click.Path())
@click.option("--decode", is_flag=True, help="Also decode every sample.")
@click.option("-j", "--jobs", type=click.IntRange(min=0), metavar="N", help="Threads to use; one a core by default.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a dataset.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing about what is intact, and no progress.")
@snapshot_option
@store_options
def command(
    datasets: tuple[str, ...], decode: bool, jobs: int | None, as_json: bool, quiet: bool, snapshot: str | None,
    **store: Any,
) -> None:  # fmt: skip
    """Check that every DATASET is intact.

    Reads every table, payload and key once, compares checksums, and names what is damaged, a line each. Of a zip, an
    archive of Barecat or a tar it reads every file; tars have checksums of their headers alone.
    """
    statuses = []
    for path in datasets:
        try:
            report = _verify(path, decode, jobs, quiet, snapshot, store)
        except (FastLoaderError, OSError) as error:
            complain(message_of(error))
            statuses.append(NOT_FOUND)
            continue
        for field in report.not_decoded:
            complain(f"{path}: field {field.field!r}: {field}")
        for note in () if quiet else report.notes:
            complain(f"{note}; extract makes it with --any-links")
        if not (quiet and report.ok):
            _tell(path, report, as_json, quiet)
        sys.stdout.flush()  # the next dataset may take long
        statuses.append(0 if report.ok else DAMAGED)
    if len(datasets) > 1 and not as_json and not quiet:
        say(_total(statuses))
    click.get_current_context().exit(DAMAGED if DAMAGED in statuses else max(statuses))


def _verify(
    path: str, decode: bool, jobs: int | None, quiet: bool, snapshot: str | None, store: dict[str, Any]
) -> Report:
    """The report; where the dataset is there but can't be opened, one that says so."""
    from fastloader.archive.checking import is_foreign, verify_archive
    from fastloader.archive.conversion import as_named
    from fastloader.verification import Problem, Report, verify

    try:
        if snapshot is None and is_foreign(path):
            return verify_archive(str(located(as_named(path), store)), False if quiet else None)
        located(path, store)
        with not_there():
            return verify(
                path, settings_of(store), decode=decode, num_workers=jobs, show_progress=False if quiet else None,
                snapshot=snapshot,
            )  # fmt: skip
    except (FastLoaderError, OSError) as error:
        if status_of(error) != DAMAGED:
            raise
        place = error.path if isinstance(error, FastLoaderError) and error.path else path
        message = error.message if isinstance(error, FastLoaderError) else message_of(error)
        return Report(problems=[Problem(place, message)])


def _tell(path: str, report: Report, as_json: bool, quiet: bool) -> None:
    if as_json:
        say(to_json(_facts(path, report)))
        return
    for problem in report.problems:
        say(printable(str(problem)))
    if not quiet:
        say(_summary(path, report))


def _facts(path: str, report: Report) -> dict[str, object]:
    problems = [
        {"path": problem.path, "sample": problem.sample, "field": problem.field, "message": problem.message}
        for problem in report.problems
    ]
    return {
        "path": path, "ok": report.ok, "samples": report.num_samples, "shards": report.num_shards,
        "data_bytes": report.data_bytes, "tokens": report.num_tokens,
        "bad_samples": report.bad_samples, "problems": problems, "notes": [str(note) for note in report.notes],
        "not_decoded": [
            {"field": field.field, "type_id": field.type_id, "message": str(field)} for field in report.not_decoded
        ],
    }  # fmt: skip


def _summary(path: str, report: Report) -> str:
    from fastloader.types import format_size

    if report.num_shards == 0:
        return f"{printable(path)}: damaged, can't be opened"
    shards = "" if report.num_shards == 1 else f" in {report.num_shards:,} shards"
    found = "all good"
    if report.problems:
        found = f"damaged, {count(len(report.problems), 'problem')} in {count(len(report.bad_samples), 'sample')}"
    checked = f"{count(report.num_samples, 'sample')}{shards}, {format_size(report.data_bytes)} of data"
    if report.num_tokens:
        checked = f"{count(report.num_tokens, 'token')}{shards}"
    return f"{printable(path)}: {checked}: {found}"


def _total(statuses: list[int]) -> str:
    said = [f"{statuses.count(0)} of {count(len(statuses), 'dataset')} all good"]
    said += [f"{statuses.count(DAMAGED)} damaged"] if DAMAGED in statuses else []
    said += [f"{statuses.count(NOT_FOUND)} not checked"] if NOT_FOUND in statuses else []
    return ", ".join(said)
