"""``fastloader convert``: any dataset as a ``.fld`` dataset, tars or a Parquet file; any archive as any other."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import time
from dataclasses import fields as options_of
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.archives import choice_of, exclude_option, include_option
from fastloader.cli.engines import engine_options, is_ray
from fastloader.cli.output import count, printable, say, say_table
from fastloader.cli.places import not_there, settings_of, store_options, usage_errors
from fastloader.cli.status import NoSuchDatasetError
from fastloader.errors import FastLoaderError, KeyNotFoundError, NotFoundError, SampleError

if TYPE_CHECKING:
    from fastloader.fields import Field
    from fastloader.stores import ObjectPath


@click.command("convert")
@click.argument("sources", metavar="SRC...", nargs=-1, required=True)
@click.argument("destination", metavar="DST")
@click.option("--format", "format_", metavar="NAME", help="What SRC is, where its bytes do not tell: raw, csv, ...")
@click.option("--fields", metavar="A,B", help="Take these fields only.")
@click.option(
    "--field", "named", metavar="NAME=FIELD", multiple=True,
    help="Store a field as this, as in image=BytesField or 'x=NDArrayField(\"float32\", (3,))'; may be given again.",
)  # fmt: skip
@click.option(
    "--archive", "as_archive", is_flag=True, help="Keep files, paths, modes and times as they are: make an archive."
)
@include_option
@exclude_option
@click.option("--shard-size", metavar="SIZE", help="Write shards of about this size, like 512MB.")
@click.option("--shard-samples", type=click.IntRange(min=1), metavar="N", help="Write tars of this many samples.")
@click.option("--compression", metavar="NAME", help="Of .fld: lz4, zstd or zstd:LEVEL.")
@click.option("-j", "--jobs", type=click.IntRange(min=0), metavar="N", help="Threads to use; one a core by default.")
@click.option("--force", is_flag=True, help="Replace DST if it is there.")
@click.option("--dry-run", is_flag=True, help="Show the fields and write nothing.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing, and no progress.")
@engine_options
@store_options
def command(
    sources: tuple[str, ...], destination: str, format_: str | None, fields: str | None, named: tuple[str, ...],
    as_archive: bool, include: tuple[str, ...], exclude: tuple[str, ...], shard_size: str | None,
    shard_samples: int | None, compression: str | None, jobs: int | None, force: bool, dry_run: bool, quiet: bool,
    engine: str, address: str | None, **store: Any,
) -> None:  # fmt: skip
    """Convert SRC to DST.

    SRC is whatever fastloader.open takes: a file, a folder, a pattern; several are one after the other. How the name of
    DST ends says what it will be: .fld, .tar, .tar.gz, .tar.zst (WebDataset's layout; train-%06d.tar with --shard-size
    or --shard-samples are several) or .parquet. Both may be URLs of stores. JPEG and PNG files move as they are.

    An archive (tar, zip, Barecat, .fld archive) that becomes a tar or a folder, and whatever becomes a .zip or a
    .barecat, is copied file by file, with all paths, modes and times. --archive does so where DST is .fld, and of a
    folder.

    With --shard-size, a conversion to .fld that was interrupted goes on where it was when it is run again.

    With --engine ray every shard is a task of a Ray cluster, and the dataset is the same, byte for byte. SRC has random
    access, and is on a disk that workers share or in a store; DST may also be on this machine's own disk.
    """
    from fastloader.dataset.dataset import as_node
    from fastloader.dataset.running import new_run
    from fastloader.dataset.writing import Elements, fields_of
    from fastloader.stores import is_url, locate
    from fastloader.stores.urls import local_path
    from fastloader.writer.exports import EXPORTS

    on_ray = is_ray(engine, address, shard_size)
    settings = settings_of(store)
    if settings is not None and not any(map(is_url, (*sources, destination))):
        raise click.UsageError("options for stores are given, and neither SRC nor DST is a URL")
    with usage_errors():
        local = local_path(destination)
    if as_archive or _between_archives(sources, local or destination):
        if on_ray:
            raise click.UsageError("--engine ray converts samples; fastloader create puts a folder into an archive")
        if local is None or settings is not None:
            raise click.UsageError(
                f"{destination}: archives are copied from where the environment leads to local files; fastloader store "
                "put brings them on"
            )
        if any((format_, fields, named, shard_samples, dry_run)) or len(sources) > 1:
            raise click.UsageError("archives are copied one by one; only --include, --exclude and shards choose")
        _copy(sources[0], local, (include, exclude), shard_size, compression, jobs, force, quiet)
        return
    if include or exclude:
        raise click.UsageError("--include and --exclude are for archives; --archive makes one")
    to_settings = settings if is_url(destination) else None
    with usage_errors():
        target = locate(destination, to_settings)
    if on_ray and not target.name.endswith(".fld"):
        raise click.UsageError(f"{target}: --engine ray writes .fld alone")
    chosen = None if fields is None else [name.strip() for name in fields.split(",")]
    given = _fields(named)
    if not target.name.endswith((".fld", *EXPORTS)):
        raise click.UsageError(f"{target}: the name ends with .fld, {' or '.join(EXPORTS)}, which says what to write")
    if not force and not dry_run and _is_there(target):
        raise click.UsageError(f"{target} is there already; --force replaces it")
    dataset = _open(sources, format_, chosen, settings if any(map(is_url, sources)) else None)
    try:
        found, _ = fields_of(Elements(as_node(dataset), new_run()), given)
    except (SampleError, KeyNotFoundError) as error:
        raise click.UsageError(f"{error}; --field names one, --fields leaves some out") from error
    if not quiet:
        _show(found)
    if dry_run:
        return
    began = time.monotonic()
    try:
        with usage_errors():
            if on_ray:
                from fastloader.ray.converting import convert_dataset

                convert_dataset(
                    dataset, destination, found, shard_size=shard_size or 0, compression=compression, address=address,
                    at_once=jobs or None, show_progress=False if quiet else None, storage_options=to_settings,
                )  # fmt: skip
            else:
                dataset.write(
                    destination, found, shard_size=shard_size, shard_samples=shard_samples, compression=compression,
                    threads=jobs, show_progress=False if quiet else None, storage_options=to_settings,
                )  # fmt: skip
    except KeyboardInterrupt:
        if shard_size is not None and target.name.endswith(".fld"):
            click.echo("fastloader: interrupted; the same command goes on where this was", err=True)
        else:
            click.echo(
                "fastloader: interrupted, nothing was written; with --shard-size it could go on where it was", err=True
            )
        raise
    if not quiet:
        say(_summary(target, time.monotonic() - began))


def _between_archives(sources: tuple[str, ...], destination: str) -> bool:
    """Whether files are to be copied, rather than samples: told from what there is and how the name ends."""
    from fastloader.archive.conversion import kind_of, named_kind

    kind = named_kind(destination)
    if kind in ("zip", "barecat"):
        return True
    if destination.endswith(".parquet") or kind == "fld":
        return False
    try:
        known = len(sources) == 1 and kind_of(sources[0]) not in (None, "folder")
    except (FastLoaderError, OSError):
        return False
    return known and (kind == "tar" or not Path(destination).suffix or destination.endswith("/"))


def _copy(
    source: str, destination: str, patterns: tuple[tuple[str, ...], tuple[str, ...]], shard_size: str | None,
    compression: str | None, jobs: int | None, force: bool, quiet: bool,
) -> None:  # fmt: skip
    from fastloader.archive.conversion import Chosen, sink_at, source_at
    from fastloader.formats.entries import copy_entries
    from fastloader.progress import progress

    if os.path.lexists(destination) and not force:
        raise click.UsageError(f"{destination} is there already; --force replaces it")
    began = time.monotonic()
    choice = choice_of(*patterns)
    try:
        entries = source_at(source)
        sink = sink_at(destination, shard_size=shard_size, compression=compression, workers=jobs, overwrite=force)
    except NotFoundError as error:
        raise NoSuchDatasetError(error.message, path=error.path, hint=error.hint) from error
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise click.UsageError(str(error)) from error
    try:
        with progress("copying", None, show=False if quiet else None) as advance:
            copied = copy_entries(entries if choice.is_all else Chosen(entries, choice), sink, advance)
        sink.close()
    except BaseException:
        sink.abort()
        raise
    if not quiet:
        many = f"{copied:,} entr{'y' if copied == 1 else 'ies'}"
        say(f"{printable(destination)}: {many}, {time.monotonic() - began:.1f} s")


def _open(
    sources: tuple[str, ...], format_: str | None, fields: list[str] | None, settings: dict[str, Any] | None
) -> Any:
    from fastloader.dataset import open_dataset

    path: Any = sources[0] if len(sources) == 1 else list(sources)
    try:
        with not_there(), usage_errors():
            return open_dataset(path, settings, format=format_, fields=fields)
    except NoSuchDatasetError:
        raise
    except FileNotFoundError as error:
        raise NoSuchDatasetError("there is no such file or folder", path=path, hint="check the path") from error


def _is_there(target: Path | ObjectPath) -> bool:
    if isinstance(target, Path):
        return target.exists()
    from fastloader.formats.fld import is_sharded

    try:
        target.store.stat(target.key)
    except NotFoundError:
        return is_sharded(target)
    return True


def _show(fields: dict[str, Field]) -> None:
    say_table(("field", "stored as"), [(name, _written(field)) for name, field in fields.items()])


def _written(field: Field) -> str:
    """The field as ``--field`` takes it, without options that are what they would be anyway."""
    if is_dataclass(field):
        given = {one.name: getattr(field, one.name) for one in options_of(field)}
        said = [f"{one.name}={given[one.name]!r}" for one in options_of(field) if given[one.name] != one.default]
        with contextlib.suppress(click.UsageError):
            short = f"{type(field).__name__}({', '.join(said)})"
            if parse_field(short) == field:
                return short
    return repr(field)


def _summary(target: Path | ObjectPath, seconds: float) -> str:
    from fastloader.formats.fld import Dataset
    from fastloader.types import format_size

    if target.name.endswith(".fld"):
        written = Dataset(target)
        shards = f" in {count(len(written.shards), 'shard')}" if written.shards[0].path else ""
        size, samples = sum(shard.size for shard in written.shards), f"{count(written.num_samples, 'sample')}, "
    else:
        shards = samples = ""
        if isinstance(target, Path):
            parts = [target] if target.exists() else sorted(target.parent.glob(re.sub(r"%0?\d*d", "*", target.name)))
            size = sum(path.stat().st_size for path in parts)
            shards = "" if target.exists() else f" in {count(len(parts), 'file')}"
        elif "%" in target.name:  # several, by number
            return f"{printable(str(target))}: {seconds:.1f} s"
        else:
            size = target.store.stat(target.key).size
    return f"{printable(str(target))}: {samples}{format_size(size)}{shards}, {seconds:.1f} s"


def _fields(named: tuple[str, ...]) -> dict[str, Field]:
    found = {}
    for one in named:
        name, equals, text = one.partition("=")
        if not (name and equals and text):
            raise click.UsageError(f"--field {one}: write it like label=IntField")
        found[name] = parse_field(text)
    return found


def parse_field(text: str) -> Field:
    """A field as one would write it in Python: a name, or a call with plain values.

    >>> parse_field("IntField"), parse_field("JPEGImageField(quality=80)").quality
    (IntField(), 80)
    """
    from fastloader.fields import BY_TYPE_ID

    known = {cls.__name__: cls for cls in BY_TYPE_ID.values()}
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
        if not isinstance(call.func, ast.Name) or call.func.id not in known:
            raise click.UsageError(f"--field: no field {ast.unparse(call.func)}; there are {', '.join(known)}")
        arguments = [ast.literal_eval(one) for one in call.args]
        options = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        return known[call.func.id](*arguments, **options)
    except SyntaxError as error:
        raise click.UsageError(f"--field {text}: write it as in Python: {error.msg}") from error
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"--field {text}: {error}") from error
