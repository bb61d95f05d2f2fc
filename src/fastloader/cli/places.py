"""Where a dataset is: a local path, or a URL with what its store needs to let us in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import click.shell_completion

from fastloader.cli.status import NoSuchDatasetError, existing
from fastloader.errors import NotFoundError

if TYPE_CHECKING:
    from fastloader.reader import DatasetReader
    from fastloader.stores import ObjectPath

Command = Callable[..., Any]
Given = dict[str, Any]
"""The options of ``store_options``, as click gives them."""


class Place(click.types.StringParamType):
    """Text that is a path or a URL: a shell completes it as it does paths."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Left to the shell."""
        return [click.shell_completion.CompletionItem(incomplete, type="file")]


PLACE = Place()


def store_options(function: Command) -> Command:
    """The options of every command that may talk to a store."""
    for option in (
        click.option(
            "-o", "--storage-option", "storage", multiple=True, metavar="NAME=VALUE",
            help="For URLs: an option of the store's client; may be given again.",
        ),
        click.option("--anonymous", is_flag=True, help="For URLs: use no credentials."),
        click.option("--profile", metavar="NAME", help="For URLs: take the credentials of this AWS profile."),
        click.option("--endpoint", metavar="URL", help="For URLs: where the server is, if not the provider's own."),
    ):  # fmt: skip
        function = option(function)
    return function


def snapshot_option(function: Command) -> Command:
    """The option of commands that read a dataset as it was."""
    return click.option(
        "--snapshot", metavar="N", callback=_snapshot,
        help="Read it as it was: a number of fastloader log, or an id.",
    )(function)  # fmt: skip


def _snapshot(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    from fastloader.formats.fld.snapshots import NAMED

    if given is not None and not NAMED.fullmatch(given):
        raise click.BadParameter('a number, or a name like 3-1f2e77aa; "fastloader log" lists them')
    return given


_LIMITS = ("attempts", "deadline", "attempt_timeout", "first_wait", "longest_wait", "hedge_after")
"""Options that are numbers."""
_TRUTHS = ("anonymous", "direct")
"""Options that are true or false."""


def settings_of(given: Given) -> dict[str, Any] | None:
    """The ``storage_options`` that were given."""
    settings: dict[str, Any] = {}
    for one in given["storage"]:
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise click.UsageError(f"-o {one}: give NAME=VALUE")
        settings[name] = _number(value) if name in _LIMITS else _truth(one, value) if name in _TRUTHS else value
    settings |= {name: given[name] for name in ("endpoint", "profile") if given[name]}
    return settings | ({"anonymous": True} if given["anonymous"] else {}) or None


def _truth(given: str, text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError as error:
        raise click.UsageError(f"-o {given}: true or false") from error


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text  # what is wrong with it is told by who takes it


def located(dataset: str, given: Given) -> Path | ObjectPath:
    """Where a dataset is. A local path is known to exist."""
    from fastloader.stores import locate

    with usage_errors():
        where = locate(dataset, settings_of(given))
    return existing(where) if isinstance(where, Path) else where


def open_reader(dataset: str, given: Given, snapshot: str | None = None) -> DatasetReader:
    """A dataset open for reading, as it is or as it was."""
    from fastloader.reader import DatasetReader
    from fastloader.stores.urls import local_path

    located(dataset, given)
    with not_there():
        return DatasetReader(local_path(dataset) or dataset, settings_of(given), snapshot=snapshot)


@contextlib.contextmanager
def not_there() -> Iterator[None]:
    """Tell that what the user named does not exist apart from a shard that is gone, which is damage."""
    try:
        yield
    except NotFoundError as error:
        raise NoSuchDatasetError(error.message, path=error.path, hint=error.hint) from error


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """What a function says of its arguments is wrong usage; errors of ours that are ValueErrors tell of data."""
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise click.UsageError(str(error)) from error
