"""``fastloader ls``: the samples, or an archive's paths, a line each, told from the tables alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.archives import is_archive, open_archive
from fastloader.cli.listing import list_entries
from fastloader.cli.output import complain, on_terminal, printable, say, to_json, write_bytes
from fastloader.cli.places import open_reader, settings_of, snapshot_option, store_options

if TYPE_CHECKING:
    from fastloader.formats.fld import Dataset
    from fastloader.reader import DatasetReader

LIMIT = 50


@click.command("ls")
@click.argument("dataset", type=click.Path())
@click.argument("path", metavar="[PATH]", default="")
@click.option("-l", "--long", is_flag=True, help="Of an archive: with mode, size and time (UTC).")
@click.option("-R", "--recursive", is_flag=True, help="Of an archive: all below PATH, by their whole paths.")
@click.option("--samples", "as_samples", is_flag=True, help="List an archive as the dataset it is, too.")
@click.option("--start", default=0, metavar="N", help="First sample to list; -10 begins ten before the end.")
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="N",
    help=f"List at most N samples; 0 lists all. Without it {LIMIT}, or all with --keys.",
)  # fmt: skip
@click.option("--fields", metavar="A,B", help="Tell of these fields only, in this order.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
@click.option("--keys", "only_keys", is_flag=True, help="Print the keys and nothing else.")
@click.option("-0", "--null", is_flag=True, help="With --keys, or of an archive: end with a NUL instead of a newline.")
@snapshot_option
@store_options
def command(
    dataset: str, path: str, long: bool, recursive: bool, as_samples: bool, start: int, limit: int | None,
    fields: str | None, as_json: bool, only_keys: bool, null: bool, snapshot: str | None, **store: Any,
) -> None:  # fmt: skip
    """List the samples of DATASET, or what is in an archive's folder PATH, a line each.

    A sample's line has the number, the key if there are keys, and a word about each field. Paths of an archive go to a
    pipe as they are. An archive's samples are listed where --samples, --start, --limit, --fields, --keys or --snapshot
    is given.
    """
    for_samples = as_samples or only_keys or fields is not None or limit is not None or start != 0
    for_samples = for_samples or snapshot is not None
    settings = settings_of(store)
    if not for_samples and is_archive(dataset, settings):
        if null and (as_json or long):
            raise click.UsageError("-0 goes with names alone, not with --json or -l")
        list_entries(open_archive(dataset, settings), path, long=long, deep=recursive, as_json=as_json, null=null)
        return
    if path or long or recursive:
        raise click.UsageError(f"{dataset}: PATH, -l and -R are for archives, which fastloader create makes")
    if null and (not only_keys or as_json):
        raise click.UsageError("-0 goes with --keys, and not with --json")
    if fields is not None and only_keys:
        raise click.UsageError("--keys prints no fields; leave out --fields")
    from fastloader.cli.stream import stream_of, told

    with open_reader(dataset, store, snapshot) as reader:
        stream = stream_of(reader.dataset)
        if stream is not None:
            complain(told(reader.dataset, stream))
            return
        first = max(0, start + len(reader)) if start < 0 else start
        if limit is None:
            limit = 0 if only_keys else LIMIT
        samples = range(first, min(first + limit, len(reader)) if limit else len(reader))
        if only_keys:
            _list_keys(reader, samples, as_json, null)
        else:
            _list_samples(reader, samples, None if fields is None else _split(fields, reader.dataset), as_json)
        _tell_of_the_rest(samples, len(reader))


def _split(names: str, dataset: Dataset) -> list[str]:
    """Names between commas, or the one field whose name has a comma in it."""
    return [names] if names in dataset.names else names.split(",")


def _list_keys(reader: DatasetReader, samples: range, as_json: bool, null: bool) -> None:
    from fastloader.errors import KeyNotFoundError
    from fastloader.types import key_bytes

    if not reader.has_keys:
        raise KeyNotFoundError("the samples have no keys", path=reader.path, hint="leave out --keys")
    for_humans = on_terminal()
    for sample in samples:
        key = reader.key_of(sample)
        if as_json:
            say(to_json(key))
        elif for_humans:
            say(printable(key))
        else:
            write_bytes(key_bytes(key) + (b"\0" if null else b"\n"))


def _list_samples(reader: DatasetReader, samples: range, names: list[str] | None, as_json: bool) -> None:
    for line in _lines(reader, samples, names, as_json):
        say(line)


def _lines(reader: DatasetReader, samples: range, names: list[str] | None, as_json: bool) -> Iterator[str]:
    from fastloader.cli.glance import columns_of, phrase

    dataset = reader.dataset
    columns = columns_of(dataset, names)
    has_keys = reader.has_keys
    width = len(str(samples.stop - 1)) if samples else 0
    for sample in samples:
        shard, row = dataset.where(sample)
        file = dataset.file(shard)
        key = reader.key_of(sample) if has_keys else None
        facts = {column.name: column.glance(file, row, sample) for column in columns}
        if as_json:
            yield to_json({"sample": sample} | ({"key": key} if has_keys else {}) | {"fields": facts})
        else:
            words = [f"{sample:>{width}}"] + ([] if key is None else [printable(key)])
            yield "  ".join(words + [f"{printable(name)}={phrase(told)}" for name, told in facts.items()])


def _tell_of_the_rest(samples: range, total: int) -> None:
    if samples.start >= total > 0:
        complain(f"there is no sample {samples.start}; the last is {total - 1}")
    elif samples.stop < total:
        complain(f"listed {len(samples)} of {total:,} samples; --start {samples.stop} goes on, --limit 0 lists all")
