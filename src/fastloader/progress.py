"""Progress bars: shown after a second, on a terminal, on standard error; silent otherwise."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

DELAY = 1.0
Advance = Callable[[int], None]


@contextlib.contextmanager
def progress(title: str, total: int | None, *, show: bool | None = None) -> Iterator[Advance]:
    """Yields ``advance(count)``. ``show`` overrides the choice by terminal; short work never shows a bar."""
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    task = bar.add_task(title, total=total)
    began = time.monotonic()
    started = False

    def advance(count: int) -> None:
        nonlocal started
        bar.advance(task, count)
        if not started and time.monotonic() - began > DELAY:
            started = True
            bar.start()

    try:
        yield advance
    finally:
        if started:
            bar.stop()
