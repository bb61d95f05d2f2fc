"""``fastloader view``: a page in the browser that shows a dataset."""

from __future__ import annotations

import secrets
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.output import count, printable, say
from fastloader.cli.places import not_there, settings_of, store_options, usage_errors
from fastloader.errors import MissingExtraError

if TYPE_CHECKING:
    from types import ModuleType


@click.command("view")
@click.argument("dataset", type=click.Path())
@click.option(
    "--host", default="127.0.0.1", metavar="ADDRESS", help="Where to listen; any other than 127.0.0.1 has a token."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", help="Listen on this port; 8417, or one that is free."
)
@click.option(
    "--token", "with_token", is_flag=True, help="Ask for a token on 127.0.0.1 too, where others use this machine."
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option(
    "--pipeline", metavar="FILE", type=click.Path(),
    help="A Python file that defines pipelines = {...}: show what they make of a sample.",
)  # fmt: skip
@click.option("--tokenizer", metavar="FILE|NAME", help="Show tokens as text: a tokenizer's file, or tiktoken's name.")
@store_options
def command(
    dataset: str, host: str, port: int | None, with_token: bool, no_browser: bool, pipeline: str | None,
    tokenizer: str | None, **store: Any,
) -> None:  # fmt: skip
    """Show DATASET in the browser: a grid of its samples, each with all it holds, searched, filtered and counted.

    DATASET is anything with random access that fastloader opens: .fld, tar, zip, Parquet, folders of files.
    Ctrl-C ends it.
    """
    running = _running()
    from fastloader.pipeline.files import load_pipelines
    from fastloader.viewer import open_samples
    from fastloader.viewer.guard import is_loopback
    from fastloader.viewer.showing import Viewer

    pipelines = None if pipeline is None else load_pipelines(pipeline)
    with usage_errors(), not_there():
        samples = open_samples(dataset, settings_of(store), tokenizer=tokenizer)
        viewer = Viewer(samples, PurePath(dataset).name or dataset, pipelines)
    token = secrets.token_urlsafe(24) if with_token or not is_loopback(host) else None
    listening = running.listen(host, port)
    url = running.address(listening, host, token)
    say(f"{printable(dataset)}: {count(len(samples), 'sample')}, shown at {url} (Ctrl-C ends it)")
    if not no_browser and running.can_show():
        running.show(url)
    running.serve(viewer, listening, host, token)
    running.leave()


def _running() -> ModuleType:
    try:
        from fastloader.viewer import running
    except ModuleNotFoundError as error:
        if error.name not in ("anyio", "starlette", "uvicorn"):
            raise
        raise MissingExtraError(f"{error.name} is not installed, which the viewer needs", extra="view") from error
    return running
