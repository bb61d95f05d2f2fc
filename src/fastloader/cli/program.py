"""How the program ends: every foreseeable error is one line on standard error and an exit status, never a traceback."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import click

from fastloader.cli.output import complain
from fastloader.cli.status import INTERRUPTED, OUTPUT_CLOSED, message_of, status_of
from fastloader.errors import FastLoaderError


class Commands(MutableMapping[str, click.Command]):
    """Commands by name, imported when they are asked for: to import all would take longer than most of them run.

    ``modules`` are those of this package, with the names of the commands in each.
    """

    def __init__(self, modules: Mapping[str, tuple[str, ...]]) -> None:
        self._modules = {name: module for module, names in modules.items() for name in names}
        self._known: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._known:
            module = import_module(f"{__package__}.{self._modules[name]}")
            for command in getattr(module, "commands", None) or (module.command,):
                self._known[command.name] = command
        return self._known[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._modules[name], self._known[name] = "", command

    def __delitem__(self, name: str) -> None:
        del self._modules[name]
        self._known.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class Program(click.Group):
    """A group of commands that share their way of failing."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        gc.freeze()  # what was imported stays: it need not be looked through for garbage again and again
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(
                    errors="backslashreplace"
                )  # a terminal that can't show a letter still shows the rest
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except (FastLoaderError, OSError) as error:
            _give_up_output()
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                ctx.exit(OUTPUT_CLOSED)
            complain(message_of(error))
            ctx.exit(status_of(error))


def _give_up_output() -> None:
    """Where standard output takes nothing more, what is still buffered must not fail a second time on exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
