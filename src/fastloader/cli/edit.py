"""``fastloader merge``, ``subset``, ``reshard``, ``rm`` and ``compact``: archives made of archives, and changed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.archives import (
    choice_of,
    exclude_option,
    include_option,
    json_option,
    open_archive,
    quiet_option,
    refuse_unmet,
)  # fmt: skip
from fastloader.cli.output import count, printable, say, to_json
from fastloader.cli.places import PLACE, located, not_there, settings_of, store_options, usage_errors
from fastloader.errors import KeyNotFoundError
from fastloader.types import format_size, key_bytes

if TYPE_CHECKING:
    from fastloader.archive import Choice

shard_option = click.option("-s", "--shard-size", metavar="SIZE", help="Write shards of about this size, like 50G.")
force_option = click.option("--force", is_flag=True, help="Replace OUT.fld if it is there.")


@click.command("merge")
@click.argument("out", metavar="OUT.fld", type=PLACE)
@click.argument("archives", metavar="ARCHIVE...", nargs=-1, required=True, type=PLACE)
@click.option(
    "--duplicates", type=click.Choice(["refuse", "first", "last"]), default="refuse",
    help="Which to take where several have the same path; by default that is an error.",
)  # fmt: skip
@shard_option
@force_option
@json_option
@quiet_option
def merge(out: str, archives: tuple[str, ...], duplicates: Any, **options: Any) -> None:
    """Copy several archives into one, OUT.fld, in the order of paths."""
    from fastloader.archive import Choice

    _copy(out, archives, Choice(), duplicates=duplicates, **options)


@click.command("subset")
@click.argument("out", metavar="OUT.fld", type=PLACE)
@click.argument("archive", metavar="ARCHIVE", type=PLACE)
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@include_option
@exclude_option
@shard_option
@force_option
@json_option
@quiet_option
def subset(
    out: str,
    archive: str,
    patterns: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    **options: Any,
) -> None:
    """Copy what fits a PATTERN from an ARCHIVE into another, OUT.fld."""
    choice = choice_of((*patterns, *include), exclude)
    if choice.is_all:
        raise click.UsageError("say what to take: a PATTERN like '*.jpg', --include or --exclude")
    refuse_unmet(open_archive(archive), patterns)
    _copy(out, (archive,), choice, duplicates="refuse", **options)


@click.command("reshard")
@click.argument("out", metavar="OUT.fld", type=PLACE)
@click.argument("archive", metavar="ARCHIVE", type=PLACE)
@shard_option
@force_option
@json_option
@quiet_option
def reshard(out: str, archive: str, **options: Any) -> None:
    """Copy an ARCHIVE to OUT.fld with shards of another size; without -s, to one file."""
    from fastloader.archive import Choice

    _copy(out, (archive,), Choice(), duplicates="refuse", **options)


def _copy(
    out: str, archives: tuple[str, ...], choice: Choice, *, duplicates: Any, shard_size: str | None, force: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    from fastloader.archive import ArchiveWriter
    from fastloader.archive.editing import copy_archives
    from fastloader.progress import progress
    from fastloader.stores.urls import local_path

    local = local_path(out)
    if local is not None and os.path.lexists(local) and not force:
        raise click.UsageError(f"{out} is there already; --force replaces it")
    opened = [open_archive(path) for path in archives]
    total = sum(map(len, opened)) if choice.is_all else None
    began = time.monotonic()
    try:
        with (
            ArchiveWriter(out, shard_size=shard_size) as writer,
            progress("copying", total, show=False if quiet else None) as advance,
        ):
            copied = copy_archives(opened, writer, choice, duplicates=duplicates, advance=advance)
            if not copied and choice.include:
                hint = f'"fastloader find {archives[0]}" lists all'
                raise KeyNotFoundError("nothing fits", path=archives[0], hint=hint)
    except ValueError as error:
        if type(error) is ValueError:
            raise click.UsageError(str(error)) from error
        raise
    seconds = time.monotonic() - began
    if as_json:
        facts = {"path": out, "files": writer.num_files, "bytes": writer.num_bytes, "seconds": round(seconds, 3)}
        say(to_json(facts))
    elif not quiet:
        say(f"{printable(out)}: {count(writer.num_files, 'file')}, {format_size(writer.num_bytes)}, {seconds:.1f} s")


@click.command("rm")
@click.argument("archive", metavar="ARCHIVE", type=PLACE)
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@include_option
@exclude_option
@click.option("-r", "--recursive", is_flag=True, help="Remove folders with all that is in them.")
@click.option("-n", "--dry-run", is_flag=True, help="List what would be removed.")
@json_option
@quiet_option
def rm(
    archive: str, paths: tuple[str, ...], include: tuple[str, ...], exclude: tuple[str, ...], recursive: bool,
    dry_run: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Take PATHs, or what fits --include, out of an ARCHIVE.

    The bytes stay in its files until fastloader compact; a single file becomes a folder of shards.
    """
    from fastloader.archive.editing import removable, remove
    from fastloader.cli.archives import facts_of, say_path

    if not paths and not include:
        raise click.UsageError("say what to remove: a PATH, or --include and a pattern")
    choice = choice_of(include, exclude)
    names = [key_bytes(path).strip(b"/") for path in paths]
    opened = open_archive(archive)
    if dry_run:
        for row in removable(opened, choice if include else None, names, recursive=recursive):
            if as_json:
                say(to_json(facts_of(opened.tree.entry(row))))
            else:
                say_path(row[0])
        return
    removed = remove(archive, choice if include else None, names, recursive=recursive)
    if as_json:
        say(to_json({"path": archive, "removed": removed}))
    elif not quiet:
        say(f"{printable(archive)}: {removed:,} removed; fastloader compact gives back their room")


