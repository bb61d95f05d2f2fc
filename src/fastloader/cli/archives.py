"""What the commands on archives share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.output import on_terminal, printable, say, write_bytes
from fastloader.cli.status import NoSuchDatasetError
from fastloader.errors import KeyNotFoundError, NotFoundError

if TYPE_CHECKING:
    from fastloader.archive import Archive, Choice
    from fastloader.formats.entries import Entry

include_option = click.option(
    "--include", multiple=True, metavar="PATTERN",
    help="Take only what fits, like '*.jpg' or 'train/**'; may be given again.",
)  # fmt: skip
exclude_option = click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Leave out what fits; may be given again."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print nothing, and no progress.")


def choice_of(include: tuple[str, ...], exclude: tuple[str, ...]) -> Choice:
    """The paths that are meant."""
    from fastloader.archive import Choice

    try:
        return Choice(include, exclude)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def open_archive(path: str | Path, settings: dict[str, Any] | None = None) -> Archive:
    """An archive that the user names; ``settings`` are for the store of a URL."""
    from fastloader.archive import Archive

    try:
        return Archive(path, settings)
    except NotFoundError as error:
        raise NoSuchDatasetError("there is no such file or folder", path=path, hint="check the path") from error


def refuse_unmet(archive: Archive, patterns: tuple[str, ...]) -> None:
    """Raise where one of several patterns fits nothing: who names files wants each of them, and all is known before
    anything is written. Of one alone it is told by who takes what fits.
    """
    if len(patterns) < 2:
        return
    names = {one.strip("/").encode("utf-8", "surrogateescape"): one for one in patterns if not set("*?[/") & set(one)}
    others = [(one, choice_of((one,), ())) for one in patterns if set("*?[/") & set(one)]
    for row in archive.tree.below():
        if not names and not others:
            return
        path = row[0].removesuffix(b"/")
        for part in path.split(b"/") if names else ():
            names.pop(part, None)
        if others:
            others = [(one, choice) for one, choice in others if not choice.includes(path)]
    unmet = [*names.values(), *(one for one, _ in others)]
    if unmet:
        raise KeyNotFoundError(
            f"nothing fits {', '.join(map(repr, unmet[:5]))}{' and others' if len(unmet) > 5 else ''}",
            path=archive.path, hint=f'"fastloader find {archive.path}" lists all',
        )  # fmt: skip


def is_archive(path: str, settings: dict[str, Any] | None = None) -> bool:
    """Whether a dataset is an archive. What can't be opened is not: who opens it says what is wrong."""
    from fastloader.archive.encoding import is_archive as holds_files
    from fastloader.errors import FastLoaderError
    from fastloader.formats.fld import Dataset
    from fastloader.stores import locate

    try:
        return holds_files(Dataset(locate(path, settings)))
    except (FastLoaderError, OSError, ValueError, TypeError):
        return False


def facts_of(entry: Entry) -> dict[str, Any]:
    """An entry for JSON."""
    facts: dict[str, Any] = {
        "path": entry.name, "kind": entry.kind.name.lower(), "mode": f"{entry.mode:04o}", "mtime": entry.mtime / 1e9,
        "size": entry.size,
    }  # fmt: skip
    if entry.target:
        facts["target"] = entry.target.decode("utf-8", "surrogateescape")
    return facts


def say_path(path: bytes, *, null: bool = False) -> None:
    """A path on standard output: as it is for programs, made safe for people."""
    if not null and on_terminal():
        say(printable(path.decode("utf-8", "surrogateescape")))
    else:
        write_bytes(path + (b"\0" if null else b"\n"))
