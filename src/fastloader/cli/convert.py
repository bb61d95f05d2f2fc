"""``fastloader convert``: any dataset that can be opened, as a ``.fld`` dataset, a tar or a Parquet file."""

from __future__ import annotations

import ast
import contextlib
import time
from dataclasses import fields as options_of
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.output import count, printable, say, say_table
from fastloader.cli.places import not_there, settings_of, store_options, usage_errors
from fastloader.cli.status import NoSuchDatasetError
from fastloader.errors import KeyNotFoundError, NotFoundError, SampleError

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
@click.option("--shard-size", metavar="SIZE", help="Write a folder of shards of about this size, like 512MB.")
@click.option("--compression", metavar="NAME", help="Of .fld: lz4, zstd or zstd:LEVEL.")
@click.option("-j", "--jobs", type=click.IntRange(min=0), metavar="N", help="Threads to use; one a core by default.")
@click.option("--force", is_flag=True, help="Replace DST if it is there.")
@click.option("--dry-run", is_flag=True, help="Show the fields and write nothing.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing, and no progress.")
@store_options
def command(
    sources: tuple[str, ...], destination: str, format_: str | None, fields: str | None, named: tuple[str, ...],
    shard_size: str | None, compression: str | None, jobs: int | None, force: bool, dry_run: bool, quiet: bool,
    **store: Any,
) -> None:  # fmt: skip
    """Convert SRC to DST.

    SRC is whatever fastloader.open takes: a file, a folder, a pattern; several are one after the other. How the name of
    DST ends says what it will be: .fld, .tar (WebDataset's layout) or .parquet. Both may be URLs of stores. JPEG and
    PNG files move as they are.

    With --shard-size, a conversion that was interrupted goes on where it was when it is run again.
    """
    from fastloader.dataset.dataset import as_node
    from fastloader.dataset.running import new_run
    from fastloader.dataset.writing import Elements, fields_of
    from fastloader.stores import is_url, locate

    settings = settings_of(store)
    if settings is not None and not any(map(is_url, (*sources, destination))):
        raise click.UsageError("options for stores are given, and neither SRC nor DST is a URL")
    to_settings = settings if is_url(destination) else None
    with usage_errors():
        target = locate(destination, to_settings)
    chosen = None if fields is None else [name.strip() for name in fields.split(",")]
    given = _fields(named)
    if Path(target.name).suffix not in (".fld", ".tar", ".parquet"):
        raise click.UsageError(f"{target}: the name ends with .fld, .tar or .parquet, which says what to write")
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
            dataset.write(
                destination, found, shard_size=shard_size, compression=compression, threads=jobs,
                show_progress=False if quiet else None, storage_options=to_settings,
            )  # fmt: skip
    except KeyboardInterrupt:
        if shard_size is not None:
            click.echo("fastloader: interrupted; the same command goes on where this was", err=True)
        else:
            click.echo(
                "fastloader: interrupted, nothing was written; with --shard-size it could go on where it was", err=True
            )
        raise
    if not quiet:
        say(_summary(target, time.monotonic() - began))


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

    if Path(target.name).suffix == ".fld":
        written = Dataset(target)
        shards = f" in {count(len(written.shards), 'shard')}" if written.shards[0].path else ""
        size, samples = sum(shard.size for shard in written.shards), f"{count(written.num_samples, 'sample')}, "
    else:
        shards = samples = ""
        size = target.stat().st_size if isinstance(target, Path) else target.store.stat(target.key).size
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
