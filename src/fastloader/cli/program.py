"""How the program ends: every foreseeable error is one line on standard error and an exit status, never a traceback."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any

import click

from fastloader.cli.output import complain
from fastloader.cli.status import INTERRUPTED, OUTPUT_CLOSED, message_of, status_of
from fastloader.errors import FastLoaderError


class Program(click.Group):
    """A group of commands that share their way of failing."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
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
