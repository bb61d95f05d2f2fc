"""The pages about stores say what is so."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from fastloader.cli import store
from fastloader.stores import RetryPolicy

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_names_every_limit_and_its_default() -> None:
    text = (DOCS / "reference/stores.md").read_text()
    for field in fields(RetryPolicy):
        assert f"`{field.name}`" in text
    for name, value in (("attempts", 10), ("deadline", 120), ("attempt_timeout", 30)):
        assert f"| `{name}` | {value} |" in text
        assert getattr(RetryPolicy(), name) == value


def test_the_command_line_page_names_every_command() -> None:
    text = (DOCS / "reference/cli.md").read_text()
    for name in store.command.commands:
        assert re.search(rf"\| `{name} [A-Z]", text)