@click.command("compact")
@click.argument("dataset", metavar="DATASET", type=PLACE)
@click.option("-s", "--shard-size", metavar="SIZE", help="Write all samples anew, in shards of about this size.")
@click.option("--drop-snapshots", is_flag=True, help="Forget all snapshots before, and remove what only they need.")
@json_option
@quiet_option
@store_options
def compact(
    dataset: str, shard_size: str | None, drop_snapshots: bool, as_json: bool, quiet: bool, **given: Any
) -> None:
    """Write shards of a DATASET anew that hold what is gone, or have files beside them.

    Snapshots before stay, and so do their files, unless --drop-snapshots. An ARCHIVE has the room of what was removed
    or replaced given back at once; its earlier snapshots go with it.
    """
    from fastloader.cli.archives import is_archive
    from fastloader.progress import progress

    settings = settings_of(given)
    located(dataset, given)
    show = False if quiet else None
    if is_archive(dataset, settings):
        from fastloader.archive.editing import compact as compact_archive

        if shard_size is not None:
            raise click.UsageError('an archive is written anew with other shards by "fastloader reshard"')
        with progress("compacting", None, show=show) as advance:
            saved = compact_archive(dataset, advance=advance)
        if as_json:
            say(to_json({"path": dataset, "bytes": saved}))
        elif not quiet:
            done = f"{format_size(saved)} given back" if saved else "nothing to do"
            say(f"{printable(dataset)}: {done}")
        return
    from fastloader.editing import edit

    with not_there(), usage_errors():
        editor = edit(dataset, settings)
        before = editor.snapshots()[0]
        with progress("compacting", None, show=show) as advance:
            after = editor.compact(shard_size=shard_size, advance=advance)
    freed = editor.drop_snapshots()[1] if drop_snapshots else None
    if as_json:
        say(to_json({"path": dataset, "snapshot": after.number, "bytes": freed}))
    elif not quiet:
        done = "nothing to do" if after == before else f"snapshot {after.number}: {after.summary}"
        kept = f'; "fastloader gc {dataset}" gives back the room of those before' if after != before else ""
        say(f"{printable(dataset)}: {done}{kept if freed is None else f', {format_size(freed)} given back'}")


commands = (merge, subset, reshard, rm, compact)
