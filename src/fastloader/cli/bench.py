"""``fastloader bench``: how fast a dataset loads here, where the time goes, and what to do about it."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.output import complain, count, printable, say, say_table, to_json
from fastloader.cli.places import located, open_reader, store_options, usage_errors
from fastloader.cli.status import INTERRUPTED
from fastloader.errors import KeyNotFoundError

if TYPE_CHECKING:
    from fastloader.loader import DataLoader
    from fastloader.loader.options import OrderName
    from fastloader.loader.reading import Io
    from fastloader.reader import DatasetReader

SECONDS = 5.0


@dataclass(slots=True)
class Measured:
    """What ``bench --json`` prints. ``cpus`` is how many CPUs the program kept busy; times are seconds."""

    path: str
    cold: bool
    seconds: float
    first_batch: float
    epochs: float
    samples_per_second: float
    stored_bytes_per_second: float
    decoded_bytes_per_second: float
    cpus: float
    interrupted: bool
    advice: list[str]
    stats: dict[str, Any]


@click.command("bench")
@click.argument("dataset", type=click.Path())
@click.option("--batch-size", type=click.IntRange(min=1), default=256, metavar="N", help="Samples a batch; 256.")
@click.option("-j", "--workers", type=click.IntRange(min=1), metavar="N", help="Threads; one a CPU by default.")
@click.option("--tune", is_flag=True, help="Let the loader find the number of threads, up to --workers.")
@click.option("--fields", metavar="A,B", help="Load these fields only.")
@click.option(
    "--order", type=click.Choice(["sequential", "random", "quasi_random"]), default="random", help="Random by default."
)
@click.option("--io", type=click.Choice(["auto", "mmap", "uring", "pread"]), default="auto", help="How bytes are read.")
@click.option("--batches", type=click.IntRange(min=1), metavar="N", help="Stop after N batches.")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), metavar="S",
    help=f"Stop after S seconds; {SECONDS:g}, unless --batches is given.",
)  # fmt: skip
@click.option("--cold", is_flag=True, help="Drop the dataset from the page cache first, and load it once at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@store_options
def command(
    dataset: str, batch_size: int, workers: int | None, tune: bool, fields: str | None, order: OrderName,
    io: Io, batches: int | None, seconds: float | None, cold: bool, as_json: bool, quiet: bool,
    **store: Any,
) -> None:  # fmt: skip
    """Load DATASET for some seconds and tell where the time goes.

    Prints samples and bytes a second, what each field takes, and what holds loading back.
    """
    from fastloader.loader import DataLoader
    from fastloader.loader.resources import usable_cpus

    where = located(dataset, store)
    if cold:
        if not isinstance(where, Path):
            raise click.UsageError(f"{dataset}: --cold is for local files; a store is never in memory")
        _cool_down(where)
    with open_reader(dataset, store) as reader:
        chosen = None if fields is None else chosen_fields(fields, reader)
        if not len(reader):
            raise KeyNotFoundError("there are no samples to load", path=reader.path)
        threads = workers or usable_cpus()
        with usage_errors():
            loader = DataLoader(
                reader, batch_size, num_workers=threads, fields=chosen, order=order, io=io, auto_tune=tune
            )
        seconds = SECONDS if seconds is None and batches is None else seconds
        with loader:
            measured = _measure(loader, dataset, batches, seconds, cold, quiet)
    if as_json:
        say(to_json(asdict(measured), indent=2))
    else:
        _show(measured)
    if measured.interrupted:
        click.get_current_context().exit(INTERRUPTED)


def chosen_fields(names: str, reader: DatasetReader) -> list[str]:
    """Names between commas, or the one field whose name has a comma in it."""
    known = reader.field_names
    chosen = [names] if names in known else names.split(",")
    for name in chosen:
        if name not in known:
            raise KeyNotFoundError(f"no field {name!r}; there are {', '.join(known)}", path=reader.path)
    return chosen


def _cool_down(path: Path) -> None:
    """Out of memory with all files, before any of them is mapped."""
    from fastloader.doctor.disk import STILL_RESIDENT, cool_down

    _, left = cool_down(path)
    if left > STILL_RESIDENT:
        complain(f"{path}: {left:.0%} of it stays in memory: it is in use, or its file system keeps it there")


def _measure(
    loader: DataLoader, path: str, batches: int | None, seconds: float | None, cold: bool, quiet: bool
) -> Measured:
    from fastloader.loader import advise

    began, used = time.perf_counter(), _cpu_seconds()
    first = 0.0
    interrupted = False
    try:
        with closing(_load(loader, 1 if cold else None, batches, seconds, quiet)) as batches_given:
            for _ in batches_given:
                first = first or time.perf_counter() - began
    except KeyboardInterrupt:
        interrupted = True
    took, used = time.perf_counter() - began, _cpu_seconds() - used
    stats = loader.stats()
    stored, decoded = (
        sum(told[f"{what}_bytes"] for told in stats["fields"].values()) for what in ("stored", "decoded")
    )
    return Measured(
        path=path, cold=cold, seconds=took, first_batch=first,
        epochs=stats["samples"] / len(loader.reader), samples_per_second=stats["samples"] / took,
        stored_bytes_per_second=stored / took, decoded_bytes_per_second=decoded / took, cpus=used / took,
        interrupted=interrupted, advice=advise(stats), stats=stats,
    )  # fmt: skip


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _load(
    loader: DataLoader, epochs: int | None, batches: int | None, seconds: float | None, quiet: bool
) -> Generator[None, None, None]:
    """Yields after each batch, until there were enough of them or the time is over; a progress bar shows which."""
    from fastloader.progress import progress

    began = time.perf_counter()
    number = shown = 0
    total = batches if batches is not None else int(seconds or 0)
    with progress("loading", total, show=False if quiet else None) as advance:
        for _ in itertools.repeat(None) if epochs is None else range(epochs):
            for batch in loader:
                del batch  # its memory serves the next
                number += 1
                yield
                passed = time.perf_counter() - began
                now = number if batches is not None else int(passed)
                advance(now - shown)
                shown = now
                if number == batches or (seconds is not None and passed >= seconds):
                    return


def _show(measured: Measured) -> None:
    from fastloader.stores import is_url
    from fastloader.types import format_size

    stats = measured.stats
    threads = stats["threads"]
    state = "cold" if measured.cold else "from the store" if is_url(measured.path) else "as it is in memory"
    stored, decoded = (format_size(b) for b in (measured.stored_bytes_per_second, measured.decoded_bytes_per_second))
    loaded = f"{count(stats['samples'], 'sample')} in {stats['batches']:,} batches, {measured.epochs:.2f} epochs"
    say(f"{printable(measured.path)}: {loaded}, {measured.seconds:.1f} s, {state}")
    for name, value in (
        ("speed", f"{measured.samples_per_second:,.0f} samples/s"),
        ("bytes", f"{stored}/s read, {decoded}/s decoded"),
        ("first batch", f"after {measured.first_batch * 1000:,.1f} ms"),
        ("CPUs", f"{measured.cpus:.1f} of {threads['cpus']} busy"),
        ("threads", _threads(threads)),
        ("consumer", _consumer(stats)),
    ):
        say(f"  {name:<12} {value}")
    say()
    _show_fields(stats)
    say()
    for line in measured.advice:
        say(printable(line))


def _threads(threads: dict[str, Any]) -> str:
    whole = max(threads["seconds"], 1e-9)
    parts = ("busy", "work"), ("blocked", "wait for bytes"), ("preempted", "wait for a CPU"), ("idle", "lack work")
    return f"{threads['native']}: " + ", ".join(f"{threads[key] / whole:.0%} {word}" for key, word in parts)


def _consumer(stats: dict[str, Any]) -> str:
    whole = max(stats["running"], 1e-9)
    return f"waits {stats['waiting'] / whole:.0%} of the time, plans {stats['planning'] / whole:.0%}"


def _show_fields(stats: dict[str, Any]) -> None:
    from fastloader.types import format_size

    titles = ("field", "read", "decoded", "work", "bytes awaited", "CPU awaited", "Python", "us/sample")
    rows = []
    for name, told in stats["fields"].items():
        python = told["python"] + told["transform"]
        each = (told["decode"] + python) / max(stats["samples"], 1) * 1e6
        rows.append((
            name, format_size(told["stored_bytes"]), format_size(told["decoded_bytes"]), f"{told['decode']:.2f} s",
            f"{told['blocked']:.2f} s", f"{told['preempted']:.2f} s", f"{python:.2f} s", f"{each:,.1f}",
        ))  # fmt: skip
    say_table(titles, rows, right=titles[1:])
