"""``fastloader convert``: any dataset as a ``.fld`` dataset, tars or a Parquet file; any archive as any other."""

from __future__ import annotations

import ast
import contextlib
import re
import time
from dataclasses import fields as options_of
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.archives import choice_of, exclude_option, include_option, json_option, quiet_option
from fastloader.cli.copying import between_archives, copy
from fastloader.cli.engines import engine_options, is_ray
from fastloader.cli.output import count, printable, say, say_table, to_json
from fastloader.cli.places import PLACE, not_there, settings_of, store_options, usage_errors
from fastloader.cli.status import NoSuchDatasetError
from fastloader.errors import KeyNotFoundError, NotFoundError, SampleError

if TYPE_CHECKING:
    from fastloader.fields import Field
    from fastloader.stores import ObjectPath

_NUMBER = re.compile(r"%0?\d*d")
"""Where a name has its number, as in train-%06d.tar."""


@click.command("convert")
@click.argument("sources", metavar="SRC...", nargs=-1, required=True, type=PLACE)
@click.argument("destination", metavar="DST", type=PLACE)
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
@click.option(
    "--duplicates",
    type=click.Choice(["refuse", "first", "last"]),
    help="Which of an archive's entries with one path to take; by default that is an error, but in a tar.",
)
@click.option("--any-links", is_flag=True, help="To a folder: make links that lead out of it, too.")
@click.option("--set-ids", is_flag=True, help="To a folder: keep setuid and setgid bits of files.")
@click.option("--shard-size", metavar="SIZE", help="Write shards of about this size, like 512MB.")
@click.option("--shard-samples", type=click.IntRange(min=1), metavar="N", help="Write tars of this many samples.")
@click.option("--compression", metavar="NAME", help="Of .fld: lz4, zstd or zstd:LEVEL.")
@click.option("-j", "--jobs", type=click.IntRange(min=0), metavar="N", help="Threads to use; one a core by default.")
@click.option("--force", is_flag=True, help="Replace DST if it is there.")
@click.option("--dry-run", is_flag=True, help="Show the fields and write nothing.")
@json_option
@quiet_option
@engine_options
@store_options
def command(
    sources: tuple[str, ...], destination: str, format_: str | None, fields: str | None, named: tuple[str, ...],
    as_archive: bool, include: tuple[str, ...], exclude: tuple[str, ...], duplicates: str | None, any_links: bool,
    set_ids: bool, shard_size: str | None, shard_samples: int | None, compression: str | None, jobs: int | None,
    force: bool, dry_run: bool, as_json: bool, quiet: bool, engine: str, address: str | None, **store: Any,
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
    from fastloader.writer.exports import EXPORTS, is_numbered

    on_ray = is_ray(engine, address, shard_size)
    settings = settings_of(store)
    if settings is not None and not any(map(is_url, (*sources, destination))):
        raise click.UsageError("options for stores are given, and neither SRC nor DST is a URL")
    with usage_errors():
        local = local_path(destination)
        as_archive = as_archive or between_archives(sources, local or destination)
    if as_archive:
        if on_ray:
            raise click.UsageError("--engine ray converts samples; fastloader create puts a folder into an archive")
        if local is None or settings is not None:
            raise click.UsageError(
                f"{destination}: archives are copied from where the environment leads to local files; fastloader store "
                "put brings them on"
            )
        if any((format_, fields, named, shard_samples, dry_run)) or len(sources) > 1:
            raise click.UsageError(
                "archives are copied one by one; only --include, --exclude, --duplicates and shards choose"
            )
        copy(
            sources[0], local, choice_of(include, exclude), duplicates=duplicates or "refuse", any_links=any_links,
            set_ids=set_ids, shard_size=shard_size, compression=compression, jobs=jobs, force=force, as_json=as_json,
            quiet=quiet,
        )  # fmt: skip
        return
    if include or exclude:
        raise click.UsageError("--include and --exclude are for archives; --archive makes one")
    if duplicates or any_links or set_ids:
        raise click.UsageError("--duplicates, --any-links and --set-ids are for archives; --archive makes one")
    to_settings = settings if is_url(destination) else None
    with usage_errors():
        target = locate(destination, to_settings)
    if on_ray and not target.name.endswith(".fld"):
        raise click.UsageError(f"{target}: --engine ray writes .fld alone")
    chosen = None if fields is None else [name.strip() for name in fields.split(",")]
    given = _fields(named)
    if not target.name.endswith((".fld", *EXPORTS)):
        raise click.UsageError(
            f"{target}: the name ends with .fld, {', '.join(EXPORTS)}, .zip or .barecat, which says what to write; "
            "archives go into a folder, too"
        )
    if not force and not dry_run and _is_there(target):
        raise click.UsageError(f"{target} is there already; --force replaces it")
    dataset = _open(sources, format_, chosen, settings if any(map(is_url, sources)) else None)
    try:
        found, _ = fields_of(Elements(as_node(dataset), new_run()), given)
    except KeyNotFoundError as error:
        raise click.UsageError(str(error)) from error
    except SampleError as error:
        raise click.UsageError(f"{error}; --fields chooses those to take") from error
    stored = {name: _written(field) for name, field in found.items()}
    if not quiet and not as_json:
        say_table(("field", "stored as"), list(stored.items()))
    if dry_run:
        if as_json:
            say(to_json({"sources": list(sources), "fields": stored}))
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
        elif is_numbered(target.name) and isinstance(target, Path):
            click.echo("fastloader: interrupted; tars that were whole have taken their places", err=True)
        else:
            click.echo(
                "fastloader: interrupted, nothing was written; with --shard-size it could go on where it was", err=True
            )
        raise
    seconds = time.monotonic() - began
    if as_json:
        samples, size, parts = _written_there(target)
        facts = {"path": destination, "sources": list(sources), "samples": samples, "size": size, "parts": parts}
        say(to_json({**facts, "fields": stored, "seconds": round(seconds, 3)}))
    elif not quiet:
        say(_summary(target, seconds))


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
        return target.exists() or any(_numbered(target))
    from fastloader.formats.fld import is_sharded
    from fastloader.writer.exports import is_numbered

    try:
        target.store.stat(target.beside(target.name % 0).key if is_numbered(target.name) else target.key)
    except NotFoundError:
        return is_sharded(target)
    return True


def _numbered(target: Path) -> list[Path]:
    """The files of a name with a place for their number."""
    if not _NUMBER.search(target.name) or not target.parent.is_dir():
        return []
    name = re.compile(r"\d+".join(map(re.escape, _NUMBER.split(target.name))))
    return sorted(path for path in target.parent.iterdir() if name.fullmatch(path.name))


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


def _written_there(target: Path | ObjectPath) -> tuple[int | None, int | None, int | None]:
    """Samples, bytes and files of what was written; ``None`` for what can't be told."""
    from fastloader.formats.fld import Dataset

    if target.name.endswith(".fld"):
        written = Dataset(target)
        return written.num_samples, sum(shard.size for shard in written.shards), len(written.shards)
    if isinstance(target, Path):
        parts = [target] if target.exists() else _numbered(target)
        return None, sum(path.stat().st_size for path in parts), len(parts)
    return None, None if "%" in target.name else target.store.stat(target.key).size, None


def _summary(target: Path | ObjectPath, seconds: float) -> str:
    from fastloader.formats.fld import is_sharded
    from fastloader.types import format_size

    samples, size, parts = _written_there(target)
    said = "" if samples is None else f"{count(samples, 'sample')}, "
    if size is not None:
        several = is_sharded(target) if samples is not None else isinstance(target, Path) and not target.exists()
        where = f" in {count(parts or 0, 'file' if samples is None else 'shard')}" if several else ""
        said += f"{format_size(size)}{where}, "
    return f"{printable(str(target))}: {said}{seconds:.1f} s"


def _fields(named: tuple[str, ...]) -> dict[str, Field]:
    found = {}
    for one in named:
        name, equals, text = one.partition("=")
        if not (name and equals and text):
            raise click.UsageError(f"--field {one}: write it like label=IntField")
        found[name] = parse_field(text)
    return found


def parse_field(text: str) -> Field:
    """A field as one would write it in Python: a name, or a call with plain values and fields that are calls.

    >>> parse_field("IntField"), parse_field("JPEGImageField(quality=80)").quality
    (IntField(), 80)
    """
    from fastloader.fields import BY_TYPE_ID

    known = {cls.__name__: cls for cls in BY_TYPE_ID.values()}

    def value_of(node: ast.expr) -> Any:
        return made(node) if isinstance(node, ast.Call) else ast.literal_eval(node)

    def made(node: ast.expr) -> Field:
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        if not isinstance(call.func, ast.Name) or call.func.id not in known:
            raise click.UsageError(f"--field: no field {ast.unparse(call.func)}; there are {', '.join(known)}")
        options = {str(one.arg): value_of(one.value) for one in call.keywords}
        return known[call.func.id](*map(value_of, call.args), **options)

    try:
        return made(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise click.UsageError(f"--field {text}: write it as in Python: {error.msg}") from error
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"--field {text}: {error}") from error
