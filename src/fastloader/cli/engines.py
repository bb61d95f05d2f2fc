"""Who makes the shards of an archive or a conversion: this process, or the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def engine_options(function: Command) -> Command:
    """The options of commands that write shards."""
    for option in (
        click.option(
            "--address", metavar="HOST:PORT",
            help="With --engine ray: the cluster; else that of RAY_ADDRESS, or one started on this machine.",
        ),
        click.option(
            "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
            help="Who makes the shards: this process, or tasks of a Ray cluster.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def is_ray(engine: str, address: str | None, shard_size: str | None) -> bool:
    """Whether Ray is asked for, with what it needs."""
    if engine != "ray":
        if address is not None:
            raise click.UsageError("--address is for --engine ray")
        return False
    if shard_size is None:
        raise click.UsageError("--engine ray makes every shard a task: give --shard-size, like 1G")
    return True
