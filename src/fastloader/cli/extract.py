"""``fastloader extract``: an archive back into a folder."""

from __future__ import annotations

import time
from pathlib import Path

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
from fastloader.cli.output import complain, count, printable, say, to_json
from fastloader.cli.places import PLACE
from fastloader.errors import KeyNotFoundError


@click.command("extract")
@click.argument("archive", metavar="ARCHIVE", type=PLACE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@include_option
@exclude_option
@click.option("--overwrite", is_flag=True, help="Replace files and links that are there.")
@click.option("--any-links", is_flag=True, help="Make links that lead out of DIR, too.")
@click.option("--set-ids", is_flag=True, help="Keep setuid and setgid bits of files.")
@json_option
@quiet_option
def extract(
    archive: str, folder: Path, patterns: tuple[str, ...], include: tuple[str, ...], exclude: tuple[str, ...],
    overwrite: bool, any_links: bool, set_ids: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Put the entries of an ARCHIVE into DIR: all, or those that fit a PATTERN.

    Nothing is written outside of DIR: paths and links that lead out of it are refused.
    """
    from fastloader.archive import FolderSink
    from fastloader.archive.editing import extract as run
    from fastloader.progress import progress

    opened = open_archive(archive)
    choice = choice_of((*patterns, *include), exclude)
    refuse_unmet(opened, patterns)
    began = time.monotonic()
    with (
        FolderSink(folder, overwrite=overwrite, any_links=any_links, set_ids=set_ids, warn=complain) as sink,
        progress("extracting", len(opened) if choice.is_all else None, show=False if quiet else None) as advance,
    ):
        found = run(opened, sink, choice, advance=advance)
    if not found and (patterns or include):
        raise KeyNotFoundError("nothing fits", path=archive, hint=f'"fastloader find {archive}" lists all')
    seconds = time.monotonic() - began
    if as_json:
        say(to_json({"path": str(folder), "entries": found, "seconds": round(seconds, 3)}))
    elif not quiet:
        say(f"{printable(str(folder))}: {count(found, 'entry').replace('entrys', 'entries')}, {seconds:.1f} s")


commands = (extract,)
