"""``fastloader doctor``: every part of the way measured by itself, what bounds, and what to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.bench import chosen_fields
from fastloader.cli.imports import import_module
from fastloader.cli.output import complain, count, printable, say, say_table, to_json
from fastloader.cli.places import open_reader, settings_of, store_options, usage_errors
from fastloader.errors import KeyNotFoundError

if TYPE_CHECKING:
    from fastloader.doctor import Diagnosis, Findings
    from fastloader.loader.options import OrderName

SECONDS = 20.0


@click.command("doctor")
@click.argument("dataset", type=click.Path())
@click.option("--pipeline", type=click.Path(), metavar="FILE", help="A Python file that defines pipelines = {...}.")
@click.option("--batch-size", type=click.IntRange(min=1), default=256, metavar="N", help="Samples a batch; 256.")
@click.option("-j", "--workers", type=click.IntRange(min=1), metavar="N", help="Threads; one a CPU by default.")
@click.option("--fields", metavar="A,B", help="Load these fields only.")
@click.option(
    "--order", type=click.Choice(["sequential", "random", "quasi_random"]), default="random", help="Random by default."
)
@click.option("--consumer", metavar="MODULE:FUNCTION", help="What takes the batches; MODULE may be a .py file.")
@click.option(
    "--step-ms", type=click.FloatRange(min=0, min_open=True), metavar="MS", help="Or: how long it takes for a batch."
)
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=SECONDS, metavar="S",
    help=f"About how long to measure; {SECONDS:g}.",
)  # fmt: skip
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a report, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@store_options
def command(
    dataset: str, pipeline: str | None, batch_size: int, workers: int | None, fields: str | None, order: OrderName,
    consumer: str | None, step_ms: float | None, seconds: float, html: Path | None, as_json: bool, quiet: bool,
    **store: Any,
) -> None:  # fmt: skip
    """Measure what loading DATASET takes on this machine: disk or network, decoding, resizing, copying, the consumer.

    Tells what bounds the loader, by how much, and what to change. Files of DATASET leave the page cache.
    """
    from fastloader.doctor import Question, diagnose, examine
    from fastloader.doctor.report import page
    from fastloader.pipeline.files import load_pipelines
    from fastloader.progress import progress
    from fastloader.stores import write_atomically
    from fastloader.stores.urls import local_path

    if consumer is not None and step_ms is not None:
        raise click.UsageError("--consumer is measured, --step-ms is said: give one of them")
    with open_reader(dataset, store) as reader:
        chosen = None if fields is None else tuple(chosen_fields(fields, reader))
        if not len(reader):
            raise KeyNotFoundError("there are no samples to load", path=reader.path)
    question = Question(
        path=str(local_path(dataset) or dataset), storage_options=settings_of(store), batch_size=batch_size,
        num_workers=workers, order=order, fields=chosen,
        pipelines={} if pipeline is None else load_pipelines(pipeline),
        consumer=None if consumer is None else _function(consumer), consumer_name=consumer or "",
        step_seconds=None if step_ms is None else step_ms / 1000, seconds=seconds,
    )  # fmt: skip
    with usage_errors(), progress("measuring", None, show=False if quiet else None) as advance:
        found = examine(question, lambda what: advance(1))
    told = diagnose(found)
    if html is not None:
        write_atomically(html, page(found, told).encode())
    if as_json:
        say(to_json({"findings": asdict(found), "diagnosis": asdict(told)}, indent=2))
    else:
        _show(found, told)
        if html is not None:
            say(f"\n{printable(str(html))} shows it in pictures")
    if found.disk is not None and not found.disk.is_cold:
        complain(
            f"{dataset}: {found.disk.resident:.0%} of it stays in memory, so it was not the disk that was measured"
        )


def _function(named: str) -> Callable[[Any], Any]:
    """A function by the module, or the file, that holds it."""
    module, colon, name = named.rpartition(":")
    if not (module and colon and name):
        raise click.UsageError(f"--consumer {named}: give MODULE:FUNCTION")
    found = getattr(import_module(module), name, None)
    if not callable(found):
        raise click.UsageError(f"--consumer {named}: {module} has no function {name}")
    return found  # type: ignore[no-any-return]


def _show(found: Findings, told: Diagnosis) -> None:
    from fastloader.doctor.words import bytes_of, per_second

    what = f"{count(found.num_samples, 'sample')}, {bytes_of(found.num_bytes)}"
    say(f"{printable(found.path)}: {what}; {found.order} order, batches of {found.batch_size:,}")
    say()
    for verdict in told.verdicts:
        say(printable(f"{verdict.when}: {verdict.bound}-bound, {per_second(verdict.limit)}"))
        say(printable(f"  {verdict.text}"))
        for cure in verdict.cures:
            say(printable(f"  - {cure}"))
        say()
    rows = [
        (stage.name + ("" if stage.counts else " alone"), f"{stage.samples_per_second:,.0f}", stage.said)
        for stage in told.stages
    ]
    rows += [(name, f"{run.samples_per_second:,.0f}", run.advice[0]) for name, run in found.runs]
    say_table(("part", "samples/s", "measured"), rows, right=("samples/s",))
