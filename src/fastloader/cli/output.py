"""Putting data on a terminal. What a dataset holds is foreign: no control character of it reaches the screen."""

from __future__ import annotations

import base64
import io
import json
import math
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import click

from fastloader.errors import FormatError

_BYTES_AS_SURROGATES = range(0xDC80, 0xDD00)


def printable(text: str, keep: str = "") -> str:
    r"""Text in which control, direction and other invisible characters are spelled out, but for those in ``keep``.

    >>> print(printable("a\nb\x1b[2J"))
    a\nb\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep or _is_visible(char) else _spell(char) for char in text)


def _is_visible(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def _spell(char: str) -> str:
    code = ord(char)
    return f"\\x{code - 0xDC00:02x}" if code in _BYTES_AS_SURROGATES else char.encode("unicode_escape").decode()


def readable(data: bytes) -> str | None:
    """The bytes as text, or ``None`` where they are not plain text that may go to a terminal as it is."""
    text = as_text(data)
    return text if text is not None and printable(text, keep="\n\t") == text else None


def as_text(data: bytes) -> str | None:
    """The bytes as UTF-8, if that is what they are."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def to_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON in ASCII. Bytes are base64; NaN and infinities, which JSON lacks, are texts."""
    try:
        try:
            return json.dumps(value, indent=indent, allow_nan=False, default=_as_json)
        except ValueError:
            return json.dumps(_without_nan(value), indent=indent, allow_nan=False, default=_as_json)
    except RecursionError:
        raise FormatError("a value is nested too deeply to be put in JSON", hint="read it field by field") from None


def _as_json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, list | tuple) else value


def count(number: int, noun: str) -> str:
    """A number of things.

    >>> count(1, "shard"), count(1200, "sample")
    ('1 shard', '1,200 samples')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def say(line: str = "") -> None:
    """A line on standard output. It is not flushed, so that long listings are quick."""
    sys.stdout.write(line + "\n")


def say_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """A table on standard output; columns whose titles are in ``right`` hold numbers."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    # Laid out here and written by ourselves, for rich has its own idea of what to do when nobody reads. A pipe has no
    # width: every cell gets the room it needs.
    terminal = on_terminal()
    page = io.StringIO()
    Console(file=page, force_terminal=terminal, width=None if terminal else 1 << 20, highlight=False).print(table)
    for line in page.getvalue().splitlines():
        say(line.rstrip())


def complain(message: str) -> None:
    """A line on standard error."""
    click.echo(f"fastloader: {printable(message)}", err=True)


def write_bytes(data: bytes | memoryview) -> None:
    """Bytes on standard output, as they are. A command that writes bytes says nothing besides."""
    sys.stdout.buffer.write(data)


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()
